"""The judges, before a real HTTP server in this process: the wire format, its faults, injection, the
budget, the cache, and the key that nobody sees.
"""

import asyncio
import copy
import gzip
import inspect
import json
import pickle
import random
import re
import threading
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
import torch
from aiohttp import web
from trl.trainer.utils import get_callable_name, is_async_callable

from helpers.environment import this_machine, vllm_obstacle
from helpers.presets import PRESETS
from helpers.results import serving
from helpers.rewards import JudgeReward, RankingJudgeReward, reward_name
from helpers.rewards.faults import checked_scores
from helpers.rewards.lab import Lab
from helpers.rewards.lab.attacks import JUDGE_BATTERY, with_wrong_answers
from helpers.rewards.lab.scripted_judge import scripted_judge, texts_in
from helpers.tags import THINK_ANSWER

RUBRIC = "10 where the completion is polite."
MARK = re.compile(r"\AThe code of the marks is (\w+)\.$", re.M)
KEY = "sk-a-secret-of-the-test"
THREE = ["one", "two", "three"]


# --- Servers that speak /v1/chat/completions, well or badly ---------------------------------------


def said(content: object, tokens: object = 50) -> httpx.Response:
    """The reply with this content of the message (a text, or what is written as JSON)."""
    text = content if isinstance(content, str) or content is None else json.dumps(content)
    choices = [{"message": {"role": "assistant", "content": text}}]
    return httpx.Response(200, json={"choices": choices, "usage": {"total_tokens": tokens}})


def score(points: object) -> httpx.Response:
    return said({"score": points})


def by_length(request: dict, number: int) -> httpx.Response:
    return score(min(10, len(parts(request)["completion"])))


def parts(request: dict) -> dict[str, str]:
    """The marked texts of a request, by name; what stands outside of the marks is "" """
    text = request["messages"][-1]["content"]
    (code,) = MARK.findall(text)
    block = re.compile(rf"^\[{code} (\w+)\]\n(.*?)\n\[end of {code} \1\]$", re.M | re.S)
    return dict(block.findall(text)) | {"": block.sub("", text)}


class Clock(asyncio.SelectorEventLoop):
    """A judge's loop, whose time a server lets pass: no test waits for a judge to run out
    of patience.
    """

    judging = None
    passed = 0.0

    def __init__(self):
        super().__init__()
        Clock.judging = self

    def time(self) -> float:
        return super().time() + self.passed

    def add(self, seconds: float) -> None:
        self.passed += seconds


async def waits(request: dict, number: int) -> httpx.Response:
    """No answer, while a minute passes for the judge."""
    Clock.judging.call_soon_threadsafe(Clock.judging.add, 60)
    await asyncio.Event().wait()


