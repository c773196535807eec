"""Plain data leaves the sandbox of CPython as JSON: values arrive as they were, and nothing else
passes.
"""

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.rewards.code import driver
from helpers.rewards.code.jobs import other_than_plain
from helpers.rewards.code.sandlock import plain_data

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False, allow_infinity=False)
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
tried = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@tried
@given(PLAIN)
def test_values_arrive_as_they_were(value):
    back = plain_data(json.dumps(driver.plain(value)))
    assert repr(back) == repr(value) or back == value


@tried
@given(st.text(alphabet='[]{}",:.-1e9 tuplesdicby', max_size=30))
def test_any_text_is_plain_data_or_refused(text):
    try:
        value = plain_data(text)
    except ValueError:
        return
    assert other_than_plain(value) == ""


@pytest.mark.parametrize("kind", [set, frozenset, dict.fromkeys, Counter])
def test_a_set_that_is_too_large_is_refused_before_it_is_built(kind):
    with pytest.raises(ValueError, match="more than 4000 items"):
        plain_data(json.dumps(driver.plain([kind(range(4001))])))
    assert len(plain_data(json.dumps(driver.plain(kind(range(4000)))))) == 4000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[1",
        "{}",
        '{"list": [1]}',
        '{"range": [3]}',
        '{"tuple": 3}',
        '{"tuple": [], "set": []}',
        '{"bytes": 1000000000000}',
        '{"bytes": [256]}',
        '{"set": [[]]}',
        '{"dict": [1]}',
        '{"complex": [1, 2, 3]}',
        "[" * 5000 + "]" * 5000,
        "[" * 102 + "]" * 102,
        "9" * 5000,
    ],
)
def test_what_the_driver_never_writes_is_refused(text):
    with pytest.raises(ValueError):
        plain_data(text)
