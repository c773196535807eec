"""What a judge may cost, what it keeps, and the key that nobody sees."""

import json
import pickle
import warnings

import pytest
from judging import RUBRIC, by_length, judge_of, run, said, score, unjudged, waits

from helpers.rewards import JudgeReward
from helpers.rewards.lab import Lab

KEY = "sk-a-secret-of-the-test"
THREE = ["one", "two", "three"]


# --- The budget -----------------------------------------------------------------------------------


def test_a_budget_in_calls_is_never_passed(serve):
    server = serve(score(10))
    judge = judge_of(server, budget_calls=5, parallel=8)
    scores, told = unjudged(judge, [f"text {n}" for n in range(12)])
    assert (
        len(server.requests) == 5 == judge.calls
        and scores.count(1.0) == 5
        and scores.count(None) == 7
    )
    assert "7 × the budget of 5 calls is spent" in told
    assert unjudged(judge, ["another"])[0] == [None] and len(server.requests) == 5


def test_calls_that_fail_are_spent_too(serve):
    server = serve((500, {}, b""))
    judge = judge_of(server, budget_calls=3, retries=4)
    assert (
        "the budget of 3 calls is spent" in unjudged(judge, ["x"])[1] and len(server.requests) == 3
    )
    assert judge.tokens == 0


@pytest.mark.parametrize("tokens", [500, None, "many", -3, True])
def test_a_budget_in_tokens_stops_before_it_is_passed(serve, tokens):
    """The server says how many it took; where it does not, what was set aside counts as taken."""
    server = serve(said({"score": 10}, tokens))
    judge = judge_of(server, budget_tokens=6000, parallel=2, max_tokens=100)
    scores, told = unjudged(judge, [f"text {n}" for n in range(40)])
    taken = 500 if tokens == 500 else judge.tokens // len(server.requests)
    assert taken * len(server.requests) == judge.tokens <= 6000
    assert 1 < len(server.requests) == scores.count(1.0) < 13 and "no room for another call" in told
    assert taken == 500 or taken > len(json.dumps(server.requests[0], ensure_ascii=False)) + 100


def test_a_limit_among_the_options_is_set_aside_as_well(serve):
    server = serve(score(10))
    judge = judge_of(
        server, budget_tokens=9000, options={"max_tokens": None, "max_completion_tokens": 9000}
    )
    assert unjudged(judge, ["x"])[0] == [None] and server.requests == []


def test_what_a_time_out_took_stays_spent(serve):
    judge = judge_of(serve(lambda *asked: waits), retries=0)
    unjudged(judge, ["x"])
    assert judge.calls == 1 and judge.tokens > 1000


def test_several_processes_share_the_budget(serve, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    server = serve(score(10))
    assert (
        unjudged(judge_of(server, budget_calls=5), THREE)[0].count(None) == 1
        and len(server.requests) == 2
    )


def test_a_resumed_run_does_not_spend_it_twice_and_a_trial_gives_nothing_back(serve):
    server = serve(score(10))
    judge = judge_of(server, budget_calls=4)
    Lab([judge], [1.0]).scores(["a", "b"])  # the laboratory restores the state of what it tries
    assert judge.calls == 2
    resumed = judge_of(server, budget_calls=4)
    resumed.load_state_dict(json.loads(json.dumps(judge.state_dict())))
    assert resumed.state_dict() == {"calls": 2, "tokens": 100}
    assert unjudged(resumed, THREE)[0].count(None) == 1 and len(server.requests) == 4
    resumed.load_state_dict(judge.state_dict())
    assert resumed.calls == 4


# --- The cache ------------------------------------------------------------------------------------


def test_what_was_judged_is_not_asked_again(serve, tmp_path):
    server = serve(by_length)
    assert run(judge_of(server, cache=tmp_path / "kept"), ["a", "bb"]) == [0.1, 0.2]
    assert run(judge_of(server, cache=tmp_path / "kept", budget_calls=0), ["bb", "a"]) == [0.2, 0.1]
    assert len(server.requests) == 2
    others = [{"max_tokens": 99}, {"points": 20}, {"explain": True}]
    for number, other in enumerate(others, start=3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without a reason, explain=True has no answer
            run(judge_of(server, cache=tmp_path / "kept", **other), ["a"])
        assert len(server.requests) == number, other
    run(JudgeReward(server.url, "judge", "Another rubric.", cache=tmp_path / "kept"), ["a"])
    run(JudgeReward(server.url, "another", RUBRIC, cache=tmp_path / "kept"), ["a"])
    assert len(server.requests) == 7


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[]",
        "null",
        '{"score": 11}',
        '{"score": "3"}',
        '{"reason": ""}',
        "[" * 10**5,
        b"\xff",
    ],
)
def test_a_damaged_entry_is_asked_anew_and_mended(serve, tmp_path, broken):
    server = serve(score(3))
    judge = judge_of(server, cache=tmp_path)
    run(judge, ["a"])
    (entry,) = tmp_path.rglob("*.json")
    entry.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
    assert run(judge, ["a"]) == [0.3] and run(judge, ["a"]) == [0.3] and len(server.requests) == 2
    assert [path.name for path in tmp_path.rglob("*.*")] == [entry.name], (
        "nothing half written is left"
    )


