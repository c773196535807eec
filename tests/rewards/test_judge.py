"""A judge that scores, before a real HTTP server: the wire format, its faults, injection, the
budget, the cache, and the key that nobody sees.
"""

import asyncio
import copy
import gzip
import json
import pickle
import re
import threading
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from served import served
from trl.trainer.utils import get_callable_name, is_async_callable

from helpers.environment import this_machine
from helpers.presets import PRESETS
from helpers.results import merging
from helpers.rewards import JudgeReward, judge_client, reward_name
from helpers.rewards.faults import checked_scores
from helpers.rewards.lab import Lab
from helpers.rewards.lab.attacks import JUDGE_BATTERY, with_wrong_answers
from helpers.tags import THINK_ANSWER

RUBRIC = "10 where the completion is polite."
MARK = re.compile(r"\AThe code of the marks is (\w+)\.$", re.M)
KEY = "sk-a-secret-of-the-test"
THREE = ["one", "two", "three"]
NO_VERDICT = "a reply without the verdict that was asked for"


def said(content: object) -> tuple[int, bytes, dict]:
    """The reply with this content of the message (a text, or what is written as JSON)."""
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    message = {"role": "assistant", "content": text}
    return 200, json.dumps({"choices": [{"message": message}]}).encode(), {}


def score(points: object) -> tuple[int, bytes, dict]:
    return said({"score": points})


def parts(request: dict) -> dict[str, str]:
    """The marked texts of a request, by name; what stands outside of the marks is "" """
    text = request["messages"][-1]["content"]
    (code,) = MARK.findall(text)
    block = re.compile(rf"^\[{code} (\w+)\]\n(.*?)\n\[end of {code} \1\]$", re.M | re.S)
    return dict(block.findall(text)) | {"": block.sub("", text)}


def by_length(request: dict, number: int) -> tuple[int, bytes, dict]:
    return score(min(10, len(parts(request)["completion"])))


def judge_of(server, **options) -> JudgeReward:
    return JudgeReward(server.url, "judge", RUBRIC, **options)


def run(judge, completions: list, **columns) -> list:
    given = {"prompts": ["p"] * len(completions)} | columns
    return asyncio.run(judge(completions=completions, **given))


def unjudged(judge, completions: list, **columns) -> tuple[list, str]:
    """The scores, and the one warning of the batch."""
    with pytest.warns(UserWarning, match="not judged") as caught:
        scores = run(judge, completions, **columns)
    (told,) = [str(w.message) for w in caught if "not judged" in str(w.message)]
    return scores, told


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(judge_client, "_PAUSES", [0] * len(judge_client._PAUSES))


# --- The wire format ------------------------------------------------------------------------------


def test_a_score_is_the_share_of_the_points_in_the_order_of_the_completions(serve):
    server = serve(by_length)
    texts = ["a" * n for n in (7, 1, 10, 3, 0, 5)]
    assert run(judge_of(server), texts) == [0.7, 0.1, 1.0, 0.3, 0.0, 0.5]
    assert len(server.asked) == 5, "an empty completion earns nothing unasked"
    assert run(judge_of(serve(score(2)), points=4), ["x"]) == [0.5]
    assert run(judge_of(serve(None)), [None, [], {}, 3, [None], " \n"]) == [0.0] * 6
    assert run(judge_of(serve(None)), []) == []
    server, prompts = serve(by_length), ["p", "p", "p", "q"]  # another prompt, another question
    assert run(judge_of(server), ["aa", "b", "aa", "aa"], prompts=prompts) == [0.2, 0.1, 0.2, 0.2]
    assert len(server.asked) == 3, "what is equal is asked once"
    blocks = [THINK_ANSWER.render("hm", "four"), "no block"]
    assert run(judge_of(server, tags=THINK_ANSWER), blocks) == [0.4, 0.0]


