"""The wire between us and what runs inside sandlock: values arrive as they were sent, and nothing
else passes.
"""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.rewards.code.driver import decode, encode
from helpers.rewards.code.types import not_plain

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
