"""papermill's engine with one thing more: while a notebook runs, lines of its output that tell how
far it is are printed. Importing this registers it as the engine `helpers`.
"""

import logging
import sys

from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines
from tqdm import tqdm

# what a line that is printed begins with; NOT begins what 03 says of untested rewards
_PRINTED = ("step ", "data: ", "note: ", "NOT ")


class Client(PapermillNotebookClient):
    """papermill's client, which also prints the lines of `_PRINTED`."""

    def process_message(self, msg, cell, cell_index):
        """See nbclient's NotebookClient. papermill's own log leaves out what is updated in place,
        as a training's figure is.
        """
        content = msg["content"]
        if msg["msg_type"] in ("stream", "display_data", "update_display_data"):
            text = content.get("text") or content.get("data", {}).get("text/plain", "")
            for line in text.splitlines():
                if line.startswith(_PRINTED):
                    tqdm.write(f"    {line}")
                    sys.stdout.flush()
        return super().process_message(msg, cell, cell_index)


class Engine(NBClientEngine):
    """papermill's engine with this client."""

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, **kwargs):
        """See papermill's Engine."""
        quiet = ["--IPKernelApp.log_level=50"]  # a kernel's notices would land among the progress
        log = logging.getLogger("papermill")
        Client(nb_man, kernel_name=kernel_name, log=log, extra_arguments=quiet).execute()


papermill_engines.register("helpers", Engine)
