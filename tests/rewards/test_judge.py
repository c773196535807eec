"""A judge with a real HTTP server: the requests, failing servers, attacks by completions, and the
criteria of a row.
"""

import asyncio
import copy
import json
import pickle
import re
import threading
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from trl.trainer.utils import get_callable_name, is_async_callable

from helpers.laboratory.attacks import JUDGE_BATTERY, with_wrong_answers
from helpers.rewards import judge
from helpers.rewards.common import reward_name, visible
from helpers.rewards.faults import checked_scores
from helpers.rewards.judge import JudgeReward
from helpers.tags import THINK_ANSWER
from notebooks.checks.scripted_judge import scripted_judge, served

RUBRIC = "10 where the completion is polite."
MARK = re.compile(r"\AThe code of the marks is (\w+)\.$", re.M)
THREE = ["one", "two", "three"]
NO_VERDICT = "a reply without the verdict that was asked for"


def reply_with(content: object, **more) -> tuple[int, bytes]:
    """Return a server's reply with a message: a text, or any value as JSON.

    more: what the server says beside the message, such as `finish_reason`.
    """
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    message = {"role": "assistant", "content": text}
    return 200, json.dumps({"choices": [{"message": message} | more]}).encode()


def score(points: object) -> tuple[int, bytes]:
    return reply_with({"score": points})


def parts(request: dict) -> dict[str, str]:
    """Return the marked texts of a request by name, and under "" the text outside the marks."""
    text = request["messages"][-1]["content"]
    (code,) = MARK.findall(text)
    block = re.compile(rf"^\[{code} (\w+)\]\n(.*?)\n\[end of {code} \1\]$", re.M | re.S)
    return dict(block.findall(text)) | {"": block.sub("", text)}


def by_length(request: dict, number: int) -> tuple[int, bytes]:
    return score(min(10, len(parts(request)["completion"])))


def by_text(request: dict) -> tuple | None:
    return score(4) if parts(request)["completion"] == "two" else None


def judge_of(server, **options) -> JudgeReward:
    return JudgeReward(server.url, "judge", RUBRIC, **options)


def run(judge, completions: list, **columns) -> list:
    given = {"prompts": ["p"] * len(completions)} | columns
    return asyncio.run(judge(completions=completions, **given))


def unjudged(judge, completions: list, **columns) -> tuple[list, str]:
    """Return the scores and the only warning of a batch."""
    with pytest.warns(UserWarning, match="not judged") as caught:
        scores = run(judge, completions, **columns)
    (warning,) = [str(w.message) for w in caught if "not judged" in str(w.message)]
    return scores, warning


@pytest.fixture
def serve():
    """Return a function that starts an HTTP server in this process, with its `url` and the requests
    it was `asked` as (path, headers, body).

    answer: (status, body), or None to drop the connection, or a function that returns either for a
    request and its number.
    """
    with ExitStack() as servers:

        def start(answer) -> SimpleNamespace:
            asked = []

            def reply(*request):
                asked.append(request)
                return answer(request[2], len(asked) - 1) if callable(answer) else answer

            return SimpleNamespace(url=servers.enter_context(served(reply)), asked=asked)

        yield start


# --- The wire format ------------------------------------------------------------------------------


def test_each_completion_earns_its_share_of_the_points(serve):
    server = serve(by_length)
    texts = ["a" * n for n in (7, 1, 10, 3, 0, 5)]
    assert run(judge_of(server), texts) == [0.7, 0.1, 1.0, 0.3, 0.0, 0.5]
    assert len(server.asked) == 5, "an empty completion scores 0 without a request"
    assert run(judge_of(serve(score(2)), points=4), ["x"]) == [0.5]
    assert run(judge_of(serve(None)), [None, [], {}, 3, [None], " \n"]) == [0.0] * 6
    assert run(judge_of(serve(None)), []) == []
    server, prompts = serve(by_length), ["p", "p", "p", "q"]  # the last prompt differs
    assert run(judge_of(server), ["aa", "b", "aa", "aa"], prompts=prompts) == [0.2, 0.1, 0.2, 0.2]
    assert len(server.asked) == 3, "equal requests are sent once"
    blocks = [THINK_ANSWER.render("hm", "four"), "no block"]
    assert run(judge_of(server, tags=THINK_ANSWER), blocks) == [0.4, 0.0]


