"""What is said where the hub does not give a model's files: the real client library, asking a hub
of the test's own.
"""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from helpers import PROJECT

# As the hub answers: its client tells the cases apart by the status and by this header.
ANSWERS = {
    "gated": (403, "GatedRepo"),
    "moved": (404, "RepoNotFound"),
    "private": (401, ""),
}
ASK = """
import sys
from helpers.data.sources import model_files
from helpers.training.memory import shape_of
for ask in (model_files, shape_of):
    try:
        ask(sys.argv[1])
    except ValueError as error:
        print(error)
"""


class Hub(BaseHTTPRequestHandler):
    """Knows no model; why not is in the name that is asked for."""

    def do_GET(self):
        """Answer with the status of the case."""
        status, code = next(
            (answer for case, answer in ANSWERS.items() if case in self.path), (404, "")
        )
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, *args):
        """Nothing."""


@pytest.fixture(scope="module")
def hub():
    """The address of such a hub."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("model", "more", "said"),
    [
        (
            "me/gated",
            {},
            "the model is gated. Accept its terms on its page at the hub, and set HF_TOKEN to a "
            "token",
        ),
        ("me/gated", {}, "(HF_TOKEN is not set)"),
        ("me/gated", {"HF_TOKEN": "hf_x"}, "(the account of HF_TOKEN has not done so)"),
        (
            "me/moved",
            {},
            "has moved: look up its present name and give it with `-p model=OWNER/NAME`",
        ),
        (
            "me/private",
            {"HF_TOKEN": "hf_old"},
            "the hub answers 401. After 401 or 403 look at HF_TOKEN",
        ),
        (
            "me/mine",
            {"HF_HUB_OFFLINE": "1"},
            "it is not on this machine, and the hub cannot be reached",
        ),
    ],
)
def test_the_one_reason_is_said_and_the_way_out(hub, tmp_path, model, more, said):
    own = {
        "HF_ENDPOINT": hub,
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "0",
        "PYTHONPATH": str(PROJECT),
    }
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HF_", "HUGGING")) and "proxy" not in name.lower()
    }
    command = [sys.executable, "-c", ASK, model]
    done = subprocess.run(
        command, cwd=tmp_path, env=kept | own | more, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    tokenizer, shape = done.stdout.splitlines()
    assert (
        tokenizer.startswith(f"the tokenizer of '{model}' could not be fetched")
        and said in tokenizer
    )
    assert shape.startswith(f"the model '{model}' could not be fetched") and said in shape
