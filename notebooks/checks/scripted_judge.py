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

_MARK = re.compile(r"\AThe code of the marks is (\w+)\.$", re.M)


@contextmanager
def served(reply: Callable[..., tuple[int, bytes] | None]) -> Iterator[str]:
    """The address of an HTTP server on this machine, until the block is left.

    reply: (status, body) for the path, the headers and the JSON of a request; None drops the connection.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = reply(self.path, self.headers, json.loads(body))
            if answer is not None:
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(answer[1])))
                self.end_headers()
                self.wfile.write(answer[1])

        def log_message(self, *args):
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64  # else many at a time are turned away, and ask again

    server = Server(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def scripted_judge(opinion: Callable[[str, dict], float]) -> Iterator[str]:
    """The address of a judge on this machine, until the block is left.

    opinion: from 0.0 to 1.0, of a completion and of what is shown beside it, by name: the prompt,
    columns, and the `criterion`, which is None without a rubric of each row. Asked for points, the
    judge rounds its opinion to a whole number of them; asked for an order, it sorts by it.
    """

    def reply(path: str, headers: object, request: dict) -> tuple[int, bytes]:
        message = {"role": "assistant", "content": json.dumps(_answered(request, opinion))}
        return 200, json.dumps({"choices": [{"message": message}]}).encode()

    with served(reply) as address:
        yield address


def texts_in(request: dict) -> tuple[dict[str, str], dict[str, str]]:
    """The completions in a request by their marks, "" if there is one, and what is shown beside
    them by name.
    """
    text = request["messages"][-1]["content"]
    (code,) = _MARK.findall(text)
    block = re.compile(rf"^\[{code} (\w+) ?(\w*)\]\n(.*?)\n\[end of {code} \1 ?\2\]$", re.M | re.S)
    found = block.findall(text)
    return (
        {mark: part for name, mark, part in found if name == "completion"},
        {name: part for name, _, part in found if name != "completion"},
    )


def _answered(request: dict, opinion: Callable[[str, dict], float]) -> dict:
    """What the judge answers: the fields that the request's JSON Schema asks for."""
    fields = request["response_format"]["json_schema"]["schema"]["properties"]
    values = fields[next(iter(fields))]["enum"]
    texts, shown = texts_in(request)
    if values[0] in texts:  # the marks of a group
        order = sorted(texts, key=lambda mark: opinion(texts[mark], shown), reverse=True)
        return dict(zip(fields, order, strict=True))
    (text,) = texts.values()
    criteria = dict(re.findall(r"^(\d+)\. (.*)$", request["messages"][0]["content"], re.M))
    return {name: round(max(values) * opinion(text, shown | {"criterion": criteria.get(name)})) for name in fields}
