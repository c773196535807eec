"""The sandbox over HTTP: its wire format, the example of a service, and services that are not there
or answer nonsense.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.rewards.code import Job, not_plain, run_code
from helpers.rewards.code.driver import decode, encode
from helpers.rewards.code.remote import RemoteSandbox, answer
from tests.rewards.sandbox_server import serve
from tests.rewards.test_sandbox import SAME, SHORT, VALUES

# --- The wire -------------------------------------------------------------------------------------

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.recursive(
    LEAVES, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5
)
PLAIN = st.recursive(
    KEYS,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.tuples(inner)
        | st.sets(KEYS)
    ),
    max_leaves=9,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["int", "set", "dict", "float", "bytes", "complex", "x"]),
            inner,
            max_size=2,
        )
    ),
)


tried = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@tried
@given(PLAIN)
def test_the_wire_keeps_values(value):
    assert (
        repr(decode(json.loads(json.dumps(encode(value))))) == repr(value)
        or decode(encode(value)) == value
    )


@tried
@given(JSON)
def test_the_wire_reads_anything_or_says_so(data):
    try:
        value = decode(data)
    except ValueError as error:
        assert str(error)
    else:
        assert not_plain(value) is None


# --- Services -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service():
    with serve() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_service_gives_the_same_outcomes(service):
    jobs = [
        Job(SAME, "f", tuple((value,) for value in VALUES)),
        Job("print(input())", stdin="a"),
        Job("x ="),
        Job("import heapq"),
    ]
    jobs += [Job(f"def f():\n    return {at} // ({at} % 3)", "f", ((),)) for at in range(40)]
    assert repr(run_code(jobs, SHORT, RemoteSandbox(service))) == repr(run_code(jobs, SHORT))


def test_a_service_that_is_not_there_judges_nothing():
    [[first, second]] = run_code(
        [Job(SAME, "f", ((1,), (2,)))], SHORT, RemoteSandbox("http://127.0.0.1:9")
    )
    assert (
        first.kind == "unsupported"
        and "127.0.0.1:9 gave no answer" in first.message
        and second == first
    )
    with pytest.raises(ValueError, match="is not an address"):
        RemoteSandbox("127.0.0.1:8000")


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (500, b"down", "HTTP Error 500"),
        (200, b"<html>", "Expecting value"),
        (200, b"[]", "does not hold"),
        (200, b'{"outcomes": [[]]}', "does not hold"),
        (200, b'{"outcomes": [[{"kind": "passed"}]]}', "is no outcome"),
        (200, b'{"outcomes": [[{"kind": "value", "value": {"pickle": "x"}}]]}', "wire format"),
        (
            200,
            b'{"outcomes": [[{"kind": "value", "value": ' + b"[" * 5000 + b"]" * 5000 + b"}]]}",
            "",
        ),
        (200, b"9" * 9000, ""),
        (200, b" " * 900_000, "longer than"),
    ],
)
def test_a_service_that_answers_nonsense_judges_nothing(status, text, words):
    class Nonsense(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *given):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        [[outcome]] = run_code([Job(SAME, "f", ((1,),))], SHORT, RemoteSandbox(address))
        server.shutdown()
    assert outcome.kind == "unsupported" and words in outcome.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"jobs": [{}], "limits": {}}',
        b'{"jobs": [], "limits": {"seconds": -1}}',
        b"\xff",
    ],
)
def test_a_service_says_what_is_wrong_with_a_request(body):
    with pytest.raises(ValueError):
        answer(body)
