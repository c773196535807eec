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

from helpers.tags import escaped


def lines_to_print(source: str, output: str) -> list[str]:
    """Return the lines of a cell's output that belong on the terminal.

    source: the code of the cell. output: the text that the cell wrote or displayed. It may contain
        completions: a line ends at a line break only, and control characters become escapes.

    >>> lines_to_print("train()", "loading\\nstep 1/3  reward 0.1")
    ['step 1/3  reward 0.1']
    >>> lines_to_print("print(verdict)", "NO GO:\\n  - it pays for length")
    ['NO GO:', '  - it pays for length']
    """
    # WARNING: 05 about a model that should not be used. NOT: 03 about untested rewards. The second
    # line has forecasts, before minutes without a line, and where the events of a tracker go.
    beginnings = ("step ", "data: ", "note: ", "WARNING: ", "NOT ", "stopping early: ")
    beginnings += ("to sample everything: ", "every completion at its limit: ", "tracker: ")
    beginnings += ("continuing the interrupted training ",)
    # A notebook calls its own verdict `verdict`. Verdicts on examples of bad rewards stay inside.
    if "print(verdict)" in source:
        beginnings += ("GO:", "NO GO:", "  - ", "  note: ")
    # 04's findings about the run itself; other notebooks diagnose examples.
    if "diagnose(history)" in source:
        beginnings += ("critical (", "warning (")
    return [
        escaped(line)
        for line in output.split("\n")
        if line.startswith(beginnings) or _FORECAST.match(line)
    ]


_FORECAST = re.compile(r"[\d,]+ steps?: at most ")


class Client(PapermillNotebookClient):
    """papermill's client, which also prints the `lines_to_print` of each output.

    Of the streams, only standard output is read: a warning on the other may quote a completion.
    """

    inside_line = None  # the cell whose last text on standard output has not ended its line

    def process_message(self, msg, cell, cell_index):
        """Print lines of a kernel's message, then handle it as nbclient's NotebookClient does."""
        content = msg["content"]
        if msg["msg_type"] in ("stream", "display_data", "update_display_data"):
            output = content.get("data", {}).get("text/plain", "")
            if msg["msg_type"] == "stream":
                output = content["text"] if content["name"] == "stdout" else ""
                if output:
                    # the kernel may send a line in parts, and only the first is its beginning
                    inside_line, self.inside_line = self.inside_line, None
                    if not output.endswith("\n"):
                        self.inside_line = cell_index
                    if inside_line == cell_index:
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