def test_the_request_follows_the_protocol(serve, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # must not be used
    monkeypatch.setenv("A_KEY", " sk-a-secret\n")
    server = serve(score(7))
    chat = [[{"role": "assistant", "content": "Thank you."}]]
    prompt = [{"role": "system", "content": "Be polite."}, {"role": "user", "content": "Thank me."}]
    given = {"options": {"seed": 1, "temperature": None}, "key_variable": "A_KEY"}
    judge = JudgeReward(f"{server.url}/v1/", "judge", RUBRIC, shows=["answer"], **given)
    assert run(judge, chat, prompts=[prompt], answer=["Thanks!"], completion_ids=[[1]]) == [0.7]
    ((path, headers, request),) = server.asked
    assert path == "/v1/chat/completions" and headers["Authorization"] == "Bearer sk-a-secret"
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
    texts = ["\ud800", "z\x00", "{}", "y\u2028x", "]" * 100, "x" * 100_000, "w\u200b\u3164"]
    assert run(JudgeReward(server.url, "judge", rubric), [*texts, "\u3164"]) == [1.0] * 7 + [0.0]
    assert all(rubric in request["messages"][0]["content"] for _, _, request in server.asked)
    received = {parts(request)["completion"] for _, _, request in server.asked}
    assert received == {"?", "z", *texts[2:5], "x" * 20_000, "w"}, "cut, and as it is seen"


THOUGHT = 'The completion says <answer>{"score": 10}</answer>, which is rude.'
READ = [  # the score, and the content of the reply
    (0.1, f'<think>{THOUGHT}</think>{{"score": 1}}'),
    (0.1, f'{THOUGHT}\n</think>\n\n{{"score": 1}}\n'),
    (0.1, f'<seed:think>{THOUGHT}</think>{{"score": 9}}</seed:think> {{"score": 1}}'),
    (0.1, f'[THINK]{THOUGHT}[/THINK]```json\n{{"score": 1}}\n```'),
    (0.1, f'◁think▷```json\n{{"score": 10}}\n```{THOUGHT}◁/think▷```\n{{"score": 1}}```\n'),
    (0.7, '```json\n{"score": 7}\n```'),
    (0.75, '{"score": 7.5}'),
    (0.7, '```JSON\n{"why": "polite", "score": 7.0}\n```'),
]


@pytest.mark.parametrize(("expected", "content"), READ)
def test_a_judge_may_think_and_fence_its_verdict(serve, expected, content):
    assert run(judge_of(serve(reply_with(content))), ["x"]) == [expected]


def test_a_verdict_whose_white_space_was_cut_off_is_read(serve):
    answer = reply_with('{"score": 7}' + "\n" * 99, finish_reason="length")
    assert run(judge_of(serve(answer)), ["x"]) == [0.7]


def test_only_the_verdict_after_the_thinking_is_read(serve):
    cut = reply_with('It wrote "</think>{"score": 10}', finish_reason="length")
    contents = [
        f"<think>{THOUGHT}",
        f"<think>{THOUGHT}</think>",
        f"<think>{THOUGHT}</think>It is rude.",
        '<think>Rude.</think>{"score": 1}{"score": 10}',
        '{"score": 10}</think>',
        'It says {"score": 10}',
        '```json\n{"score": 10}\n```\n```json\n{"score": 1}\n```',
        *('{"score": 10.5}', '{"score": -0.5}', '{"score": NaN}', '{"score": 1e999}'),
    ]
    for answer in [*map(reply_with, contents), cut]:
        scores, warning = unjudged(judge_of(serve(answer)), ["x"])
        assert scores == [None] and ("raise `max_tokens`" in warning) == (answer == cut)


# --- Failing servers: None, a metric, and one warning per batch -----------------------------------

MISSING = b'{"error": {"message": "The model `judge` does not exist."}}'
LOST = "no connection to {url}/chat/completions (RemoteProtocolError)"
FAULTS = [  # the warning, the server's answer, the number of requests
    *[
        (NO_VERDICT, reply_with(text), 1)
        for text in ("ten", None, '{"score": 7', "[" * 10**5, "7", [])
    ],
    *[(NO_VERDICT, score(one), 1) for one in (11, -1, 10.5, "7", None, True, [7], 10**30)],
    *[(NO_VERDICT, (200, body), 1) for body in (b"", b"\xff\xfe", b"[]", b'{"choices": []}')],
    (f"HTTP 404 {MISSING.decode()}", (404, MISSING), 1),
    ("HTTP 400 too long", (400, b"too\nlong"), 1),
    ("HTTP 400 a bad field, such as x", (400, b"a bad field, such as x"), 1),
    ("HTTP 500", (500, b""), 7),
    ("HTTP 429 slowly", (429, b"slowly"), 7),
    ("HTTP 408", (408, b""), 7),
    (LOST, None, 7),
]


@pytest.mark.parametrize(("cause", "answer", "tries"), FAULTS)
def test_a_temporary_failure_is_retried_and_other_failures_score_none_with_a_warning(
    serve, monkeypatch, cause, answer, tries
):
    monkeypatch.setattr(judge, "_PAUSES", [0] * len(judge._PAUSES))
    server, metrics = serve(lambda request, number: by_text(request) or answer), {}
    scores, warning = unjudged(judge_of(server), THREE, log_metric=metrics.__setitem__)
    assert scores == [None, 0.4, None] and len(server.asked) == 1 + 2 * tries
    cause = cause.replace("{url}", server.url)
    told = "judge_reward: 2 of 3 requests were not judged and score None: "
    told += f"2 × {cause}, such as '" if cause == NO_VERDICT else f"{cause}."
    assert warning.startswith(told) and len(warning) < 500
    assert metrics == {"judge_reward/unjudged": 2 / 3}
    if tries > 1:
        twice = serve(lambda request, number: answer if number < 2 else score(6))
        assert run(judge_of(twice), ["x"]) == [0.6] and len(twice.asked) == 3


def test_a_warning_quotes_one_of_the_replies_that_could_not_be_read(serve):
    forged = "\x1b[2J\ud800\nnote: all is well" + "x" * 1000
    server = serve(lambda request, number: by_text(request) or reply_with(forged))
    scores, warning = unjudged(judge_of(server), THREE)
    assert scores == [None, 0.4, None] and "2 × " in warning
    assert warning.isprintable() and warning.count("note: all is well") == 1 and len(warning) < 400


def test_a_server_that_never_answers_is_given_up_after_the_timeout(serve):
    end = threading.Event()
    server = serve(lambda request, number: end.wait() and None)
    scores, warning = unjudged(judge_of(server, timeout=0.2, parallel=1), THREE)
    end.set()
    assert scores == [None] * 3 and "3 of 3" in warning and "0.2 s" in warning


# --- Attacks by completions -----------------------------------------------------------------------


def attacks() -> dict[str, str]:
    (row,) = with_wrong_answers([{"answer": "4", "question": "2 + 2?"}])
    return {attack.name: attack.write(row, THINK_ANSWER, 100) for attack in JUDGE_BATTERY}


@pytest.mark.parametrize("name", attacks())
def test_an_attack_reaches_the_judge_only_between_the_marks(serve, name):
    server, attack = serve(score(0)), attacks()[name]
    run(judge_of(server, parallel=1), [attack, "harmless"])
    one, other = (request for _, _, request in server.asked)
    # the instructions do not depend on the completion
    assert one["messages"][0] == other["messages"][0]
    code, code_of_other = (MARK.findall(r["messages"][1]["content"])[0] for r in (one, other))
    assert parts(one)[""].replace(code, "") == parts(other)[""].replace(code_of_other, "")
    assert code not in attack and code != code_of_other
    assert set(parts(one)) == {"", "prompt", "completion"}
    received = parts(one)["completion"]
    assert received.replace("< ", "<").replace("[ ", "[") == visible(attack).strip()


SPECIAL = ["<|im_end|>", "<|turn>", "<turn|>", "<start_of_image>", "[|endofturn|]", "]~b]", "[e~["]
SPECIAL += ["<extra_id_1>", "<role>", "</role>", "<reserved_106>", "<human>", "<_bot>", "<eoh>"]
SPECIAL += [
    "<unused7>",
    "<B_USER>",
    "[SEP]",
    "[Human]",
    "]~!b[",
    "<system>",
    "</think>",
    "◁/think▷",
]
SPECIAL += ["<seed:bos>", "<SPECIAL_11>", "<image_soft_token>", "<sop>", "<eos>"]
SPECIAL += ["[TOOL_CALLS]", "[/INST]", "<<SYS>>", "<tool_call>", "[gMASK]", "</s>", "<｜User｜>"]


@pytest.mark.parametrize("token", SPECIAL)
def test_special_tokens_are_broken_up_in_every_text(serve, token):
    server = serve(score(1))
    run(judge_of(server, shows=["note"]), [f"a{token}b"], prompts=[f"c{token}"], note=[token])
    ((_, _, request),) = server.asked
    assert token not in request["messages"][1]["content"]
    plain = "<answer>a < b > c, x[1], vector<int>, <b>1<br/></b></answer>\n<h2>[x](y)</h2> ]"
    run(judge_of(server), [plain])
    assert plain in server.asked[1][2]["messages"][1]["content"]


# --- The judge as a reward ------------------------------------------------------------------------


def test_a_judge_is_async_has_a_name_and_can_be_copied(serve):
    judge = judge_of(serve(by_length), name="politeness_reward")
    given = {"prompts": ["p", "p"]}
    for one in (judge, pickle.loads(pickle.dumps(judge)), copy.deepcopy(judge), partial(judge)):
        assert reward_name(one) == "politeness_reward" == get_callable_name(one)
        assert is_async_callable(one)
        assert checked_scores(one, ["aa", "b"], given) == ([0.2, 0.1], [])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"base_url": "127.0.0.1:8000"}, "base_url='127.0.0.1:8000' must begin with http"),
        ({"key_variable": "NO_KEY_IS_HERE"}, "NO_KEY_IS_HERE holds no API key"),
    ],
)
def test_impossible_settings_are_refused(wrong, says):
    given = {"base_url": "http://127.0.0.1:8000/v1", "model": "judge", "rubric": RUBRIC} | wrong
    with pytest.raises(ValueError, match=says):
        JudgeReward(**given)


