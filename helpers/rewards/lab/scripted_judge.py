"""A judge without a model: an HTTP server that answers as a language model would, by a function.

It reads the requests of `helpers.rewards.judge` as a model would, with an opinion that is known. So
it shows what a way of judging does to a group, and what reaches a judge.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

_MARK = re.compile(r"^The code of the marks is (\w+)\.$", re.M)


@contextmanager
def scripted_judge(opinion: Callable[[str, str], float]) -> Iterator[str]:
    """The address of a judge on this machine, until the block is left.

    opinion: from 0.0 to 1.0, of a text and a criterion. Asked for a score, the judge rounds its
    opinion to whole points; asked for an order, it sorts by it; asked for criteria, it says true
    from 0.5 on. The criterion is "" but for the last.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = json.dumps(_answered(json.loads(body), opinion))
            message = {"role": "assistant", "content": answer}
            reply = json.dumps({"choices": [{"message": message}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def completions_in(request: dict) -> dict[str, str]:
    """The completions in a request by their marks; one that stands alone has the mark ""."""
    text = request["messages"][-1]["content"]
    (code,) = _MARK.findall(text)
    block = re.compile(rf"^\[{code} (\S+) ?(\w*)\]\n(.*?)\n\[end of {code} \1 ?\2\]$", re.M | re.S)
    return {mark: part for name, mark, part in block.findall(text) if name == "completion"}


def _answered(request: dict, opinion: Callable[[str, str], float]) -> dict:
    """What the judge answers: the fields that the request's JSON Schema asks for."""
    fields = request["response_format"]["json_schema"]["schema"]["properties"]
    texts = completions_in(request)
    if "order" in fields:
        return {"order": sorted(texts, key=lambda mark: opinion(texts[mark], ""), reverse=True)}
    (text,) = texts.values()
    if "score" in fields:
        return {"score": round(opinion(text, "") * max(fields["score"]["enum"]))}
    criteria = dict(re.findall(r"^(\d+)\. (.*)$", request["messages"][0]["content"], re.M))
    return {number: opinion(text, criteria[number]) >= 0.5 for number in fields}
