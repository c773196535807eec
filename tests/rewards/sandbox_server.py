"""An example of a service for RemoteSandbox: `python -m tests.rewards.sandbox_server` listens on
127.0.0.1 and says where.
"""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from helpers.rewards.code.remote import answer


class Handler(BaseHTTPRequestHandler):
    """POST /run: programs in, outcomes out.

    What is wrong with a request comes back as text, with the status 400.
    """

    def do_POST(self) -> None:
        """Run the programs of one request."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, text = (200, answer(body)) if self.path == "/run" else (404, b"POST /run")
        except ValueError as error:
            status, text = 400, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *given) -> None:
        """Nothing: a request is no news."""


def serve() -> ThreadingHTTPServer:
    """A server on a free port of 127.0.0.1; the caller runs its serve_forever and ends it."""
    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


if __name__ == "__main__":
    with serve() as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()
