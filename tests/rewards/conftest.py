import pytest
from judging import Server


@pytest.fixture
def serve():
    """serve(answer) starts a server; all are closed in the end."""
    servers = []

    def start(answer) -> Server:
        servers.append(Server(answer if callable(answer) else lambda request, number: answer))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
