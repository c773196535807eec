"""A papermill engine that prints a notebook's progress and its verdict while the notebook runs.

Importing this module registers the engine under the name `helpers`. papermill's own log would be no
replacement: it leaves out outputs that are updated in place, such as the figure of a training run.
"""

import logging
import re
import sys

from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from tqdm import tqdm

from helpers.printing import escaped

# A line that begins with one of these is printed. The number is that of a notebook with such lines;
# lessons that do the same have them, too.
_PREFIXES = (
    "step ",  # 03: a step of the training, or a finding about it
    "data: ",  # 01: how many rows are usable
    "note: ",  # all: what a user may not expect
    "WARNING: ",  # 05: a model that should not be used
    "NOT ",  # 03: rewards that 02 did not test or did not approve
    "stopping early: ",  # 03: why
    "to sample everything: ",  # 02: a forecast, before minutes without a line
    "to sample in a training of ",  # 02: what comes after them
    "every completion at its limit: ",  # 03: a forecast of the training
    "tracker: ",  # 03: where its events go
    "continuing the interrupted training ",  # 03: from which step
)
_FORECAST = re.compile(r"[\d,]+ steps?: about ")  # 03, after the line above


def lines_to_print(source: str, output: str) -> list[str]:
    """Return the lines of a cell's output that belong on the terminal.

    source: the code of the cell. output: the text that the cell wrote or displayed. It may contain
        completions: a line ends at a line break only, and control characters become escapes.

    >>> lines_to_print("train()", "loading\\nstep 1/3  reward 0.1")
    ['step 1/3  reward 0.1']
    >>> lines_to_print("print(verdict)", "NO GO:\\n  - it pays for length")
    ['NO GO:', '  - it pays for length']
    """
    prefixes = _PREFIXES
    # A notebook calls its own verdict `verdict`. Verdicts on examples of bad rewards stay inside.
    if "print(verdict)" in source:
        prefixes += ("GO:", "NO GO:", "  - ", "  note: ")
    # 04's findings about the run itself; other notebooks diagnose examples.
    if "diagnose(history)" in source:
        prefixes += ("critical (", "warning (")
    return [
        escaped(line)
        for line in output.split("\n")
        if line.startswith(prefixes) or _FORECAST.match(line)
    ]


class Client(PapermillNotebookClient):
    """papermill's client, which also prints the `lines_to_print` of each output.

    Of the streams, only standard output is read: a warning on the other may quote a completion.
    The kernel may send a line in parts: only the first is matched and printed, because a later part
    is not the beginning of a line, whatever it begins with.
    """

    unfinished = None  # the index of the cell whose last part has not ended its line

    def process_message(self, msg, cell, cell_index):
        """Print lines of a kernel's message, then handle it as nbclient's NotebookClient does."""
        content = msg["content"]
        output = ""
        if msg["msg_type"] in ("display_data", "update_display_data"):
            output = content.get("data", {}).get("text/plain", "")
        elif msg["msg_type"] == "stream" and content["name"] == "stdout":
            output = content["text"]
            continues_line = self.unfinished == cell_index
            if output:
                self.unfinished = None if output.endswith("\n") else cell_index
            if continues_line:
                output = output.partition("\n")[2]
        for line in lines_to_print(cell.source, output):
            tqdm.write(f"    {line}")
            sys.stdout.flush()
        return super().process_message(msg, cell, cell_index)


class Engine(NBClientEngine):
    """papermill's engine with the client above."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, **kwargs):
        """Execute a notebook; the signature is papermill's."""
        quiet = ["--IPKernelApp.log_level=50"]  # keep a kernel's notices off the terminal
        log = logging.getLogger("papermill")
        Client(nb_man, kernel_name=kernel_name, log=log, extra_arguments=quiet).execute()


papermill_engines.register("helpers", Engine)