@pytest.fixture
def serve(monkeypatch):
    """serve(answer) starts an HTTP server in this process, which no proxy may stand before.

    answer: a reply, an error at which the connection is dropped, or answer(request, number) that
    gives or awaits one of them. The server's `url`; and in
    the end `asked`, the requests, and `requests`, their bodies.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runners = []

    async def started(server: SimpleNamespace) -> None:
        async def reply(request: web.Request) -> web.Response:
            body = await request.json()
            server.asked.append(request)
            server.requests.append(body)
            answered = server.answers(body, len(server.asked) - 1)
            answered = await answered if inspect.isawaitable(answered) else answered
            if isinstance(answered, Exception):
                request.transport.close()
            kept = ("Location", "Retry-After", "Content-Encoding", "Content-Type")
            headers = {name: answered.headers[name] for name in kept if name in answered.headers}
            return web.Response(status=answered.status_code, body=answered.content, headers=headers)

        application = web.Application()
        application.router.add_post("/{path:.*}", reply)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    def start(answer) -> SimpleNamespace:
        answers = answer if callable(answer) else lambda request, number: answer
        server = SimpleNamespace(answers=answers, asked=[], requests=[])
        asyncio.run_coroutine_threadsafe(started(server), loop).result()
        return server

    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    yield start

    async def end() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:  # some answer never
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.gather(*(runner.cleanup() for runner in runners))

    asyncio.run_coroutine_threadsafe(end(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def judge_of(server: SimpleNamespace, **options) -> JudgeReward:
    return JudgeReward(server.url, "judge", RUBRIC, **({"backoff": 0.001} | options))


def run(judge: JudgeReward, completions: list, **columns) -> list:
    with asyncio.Runner(loop_factory=Clock) as runner:
        return runner.run(judge(completions=completions, **columns))


def unjudged(judge: JudgeReward, completions: list, **columns) -> tuple[list, str]:
    """The scores, and the one warning of the batch."""
    with pytest.warns(UserWarning, match="not judged") as caught:
        scores = run(judge, completions, **columns)
    (told,) = [str(w.message) for w in caught if "not judged" in str(w.message)]
    return scores, told


# --- The wire format ------------------------------------------------------------------------------


def test_a_score_is_the_share_of_the_points_in_the_order_of_the_completions(serve):
    server = serve(by_length)
    texts = ["a" * n for n in (7, 1, 10, 3, 0, 5)]
    assert run(judge_of(server), texts) == [0.7, 0.1, 1.0, 0.3, 0.0, 0.5]
    assert len(server.requests) == 5, "an empty completion earns nothing unasked"
    assert run(judge_of(serve(score(2)), points=4), ["x"]) == [0.5]
    assert run(judge_of(serve(None)), [None, [], {}, 3, [None], " \n"]) == [0.0] * 6
    assert run(judge_of(serve(None)), []) == []
    server, prompts = serve(by_length), ["p", "p", "p", "q"]  # another prompt, another question
    assert run(judge_of(server), ["aa", "b", "aa", "aa"], prompts=prompts) == [0.2, 0.1, 0.2, 0.2]
    assert len(server.requests) == 3, "what is equal is asked once"
    blocks = [THINK_ANSWER.render("hm", "four"), "no block"]
    assert run(judge_of(server, tags=THINK_ANSWER), blocks) == [0.4, 0.0]


def test_the_request_is_the_one_that_servers_know(serve):
    server = serve(score(7))
    chat = [[{"role": "assistant", "content": "Thank you."}]]
    prompts = [
        [{"role": "system", "content": "Be polite."}, {"role": "user", "content": "Say thanks."}]
    ]
    judge = judge_of(
        server, shows=["answer"], options={"seed": 1, "temperature": None, "max_tokens": 33}
    )
    columns = {"prompts": prompts, "answer": ["Thanks!"], "completion_ids": [[1]]}
    assert run(judge, chat, **columns) == [0.7]
    with pytest.raises(ValueError, match="the column 'answer', which the data does not have"):
        run(judge, ["x"])
    (request,) = server.requests
    assert "Authorization" not in server.asked[0].headers
    wanted, (system, user) = request.pop("response_format"), request.pop("messages")
    assert request == {"model": "judge", "max_tokens": 33, "seed": 1}
    assert wanted["type"] == "json_schema"
    assert wanted["json_schema"]["schema"]["properties"]["score"] == {"enum": list(range(11))}
    assert (system["role"], user["role"]) == ("system", "user") and RUBRIC in system["content"]
    assert parts({"messages": [user]}) | {"": ""} == {
        "prompt": "system: Be polite.\n\nuser: Say thanks.",
        "answer": "Thanks!",
        "completion": "Thank you.",
        "": "",
    }


@pytest.mark.parametrize(
    ("path", "asked"), [("", "/v1"), ("/v1/", "/v1"), ("/api/v2/openai", "/api/v2/openai")]
)
def test_the_address_may_end_in_v1_or_not(serve, path, asked):
    server = serve(score(10))
    assert run(JudgeReward(server.url + path, "judge", RUBRIC), ["x"]) == [1.0]
    assert [request.path for request in server.asked] == [f"{asked}/chat/completions"]
    assert JudgeReward("https://api.example.com/v1", "judge", RUBRIC).proxies, "elsewhere"


def test_a_rubric_may_hold_braces_and_a_completion_anything(serve):
    server, rubric = serve(score(10)), 'A {"score": 3} and {points} and {0}.'
    texts = ["\ud800", "\x00x", "{}", "\u2028x", "]" * 100, "x" * 100_000]
    assert run(JudgeReward(server.url, "judge", rubric, parallel=1), texts) == [1.0] * 6
    assert all(rubric in request["messages"][0]["content"] for request in server.requests)
    long = parts(server.requests[-1])
    assert len(long["completion"]) == 20_000 and "only the first 20000 bytes" in long[""]


def test_at_most_so_many_requests_are_under_way(serve):
    together, under_way, most = asyncio.Barrier(3), [], []

    async def answer(request, number):
        under_way.append(number)
        await together.wait()  # three do come at a time, or the test ends here
        most.append(len(under_way))
        under_way.remove(number)
        return score(5)

    server = serve(answer)
    assert run(judge_of(server, parallel=3), [f"text {n}" for n in range(12)]) == [0.5] * 12
    assert max(most) == 3 and len(server.requests) == 12


# --- Faults: None, counted, told once a batch -----------------------------------------------------

NO_SCORE = "a reply without the verdict that was asked for"
MISSING = b'{"error": {"message": "The model `judge` does not exist."}}'
BROKEN = [
    *[(NO_SCORE, said(text)) for text in ("ten", None, '{"score": 7', "[" * 10**5, "7", "[]", {})],
    *[(NO_SCORE, score(points)) for points in (11, -1, 7.5, "7", None, True, [7], 10**30)],
    *[
        (NO_SCORE, httpx.Response(200, content=body))
        for body in (b"", b"\xff\xfe", b"[]", b'{"choices": []}', b'{"usage": 3}')
    ],
    (f"HTTP 404 Not Found {MISSING.decode()}", httpx.Response(404, content=MISSING)),
    ("HTTP 400 Bad Request too long", httpx.Response(400, content=b"too\nlong")),
    ("HTTP 401 Unauthorized", httpx.Response(401)),
    ("HTTP 307 Temporary Redirect", httpx.Response(307, headers={"Location": "http://a.b/"})),
]


@pytest.mark.parametrize(("cause", "answer"), BROKEN)
def test_what_is_wrong_for_good_is_not_asked_again(serve, cause, answer):
    server = serve(
        lambda request, number: score(4) if parts(request)["completion"] == "two" else answer
    )
    logged, metrics = {}, {}
    scores, told = unjudged(
        judge_of(server), THREE, log_extra=logged.__setitem__, log_metric=metrics.__setitem__
    )
    assert scores == [None, 0.4, None] and len(server.requests) == 3
    assert told == f"judge_reward: 2 of 3 completions were not judged and score None: 2 × {cause}."
    assert logged == {"judge_reward_fault": [cause, "", cause]}
    assert metrics == {"judge_reward/unjudged": 2 / 3}


PASSING = [
    ("HTTP 500 Internal Server Error", httpx.Response(500)),
    ("HTTP 503 Service Unavailable", httpx.Response(503, headers={"Retry-After": "soon"})),
    ("HTTP 429 Too Many Requests", httpx.Response(429, headers={"Retry-After": "0"})),
    ("HTTP 408 Request Timeout", httpx.Response(408)),
    (
        "no connection to {url}/v1/chat/completions (RemoteProtocolError)",
        ConnectionError(),
    ),
    ("no answer within 60 s", waits),
]


@pytest.mark.parametrize(("cause", "fails"), PASSING)
def test_what_may_pass_is_asked_again_and_then_told(serve, cause, fails):
    never = fails if callable(fails) else lambda *asked: fails
    twice = serve(lambda *asked: never(*asked) if asked[1] < 2 else score(6))
    assert run(judge_of(twice), ["x"]) == [0.6] and len(twice.requests) == 3
    silent = serve(never)
    scores, told = unjudged(judge_of(silent, retries=2), ["x"])
    cause = cause.format(url=silent.url)
    assert scores == [None] and told.endswith(f": 1 × {cause}.") and len(silent.requests) == 3


def test_a_pause_is_as_long_as_the_server_asks_but_no_longer_than_a_request_may_take(serve):
    busy = httpx.Response(429, headers={"Retry-After": "3600"})
    server = serve(lambda request, number: score(6) if number else busy)
    began = time.monotonic()
    assert run(judge_of(server, timeout=0.3), ["x"]) == [0.6]
    assert 0.3 <= time.monotonic() - began < 60


def test_the_patience_of_a_batch_ends_what_is_under_way_and_asks_no_more(serve):
    server = serve(waits)
    scores, told = unjudged(judge_of(server, patience=60, timeout=600, parallel=1), THREE)
    assert scores == [None] * 3 and len(server.requests) == 1
    assert "3 × no time left of the 60 s for a batch" in told


# --- Injection ------------------------------------------------------------------------------------


def attacks() -> dict[str, str]:
    (row,) = with_wrong_answers([{"answer": "4", "question": "2 + 2?"}])
    return {attack.name: attack.write(row, THINK_ANSWER, 100) for attack in JUDGE_BATTERY}


@pytest.mark.parametrize("name", attacks())
def test_what_a_completion_says_to_the_judge_arrives_between_the_marks_only(serve, name):
    server, attack = serve(score(0)), attacks()[name]
    run(judge_of(server, parallel=1), [attack, "harmless"], prompts=["p", "p"])
    one, other = server.requests
    # the instructions are the same whatever is judged
    assert one["messages"][0] == other["messages"][0]
    code, code_of_other = (MARK.findall(r["messages"][1]["content"])[0] for r in (one, other))
    assert parts(one)[""].replace(code, "") == parts(other)[""].replace(code_of_other, "")
    assert code not in attack and code != code_of_other
    assert set(parts(one)) == {"", "prompt", "completion"}
    received = parts(one)["completion"]
    assert received.replace("< ", "<").replace("[ ", "[") == attack
    special = ("<|im_start|>", "<|im_end|>", "</s>", "[INST]", "<SYS>")
    assert not any(token in received for token in special)


# --- A rubric of each row ------------------------------------------------------------------------

CRITERIA = [
    {"criterion": "says thanks", "weight": 3},
    {"criterion": "says please", "weight": 1},
    {"criterion": "shouts", "weight": -2},
]


def says(text: str, shown: dict) -> float:
    return float({"shouts": "!"}.get(shown["criterion"], shown["criterion"][5:]) in text)


@pytest.mark.parametrize("as_stored", [list, json.dumps, lambda given: np.array(given)])
def test_a_rubric_of_a_row_is_the_weight_of_what_is_met_in_one_call(tmp_path, as_stored):
    texts = ["thanks, please", "thanks", "thanks!", "please!!", "no", ""]
    rubrics = [as_stored(CRITERIA)] * len(texts)
    with scripted_judge(says) as address:
        judge = JudgeReward(address, "judge", rubric_column="rubric", cache=tmp_path)
        scores = run(judge, texts, rubric=rubrics)
        assert scores == [1.0, 0.75, 0.25, 0.0, 0.0, 0.0], "never below 0"
        assert judge.calls == 5
        assert run(judge, texts, rubric=rubrics) == scores and judge.calls == 5, "the cache"
        other = [as_stored(CRITERIA[:2])] * len(texts)
        assert run(judge, texts, rubric=other) == [1.0, 0.75, 0.75, 0.25, 0.0, 0.0]
        two = [[CRITERIA[0], CRITERIA[1] | {"weight": weight}] for weight in (1, 3)]
        assert run(judge, ["thanks"] * 2, rubric=list(map(as_stored, two))) == [0.75, 0.5]


@pytest.mark.parametrize(
    ("rubric", "told"),
    [
        (None, "there is no list of criteria"),
        ("polite?", "there is no list of criteria"),
        ([], "there is no list of criteria"),
        ([{"criterion": "a"}], "needs a criterion and a weight"),
        ([{"criterion": "a", "weight": float("nan")}], "needs a criterion and a weight"),
        ([{"weight": 1}], "needs a criterion and a weight"),
        ([{"criterion": "a", "weight": -1}], "no criterion has a positive weight"),
    ],
)
def test_a_row_without_a_sound_rubric_is_named_before_anything_is_asked(serve, rubric, told):
    server = serve(score(1))
    judge = judge_of(server, rubric_column="rubric")
    with pytest.raises(ValueError, match=rf"row 1 of the batch, column 'rubric'.*{told}"):
        run(judge, ["a", "b"], rubric=[CRITERIA, rubric])
    assert server.requests == []
    with pytest.raises(ValueError, match=r"row 0 .*there is no list"):
        run(judge, ["a"])


@pytest.mark.parametrize("answer", [{}, {"1": True, "2": 1, "3": False}, {"1": True}, [True] * 3])
def test_an_answer_without_each_criterion_is_no_verdict(serve, answer):
    scores, told = unjudged(judge_of(serve(said(answer)), rubric_column="r"), ["a"], r=[CRITERIA])
    assert scores == [None] and NO_SCORE in told


# --- Ranking --------------------------------------------------------------------------------------


def by_size(text: str, shown: dict) -> float:
    return len(text) / 100


def ranking(address: str, size: int, **options) -> RankingJudgeReward:
    return RankingJudgeReward(address, "judge", RUBRIC, num_generations=size, **options)


def test_a_place_is_the_share_of_the_others_that_a_completion_beats():
    texts = ["aaa", "a", "aaaa", "aa", "bb", "", "cc", "bb"]
    prompts = ["p"] * 4 + ["q"] * 4
    with scripted_judge(by_size) as address:
        judge = ranking(address, 4)
        scores = run(judge, texts, prompts=prompts)
    assert scores[:4] == [2 / 3, 0, 1, 1 / 3] and judge.calls == 2, "one call for each group"
    assert scores[5] == 0 and scores[4] == scores[7], "an empty one is last, equal ones are equal"
    assert [sum(scores[:4]), sum(scores[4:])] == pytest.approx([2, 2]), "the mean is 0.5"


def test_groups_that_need_no_judge_are_not_sent(serve):
    server = serve(None)
    prompts = ["p"] * 4 + ["q"] * 4
    assert run(ranking(server.url, 4), ["x"] * 4 + ["", "y", "y", ""], prompts=prompts) == [
        0.5, 0.5, 0.5, 0.5, 1 / 6, 5 / 6, 5 / 6, 1 / 6,
    ]  # fmt: skip
    assert server.requests == []


def test_a_large_group_is_judged_in_overlapping_parts_with_the_same_result():
    texts = ["a" * n for n in range(1, 14)]
    random.Random(1).shuffle(texts)
    with scripted_judge(by_size) as address:
        judge = ranking(address, 13, most=6)
        assert run(judge, texts) == [(len(text) - 1) / 12 for text in texts]
    assert judge.calls == 10, "five blocks of at most three: each two of them together"


def test_a_group_is_a_run_of_one_prompt_and_a_part_of_one_is_refused(serve):
    judge, told = ranking(serve(None).url, 4), {}
    scores, warned = unjudged(judge, ["a", "b"], prompts=["p", "q"], log_extra=told.__setitem__)
    assert scores == [None, None] and "2 × a group of one" in warned
    assert told == {"ranking_judge_reward_fault": ["a group of one"] * 2}
    with scripted_judge(by_size) as address:
        twice = run(ranking(address, 2), ["a", "aa", "aaa", "a"], prompts=["p"] * 4)
    assert twice == [0, 1, 1, 0], "a question drawn twice in a row: two groups"
    with pytest.raises(ValueError, match="6 completions of one prompt are no whole groups of"):
        run(judge, list("abcdef"), prompts=["p"] * 6)


def test_a_bias_of_position_is_measured_and_cancels(serve):
    def first_is_best(request, number):
        fields = request["response_format"]["json_schema"]["schema"]["properties"]
        return said({"order": fields["order"]["items"]["enum"]})

    logged, texts = {}, ["a", "b", "c", "d"]
    judge = ranking(serve(first_is_best).url, 4, orders=2)
    assert run(judge, texts, log_metric=logged.__setitem__) == [0.5] * 4
    assert logged == {"ranking_judge_reward/disagreement": 1.0, "ranking_judge_reward/unjudged": 0}
    with scripted_judge(by_size) as address:
        judge = ranking(address, 3, orders=2)
        assert run(judge, ["a", "aaa", "aa"], log_metric=logged.__setitem__) == [0, 1, 0.5]
    assert logged["ranking_judge_reward/disagreement"] == 0


def test_what_the_judge_reads_alike_is_one_text():
    """Told apart by what is cut, taken apart or invisible, texts share a place."""
    long = ["la " * (7_000 + n) for n in range(12)]
    for texts in (long, ["<|a|>", "< |a|>", "<|a|> "], ["\ud800", "?", "? "]):
        with scripted_judge(by_size) as address:
            assert run(ranking(address, len(texts)), texts) == [0.5] * len(texts)
    with scripted_judge(by_size) as address:
        assert run(ranking(address, 2), ["\ud800\ud800", "right"]) == [0, 1]
        assert run(ranking(address, 3), ["\u200b", " \n", ""]) == [0.5] * 3, "nothing to see"
        asks = run(judge_of(SimpleNamespace(url=address)), ["The code of the marks is abc."])
    assert asks == [0.3], "which is text"


SPECIAL = ["<|turn>", "<turn|>", "<start_of_image>", "[|endofturn|]", "]~b]", "[e~[", "[THINK]"]


@pytest.mark.parametrize("token", [*SPECIAL, "[TOOL_CALLS]", "<tool_call>", "[gMASK]", "</s>"])
def test_special_tokens_are_taken_apart_wherever_they_are(serve, token):
    server = serve(score(1))
    run(judge_of(server, shows=["note"]), [f"a{token}b"], prompts=[f"c{token}"], note=[token])
    (request,) = server.requests
    assert token not in request["messages"][1]["content"]


@pytest.mark.parametrize("order", [[], ["one"], "reversed", None, [["x"]], 3])
def test_an_order_that_does_not_hold_each_mark_once_is_no_verdict(serve, order):
    scores, told = unjudged(ranking(serve(said({"order": order})).url, 2), ["a", "b"])
    assert scores == [None, None] and NO_SCORE in told


def test_the_order_shown_depends_on_the_texts_and_the_seed_alone(serve):
    server = serve(said({}))
    texts = [f"text {n}" for n in range(6)]
    for given, seed in ((texts, 1), (texts[::-1], 1), (texts, 2)):
        unjudged(ranking(server.url, 6, seed=seed), given)
    one, again, other = (list(texts_in(request)[0].items()) for request in server.requests)
    assert one == again and one != other and [text for _, text in one] != texts


def test_a_completion_knows_no_mark_and_no_place():
    """Whoever claims a place, copies what looks like a mark or insults the others gains nothing."""
    row = with_wrong_answers([{"answer": "4", "question": "2 + 2?"}])[0]
    honest = [THINK_ANSWER.render("2 + 2 = 4", "4"), THINK_ANSWER.render("2 + 2 is 4", "4")]
    for attack in JUDGE_BATTERY:
        text = attack.write(row, THINK_ANSWER, 100)
        with scripted_judge(
            lambda said, _: float("4" in (THINK_ANSWER.extract_answer(said) or ""))
        ) as at:
            scores = run(ranking(at, 3), [honest[0], text, honest[1]])
        assert scores[1] == 0, attack.name


# --- A reply that grows ---------------------------------------------------------------------------


def test_a_reply_is_neither_inflated_nor_read_without_end(serve):
    bomb = gzip.compress(b" " * 10**8)
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    server = serve(SimpleNamespace(status_code=200, content=bomb, headers=headers))
    assert unjudged(judge_of(server), ["x"])[1].endswith(f"1 × {NO_SCORE}.")
    assert server.asked[0].headers["Accept-Encoding"] == "identity"
    long = serve(SimpleNamespace(status_code=200, content=b" " * 3_000_000, headers={}))
    assert "1 × a reply of more than 1,000,000 bytes" in unjudged(judge_of(long), ["x"])[1]


# --- The budget -----------------------------------------------------------------------------------


def test_a_budget_in_calls_is_never_passed(serve, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")  # processes, which share it
    server = serve(score(10))
    judge = judge_of(server, budget_calls=11, parallel=8)
    scores, told = unjudged(judge, [f"text {n}" for n in range(12)])
    assert len(server.requests) == 5 == judge.calls
    assert scores.count(1.0) == 5 and scores.count(None) == 7
    assert "7 × the budget of 11 calls is spent" in told
    failing = judge_of(serve(httpx.Response(500)), budget_calls=6)
    assert "the budget of 6 calls" in unjudged(failing, ["x"])[1]
    assert failing.calls == 3, "calls that fail are spent too"


def test_a_resumed_run_does_not_spend_it_twice_and_a_trial_gives_nothing_back(serve):
    server = serve(score(10))
    judge = judge_of(server, budget_calls=4)
    Lab([judge], [1.0]).scores(["a", "b"])  # the laboratory restores the state of what it tries
    assert judge.calls == 2
    resumed = judge_of(server, budget_calls=4)
    resumed.load_state_dict(json.loads(json.dumps(judge.state_dict())))
    assert resumed.state_dict() == {"calls": 2}
    assert unjudged(resumed, THREE)[0].count(None) == 1 and len(server.requests) == 4
    resumed.load_state_dict(judge.state_dict())
    assert resumed.state_dict() == {"calls": 4}


# --- The cache ------------------------------------------------------------------------------------


def test_what_was_judged_is_not_asked_again(serve, tmp_path):
    server, other = serve(by_length), serve(score(0))
    kept = {"cache": tmp_path / "kept"}
    assert unjudged(judge_of(serve(score(11)), **kept), ["a"])[0] == [None], "which is not kept"
    assert run(judge_of(server, **kept), ["a", "bb"]) == [0.1, 0.2]
    assert run(judge_of(server, **kept, budget_calls=0), ["bb", "a"]) == [0.2, 0.1]
    assert len(server.requests) == 2
    same = {"model": "judge", "rubric": RUBRIC}
    for changed in (
        {"options": {"max_tokens": 99}},
        {"points": 20},
        {"rubric": "Another."},
        {"model": "other"},
    ):
        run(JudgeReward(server.url, **(same | kept | changed)), ["a"])
    assert len(server.requests) == 6, "another request is asked anew"
    assert run(judge_of(other, **kept), ["a"]) == [0.0], "another server is asked anew"


# --- The key --------------------------------------------------------------------------------------


def test_the_key_is_sent_and_nowhere_else_to_be_seen(serve, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("A_KEY", f" {KEY}\n")
    echo = httpx.Response(401, json={"error": {"message": "x" * 190 + KEY}})
    server = serve(lambda request, number: score(1) if number == 0 else echo)
    judge = judge_of(server, key_variable="A_KEY", cache=tmp_path)
    assert run(judge, ["x"]) == [0.1]
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    scores, told = unjudged(judge, ["y"])
    assert scores == [None] and "xxx" in told
    kept = [path.read_text() for path in tmp_path.rglob("*.json")]
    seen = [told, repr(judge.__dict__), str(judge.state_dict()), *capsys.readouterr(), *kept]
    assert not any("sk-" in text for text in seen) and KEY.encode() not in pickle.dumps(judge)


# --- As any reward --------------------------------------------------------------------------------


def test_it_is_asynchronous_named_and_copied_as_trl_and_the_suite_need_it(serve):
    judge = judge_of(serve(by_length), name="politeness_reward", budget_calls=50)
    run(judge, ["a"])
    pickled = pickle.loads(pickle.dumps(judge))
    assert pickled.calls == judge.calls == 1
    for one in (judge, pickled, copy.deepcopy(judge), partial(judge, prompts=None)):
        assert reward_name(one) == "politeness_reward" == get_callable_name(one)
        assert is_async_callable(one)
        assert checked_scores(one, ["aa", "b"], {}) == ([0.2, 0.1], [])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"base_url": "127.0.0.1:8000"}, "base_url .*not an address"),
        ({"base_url": "ftp://host"}, "'ftp://host'.*not an address"),
        ({"base_url": ""}, "base_url .*not an address"),
        ({"base_url": "https://me:hidden@host/v1"}, "base_url .*password"),
        ({"points": 0}, "points=0 must be 1 or more"),
        ({"parallel": 0}, "parallel=0 must be 1 or more"),
        ({"retries": -1}, "retries=-1 must be 0 or more"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"key_variable": "NO_KEY_IS_HERE"}, "NO_KEY_IS_HERE holds no API key"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, says):
    given = {"base_url": "http://127.0.0.1:8000", "model": "judge", "rubric": RUBRIC} | wrong
    with pytest.raises(ValueError, match=says) as refused:
        JudgeReward(**given)
    assert "hidden" not in str(refused.value)


# --- vLLM -----------------------------------------------------------------------------------------

OBSTACLE = vllm_obstacle(this_machine())


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
@pytest.mark.skipif(OBSTACLE is not None, reason=f"no server: {OBSTACLE}")
def test_vllm_itself_is_a_judge(tokenizer):
    """The pocket model cannot follow a rubric; the schema makes it answer with a score all the
    same.

    The schema lets it put any white space between the tokens, and it would never stop: so it may
    write none.
    """
    roomy = replace(PRESETS["pocket"], max_completion_length=900)
    white = {
        str(token): -100 for token in range(len(tokenizer)) if tokenizer.decode([token]).isspace()
    }
    with serving.server(roomy.model_path, roomy, torch.float32) as address:
        judge = JudgeReward(
            address, serving.MODEL, "10 if polite.", options={"logit_bias": white}, budget_calls=8
        )
        scores = run(judge, ["Thanks.", "No!", "4"])
        assert all(isinstance(s, float) and 0 <= s <= 1 for s in scores) and judge.calls == 3