def test_failures_are_not_kept(serve, tmp_path):
    server = serve(lambda request, number: score(11) if number == 0 else score(3))
    judge = judge_of(server, cache=tmp_path)
    assert unjudged(judge, ["a"])[0] == [None] and run(judge, ["a"]) == [0.3]


def test_a_cache_that_cannot_be_written_is_told_and_costs_no_score(serve, tmp_path):
    (tmp_path / "file").write_text("")
    judge = judge_of(serve(score(3)), cache=tmp_path / "file")
    with pytest.warns(UserWarning, match="judge_reward: 1 verdicts could not be kept in .*file"):
        assert run(judge, ["a"]) == [0.3]


# --- The key --------------------------------------------------------------------------------------


def test_the_key_is_sent_and_nowhere_else_to_be_seen(serve, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("A_KEY", f" {KEY}\n")
    echo = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}."}}).encode()
    server = serve(lambda request, number: score(1) if number == 0 else (401, {}, echo))
    judge = judge_of(server, key_variable="A_KEY", cache=tmp_path)
    assert run(judge, ["x"]) == [0.1]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    scores, told = unjudged(judge, ["y"])
    assert scores == [None] and "HTTP 401: Incorrect API key provided: ***." in told
    seen = [
        told,
        repr(judge.__dict__),
        str(judge.state_dict()),
        *capsys.readouterr(),
        *(p.read_text() for p in tmp_path.rglob("*.json")),
    ]
    assert not any(KEY in text for text in seen) and KEY.encode() not in pickle.dumps(judge)


@pytest.mark.parametrize("key", ["", "  ", "a b", "schlüssel", "a\nb"])
def test_a_key_that_is_not_there_or_cannot_be_sent_is_refused_unseen(monkeypatch, key):
    monkeypatch.setenv("A_KEY", key)
    with pytest.raises(ValueError, match="A_KEY") as refused:
        JudgeReward("http://127.0.0.1:1", "judge", RUBRIC, key_variable="A_KEY")
    assert not key.strip() or key not in str(refused.value)


def test_a_key_that_a_server_repeats_is_hidden_wherever_it_stands(serve, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    said_back = json.dumps({"error": {"message": "x" * 190 + KEY}}).encode()
    told = unjudged(judge_of(serve((400, {}, said_back)), key_variable="JUDGE_KEY"), ["x"])[1]
    assert "sk-" not in told and "HTTP 400" in told


def test_a_compressed_reply_is_refused_unread(serve):
    server = serve((200, {"Content-Encoding": "gzip"}, b"\x1f\x8b" + b"0" * 100))
    assert "a compressed reply" in unjudged(judge_of(server, retries=0), ["x"])[1]
    assert server.headers[0]["Accept-Encoding"] == "identity"


def test_another_server_with_the_same_model_is_asked_anew(serve, tmp_path):
    one, other = serve(score(10)), serve(score(0))
    assert run(judge_of(one, cache=tmp_path), ["x"]) == [1.0]
    assert run(judge_of(other, cache=tmp_path), ["x"]) == [0.0]


def test_a_budget_in_tokens_needs_a_limit_to_an_answer(serve):
    with pytest.raises(ValueError, match="needs a limit to each answer"):
        judge_of(serve(score(1)), budget_tokens=1000, options={"max_tokens": None})
