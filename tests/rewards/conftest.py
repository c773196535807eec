import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace

import pytest


@pytest.fixture
def serve():
    """serve(answer) starts an HTTP server in this process. It has its `url`, and in the end `asked`,
    the requests as (path, headers, body).

    answer: (status, body, headers), None for a connection that is dropped, or what gives one of
    them for a request and its number.
    """
    servers = []

    def start(answer) -> SimpleNamespace:
        asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                asked.append((self.path, self.headers, body))
                reply = answer(body, len(asked) - 1) if callable(answer) else answer
                if reply is None:
                    return
                status, content, headers = reply
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

        server = Server(("127.0.0.1", 0), Handler)
        servers.append(server)
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}", asked=asked)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