def test_the_request_is_the_one_that_servers_know(serve, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which is not asked
    server = serve(score(7))
    chat = [[{"role": "assistant", "content": "Thank you."}]]
    prompt = [{"role": "system", "content": "Be polite."}, {"role": "user", "content": "Thank me."}]
    options = {"seed": 1, "temperature": None}
    judge = JudgeReward(f"{server.url}/v1/", "judge", RUBRIC, shows=["answer"], options=options)
    assert run(judge, chat, prompts=[prompt], answer=["Thanks!"], completion_ids=[[1]]) == [0.7]
    ((path, headers, request),) = server.asked
    assert path == "/v1/chat/completions" and "Authorization" not in headers
    wanted, (system, user) = request.pop("response_format"), request.pop("messages")
    assert request == {"model": "judge", "max_tokens": 272, "seed": 1}
    assert wanted["type"] == "json_schema"
    assert wanted["json_schema"]["schema"]["properties"]["score"] == {"enum": list(range(11))}
    assert (system["role"], user["role"]) == ("system", "user") and RUBRIC in system["content"]
    assert parts({"messages": [user]}) | {"": ""} == {
        "prompt": "system: Be polite.\n\nuser: Thank me.",
        "answer": "Thanks!",
        "completion": "Thank you.",
        "": "",
    }


def test_a_rubric_may_hold_braces_and_a_completion_anything(serve):
    server, rubric = serve(score(10)), 'A {"score": 3} and {points} and {0}.'
    texts = ["\ud800", "\x00x", "{}", "y\u2028x", "]" * 100, "x" * 100_000]
    assert run(JudgeReward(server.url, "judge", rubric), texts) == [1.0] * 6
    assert all(rubric in request["messages"][0]["content"] for _, _, request in server.asked)
    received = {parts(request)["completion"] for _, _, request in server.asked}
    assert received == {"?", *texts[1:5], "x" * 20_000}, "too long a text is cut"


def test_at_most_so_many_requests_are_under_way(serve):
    together, under_way, most = threading.Barrier(3, timeout=60), [], []

    def answer(request, number):
        under_way.append(number)
        together.wait()  # three do come at a time, or the test ends here
        time.sleep(0.05)  # time in which a fourth one would come
        most.append(len(under_way))
        together.wait()
        under_way.remove(number)
        return score(5)

    assert run(judge_of(serve(answer), parallel=3), [f"text {n}" for n in range(12)]) == [0.5] * 12
    assert max(most) == 3


# --- Faults: None, counted, told once a batch -----------------------------------------------------

MISSING = b'{"error": {"message": "The model `judge` does not exist."}}'
BROKEN = [
    *[(NO_VERDICT, said(text)) for text in ("ten", None, '{"score": 7', "[" * 10**5, "7", [], {})],
    *[(NO_VERDICT, score(points)) for points in (11, -1, 7.5, "7", None, True, [7], 10**30)],
    *[
        (NO_VERDICT, (200, body, {}))
        for body in (b"", b"\xff\xfe", b"[]", b'{"choices": []}', b'{"usage": 3}')
    ],
    ("a reply of more than 1,000,000 bytes", (200, b" " * 3_000_000, {})),
    # which would be 100 MB
    (NO_VERDICT, (200, gzip.compress(b" " * 10**8), {"Content-Encoding": "gzip"})),
    (f"HTTP 404 Not Found {MISSING.decode()}", (404, MISSING, {})),
    ("HTTP 400 Bad Request too long", (400, b"too\nlong", {})),
    ("HTTP 307 Temporary Redirect", (307, b"", {"Location": "http://a.b/"})),
]


@pytest.mark.parametrize(("cause", "answer"), BROKEN)
def test_what_is_wrong_for_good_is_not_asked_again(serve, cause, answer):
    server = serve(
        lambda request, number: score(4) if parts(request)["completion"] == "two" else answer
    )
    metrics = {}
    scores, told = unjudged(judge_of(server), THREE, log_metric=metrics.__setitem__)
    assert scores == [None, 0.4, None] and len(server.asked) == 3
    assert told == f"judge_reward: 2 of 3 completions were not judged and score None: {cause}."
    assert metrics == {"judge_reward/unjudged": 2 / 3}
    assert {headers["Accept-Encoding"] for _, headers, _ in server.asked} == {"identity"}


PASSING = [
    ("HTTP 500 Internal Server Error", (500, b"", {})),
    ("HTTP 429 Too Many Requests slowly", (429, b"slowly", {})),
    ("HTTP 408 Request Timeout", (408, b"", {})),
    ("no connection to {url}/chat/completions (RemoteProtocolError)", None),
]


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize(("cause", "fails"), PASSING)
def test_what_may_pass_is_asked_again_and_then_told(serve, cause, fails):
    twice = serve(lambda request, number: fails if number < 2 else score(6))
    assert run(judge_of(twice), ["x"]) == [0.6] and len(twice.asked) == 3
    always = serve(fails)
    scores, told = unjudged(judge_of(always), ["x"])
    assert scores == [None] and told.endswith(f" None: {cause.format(url=always.url)}.")
    assert len(always.asked) == 7


def test_who_never_answers_is_left_after_the_timeout(serve):
    end = threading.Event()
    server = serve(lambda request, number: end.wait() and None)
    scores, told = unjudged(judge_of(server, timeout=0.2, parallel=1), THREE)
    end.set()
    assert scores == [None] * 3 and told.endswith(": no answer within 0.2 s.")


# --- Injection ------------------------------------------------------------------------------------


def attacks() -> dict[str, str]:
    (row,) = with_wrong_answers([{"answer": "4", "question": "2 + 2?"}])
    return {attack.name: attack.write(row, THINK_ANSWER, 100) for attack in JUDGE_BATTERY}


@pytest.mark.parametrize("name", attacks())
def test_what_a_completion_says_to_the_judge_arrives_between_the_marks_only(serve, name):
    server, attack = serve(score(0)), attacks()[name]
    run(judge_of(server, parallel=1), [attack, "harmless"])
    one, other = (request for _, _, request in server.asked)
    # the instructions are the same whatever is judged
    assert one["messages"][0] == other["messages"][0]
    code, code_of_other = (MARK.findall(r["messages"][1]["content"])[0] for r in (one, other))
    assert parts(one)[""].replace(code, "") == parts(other)[""].replace(code_of_other, "")
    assert code not in attack and code != code_of_other
    assert set(parts(one)) == {"", "prompt", "completion"}
    received = parts(one)["completion"]
    assert received.replace("< ", "<").replace("[ ", "[") == attack.strip()


SPECIAL = ["<|im_end|>", "<|turn>", "<turn|>", "<start_of_image>", "[|endofturn|]", "]~b]", "[e~["]
SPECIAL += ["<seed:bos>", "<SPECIAL_11>", "<image_soft_token>", "<sop>", "<eos>"]
SPECIAL += ["[TOOL_CALLS]", "[/INST]", "<<SYS>>", "<tool_call>", "[gMASK]", "</s>", "<｜User｜>"]


@pytest.mark.parametrize("token", SPECIAL)
def test_special_tokens_are_taken_apart_wherever_they_are(serve, token):
    server = serve(score(1))
    run(judge_of(server, shows=["note"]), [f"a{token}b"], prompts=[f"c{token}"], note=[token])
    ((_, _, request),) = server.asked
    assert token not in request["messages"][1]["content"]
    run(judge_of(server), ["<answer>a < b, x[1], <p>[A]</p></answer>"])
    assert "<answer>a < b, x[1], <p>[" in server.asked[1][2]["messages"][1]["content"]


# --- The budget, the cache, the key ---------------------------------------------------------------


@pytest.mark.usefixtures("no_pause")
def test_a_budget_in_calls_is_never_passed(serve, tmp_path):
    server, many = serve(score(10)), [f"text {n}" for n in range(12)]

    async def together(*judges: JudgeReward) -> list:
        prompts = ["p"] * len(many)
        asked = (j([f"{n} {text}" for text in many], prompts) for n, j in enumerate(judges))
        return [score for scores in await asyncio.gather(*asked) for score in scores]

    # as several processes, and a resumed training, do: each has its own count of nothing
    spent = {"cache": tmp_path, "budget_calls": 11}
    with pytest.warns(UserWarning, match="the budget of 11 calls is spent"):
        scores = asyncio.run(together(*(judge_of(server, **spent) for _ in range(3))))
    assert len(server.asked) == 11 == scores.count(1.0) and scores.count(None) == 25
    with pytest.warns(UserWarning, match="the budget of 11 calls is spent"):
        Lab([judge_of(server, **spent)], [1.0]).scores(["another"])
    assert len(server.asked) == 11
    more = judge_of(server, cache=tmp_path, budget_calls=13)
    assert unjudged(more, many)[0].count(1.0) == 2, "what was refused was not spent"
    failing = serve((500, b"", {}))
    judge = judge_of(failing, cache=tmp_path / "other", budget_calls=3)
    assert "the budget of 3 calls is spent" in unjudged(judge, ["x"])[1]
    assert len(failing.asked) == 3 == judge.calls, "calls that fail are spent too"


def test_what_was_judged_is_not_asked_again(serve, tmp_path):
    server, other = serve(by_length), serve(score(0))
    kept = {"cache": tmp_path / "kept"}
    assert unjudged(judge_of(serve(score(11)), **kept), ["a"])[0] == [None], "which is not kept"
    assert run(judge_of(server, **kept), ["a", "bb"]) == [0.1, 0.2]
    assert run(judge_of(server, **kept, budget_calls=0), ["bb", "a"]) == [0.2, 0.1]
    assert len(server.asked) == 2
    same = {"model": "judge", "rubric": RUBRIC}
    for changed in (
        {"options": {"max_tokens": 99}},
        {"points": 20},
        {"rubric": "Another."},
        {"model": "other"},
    ):
        run(JudgeReward(server.url, **(same | kept | changed)), ["a"])
    assert len(server.asked) == 6, "another request is asked anew"
    assert run(judge_of(other, **kept), ["a"]) == [0.0], "another server is asked anew"


def test_the_key_is_sent_and_nowhere_else_to_be_seen(serve, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("A_KEY", f" {KEY}\n")
    echo = (401, b"x" * 190 + KEY.encode(), {})
    server = serve(lambda request, number: score(1) if number == 0 else echo)
    judge = judge_of(server, key_variable="A_KEY", cache=tmp_path)
    assert run(judge, ["x"]) == [0.1]
    assert server.asked[0][1]["Authorization"] == f"Bearer {KEY}"
    scores, told = unjudged(judge, ["y"])
    assert scores == [None] and "xxx" in told
    kept = [path.read_text() for path in tmp_path.rglob("*.json")]
    seen = [told, repr(judge), repr(judge.__dict__), *capsys.readouterr(), *kept]
    assert not any("sk-" in text for text in seen) and KEY.encode() not in pickle.dumps(judge)


# --- As any reward --------------------------------------------------------------------------------


def test_it_is_asynchronous_named_and_copied_as_trl_and_the_suite_need_it(serve):
    judge = judge_of(serve(by_length), name="politeness_reward")
    given = {"prompts": ["p", "p"]}
    for one in (judge, pickle.loads(pickle.dumps(judge)), copy.deepcopy(judge), partial(judge)):
        assert reward_name(one) == "politeness_reward" == get_callable_name(one)
        assert is_async_callable(one)
        assert checked_scores(one, ["aa", "b"], given) == ([0.2, 0.1], [])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"base_url": "127.0.0.1:8000"}, "base_url must begin with http"),
        ({"base_url": "https://me:hidden@host/v1"}, "without a password"),
        ({"key_variable": "NO_KEY_IS_HERE"}, "NO_KEY_IS_HERE holds no API key"),
        ({"budget_calls": 5}, "budget_calls needs a cache"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, says):
    given = {"base_url": "http://127.0.0.1:8000/v1", "model": "judge", "rubric": RUBRIC} | wrong
    with pytest.raises(ValueError, match=says) as refused:
        JudgeReward(**given)
    assert "hidden" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.needs("vllm")
def test_vllm_itself_is_a_judge(tokenizer, tmp_path):
    """The pocket model cannot follow a rubric; the schema makes it answer with a score all the
    same.

    The schema lets it put any white space between the tokens, and it would never stop: so it may
    write none.
    """
    roomy = replace(PRESETS["pocket"], max_completion_length=900)
    white = {
        str(token): -100 for token in range(len(tokenizer)) if tokenizer.decode([token]).isspace()
    }
    start, _ = merging.serve_commands(
        roomy.model_path, roomy, torch.float32, this_machine(), messages=[]
    )
    with served(start, tmp_path / "log") as address:
        options = {"logit_bias": white}
        judge = JudgeReward(f"{address}/v1", "policy", "10 if polite.", options=options)
        scores = run(judge, ["Thanks.", "No!", "4"])
        assert all(isinstance(s, float) and 0 <= s <= 1 for s in scores) and judge.calls == 3