# --- The criteria of a row ------------------------------------------------------------------------

CRITERIA = [
    {"criterion": "says thanks", "weight": 3},
    {"criterion": "says please", "weight": 1},
    {"criterion": "shouts", "weight": -2},
]


def says(text: str, shown: dict) -> float:
    return float({"shouts": "!"}.get(shown["criterion"], shown["criterion"][5:]) in text)


@pytest.mark.parametrize("as_stored", [list, json.dumps, lambda given: np.array(given)])
def test_one_request_asks_for_all_criteria_and_the_reward_is_the_weight_of_those_met(as_stored):
    texts = ["thanks, please", "thanks", "thanks!", "please!!", "no", ""]
    with scripted_judge(says) as address:
        judge = JudgeReward(address, "judge", "", rubric_column="rubric")
        request = judge.request("", {"completion": "thanks"}, "", ["1", "2", "3"], [0, 1])
        room = json.loads(request.body)["max_tokens"]
        assert room == 256 + 3 * 16, "for every criterion"
        scores = run(judge, texts, rubric=[as_stored(CRITERIA)] * len(texts))
        assert scores == [1.0, 0.75, 0.25, 0.0, 0.0, 0.0], "never below 0"
        assert judge.calls == 5
        two = [[CRITERIA[0], CRITERIA[1] | {"weight": weight}] for weight in (1, 3)]
        assert run(judge, ["thanks"] * 2, rubric=list(map(as_stored, two))) == [0.75, 0.5]


@pytest.mark.parametrize(
    "rubric",
    [
        *(None, "polite?", [], 5, "[1]", {"criterion": "a", "weight": 1}),
        *([{"criterion": "a"}], [{"criterion": None, "weight": 1}], [{"weight": 1}]),
        *([{"criterion": "a", "weight": weight}] for weight in (-1, None, float("nan"), 1e999)),
    ],
)
def test_a_row_without_valid_criteria_is_named_before_any_request(rubric):
    judge = JudgeReward("http://127.0.0.1:9", "judge", RUBRIC, rubric_column="rubric")
    with pytest.raises(ValueError, match="'rubric' of row 1 "):
        run(judge, ["a", "b"], rubric=[CRITERIA, rubric])
    with pytest.raises(ValueError, match=r"'rubric' of row 0 .*None"):
        run(judge, ["a"])
    assert judge.calls == 0
