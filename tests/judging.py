"""A real HTTP server on 127.0.0.1 that speaks the wire format of /v1/chat/completions, well or
badly, as a test tells it.
"""

import asyncio
import json
import re
import socket
import threading
import warnings
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from helpers.rewards import JudgeReward

RUBRIC = "10 where the completion is polite."
MARK = re.compile(r"^The code of the marks is (\w+)\.$", re.M)


def said(content: object, tokens: object = 50, **more) -> tuple[int, dict, bytes]:
    """The reply with this content of the message (a text, or what is written as JSON)."""
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    choices = [
        {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    ]
    reply = {
        "id": "1",
        "object": "chat.completion",
        "model": "judge",
        "choices": choices,
        "usage": {"total_tokens": tokens},
    }
    return 200, {}, json.dumps(reply | more).encode()


def score(points: object) -> tuple[int, dict, bytes]:
    return said({"score": points})


def parts(request: dict) -> dict[str, str]:
    """The marked texts of a request, by name; what stands outside of the marks is "" """
    text = request["messages"][-1]["content"]
    (code,) = MARK.findall(text)
    found = dict(re.findall(rf"^\[{code} (\w+)\]\n(.*?)\n\[end of {code} \1\]$", text, re.M | re.S))
    outside = re.sub(rf"^\[{code} (\w+)\]\n.*?\n\[end of {code} \1\]$", "", text, flags=re.M | re.S)
    return found | {"": outside}


class Clock(asyncio.SelectorEventLoop):
    """A judge's loop, whose time a server lets pass: no test waits for a judge to run out
    of patience.
    """

    running, passed = None, 0.0

    def __init__(self):
        super().__init__()
        Clock.running = self

    def time(self) -> float:
        return super().time() + self.passed

    def let_pass(self, seconds: float) -> None:
        """From any thread."""
        self.call_soon_threadsafe(lambda: setattr(self, "passed", self.passed + seconds))


class Server:
    """answer(request, number) gives (status, headers, body), or does something else with the
    handler: see `closes`.

    In the end: `requests` as they came, `headers` and `paths` of each, and `most`, the number of
    them at one time.
    """

    def __init__(self, answer: Callable):
        self.answer, self.requests, self.headers, self.paths, self.most = answer, [], [], [], 0
        self.lock, self.now, self.over = threading.Lock(), 0, threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            server_version = "judging"

            def do_POST(handler):
                self.handle(handler)

            def log_message(handler, *arguments): ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads, self.http.handle_error = True, lambda *arguments: None
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(
            target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def handle(self, handler) -> None:
        request = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            number = len(self.requests)
            self.requests.append(request)
            self.headers.append(dict(handler.headers))
            self.paths.append(handler.path)
            self.now += 1
            self.most = max(self.most, self.now)
        answered = self.answer(request, number)
        with self.lock:
            self.now -= 1
        if callable(answered):
            return answered(self, handler)
        status, headers, body = answered
        handler.send_response(status)
        for name, value in (
            headers | {"Content-Length": str(len(body)), "Content-Type": "application/json"}
        ).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def close(self) -> None:
        self.over.set()
        self.http.shutdown()
        self.http.server_close()


def closes(server: Server, handler) -> None:
    """The connection is closed without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def waits(server: Server, handler) -> None:
    """No answer, as long as the test lasts, while a minute passes for the judge."""
    Clock.running.let_pass(60)
    server.over.wait()
    handler.close_connection = True


def drips(server: Server, handler) -> None:
    """An answer that never ends, a byte every two seconds of the judge's: no single wait
    is long.
    """
    handler.send_response(200)
    handler.end_headers()
    while not server.over.wait(0.02):
        handler.wfile.write(b" ")
        Clock.running.let_pass(2)


def floods(server: Server, handler) -> None:
    """An answer that never ends."""
    handler.send_response(200)
    handler.end_headers()
    while not server.over.is_set():
        handler.wfile.write(b" " * 65536)


def judge_of(server: Server, **options) -> JudgeReward:
    return JudgeReward(server.url, "judge", RUBRIC, **({"backoff": 0.001} | options))


def run(judge: JudgeReward, completions: list, **columns) -> list:
    with asyncio.Runner(loop_factory=Clock) as runner:
        return runner.run(judge(completions=completions, **columns))


def unjudged(judge: JudgeReward, completions: list, **columns) -> tuple[list, str]:
    """The scores, and the one warning of the batch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = run(judge, completions, **columns)
    (told,) = [str(w.message) for w in caught if "not judged" in str(w.message)]
    return scores, told


def by_length(request: dict, number: int):
    return score(min(10, len(parts(request)["completion"])))
