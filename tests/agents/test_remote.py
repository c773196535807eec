"""Environments on a server: a small one in this process speaks OpenEnv's protocol, and misbehaves."""

import json
import threading
import time
from typing import Literal

import pytest
from pydantic import TypeAdapter
from test_episodes import called as episodes_called
from test_episodes import row, step
from transformers.utils import get_json_schema
from websockets.sync.server import serve

from helpers.agents import (
    Guarded,
    Laboratory,
    Remote,
    ToolError,
    check_environment,
    environment_named,
)
from helpers.agents.protocol import called
from helpers.commands.pipeline import check_parameters

ACTION = {
    "description": "Say a word.",
    "properties": {
        "metadata": {"type": "object"},
        "word": {"type": "string", "description": "The word,\n  as it is."},
        "times": {"type": "integer", "default": 1},
    },
    "required": ["word"],
}


class Server:
    """An OpenEnv server whose environment does what the word of an action says."""

    def __init__(self, schema: object = ACTION, tools: list | None = None):
        self.schema, self.tools, self.sessions, self.open = schema, tools, 0, 0
        self.release, self.heard = threading.Event(), []
        self.start(0)

    def start(self, port: int) -> None:
        self.server = serve(self.session, "127.0.0.1", port, process_request=self.page)
        self.port = self.server.socket.getsockname()[1]
        self.address = f"openenv:http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.release.set()
        self.server.shutdown()

    def page(self, connection, request):
        if request.path == "/schema":
            return connection.respond(200, json.dumps({"action": self.schema}))

    def session(self, socket) -> None:
        self.sessions, self.open = self.sessions + 1, self.open + 1
        try:
            for message in socket:
                self.heard.append(json.loads(message))
                if said := self.answer(socket, **self.heard[-1]):
                    socket.send(said if isinstance(said, str) else json.dumps(said))
        finally:
            self.open -= 1

    def answer(self, socket, type: str, data: dict):
        word = data.get("word")
        if type == "reset":
            return observed({"prompt": f"Say w{data['seed']}.", "metadata": {}}, None)
        if data.get("type") == "list_tools":
            return observed({"tools": self.tools}, None)
        if data.get("type") == "call_tool":
            return observed({"tool_name": data["tool_name"], **data["arguments"]}, 0.5)
        if word == "die":
            socket.socket.close()
        if word == "hang":
            self.release.wait(60)
        if word in ANSWERS:
            return ANSWERS[word]
        won = word == "win"
        return observed({"echoed": word * min(3, data.get("times", 1))}, 1.0 if won else 0.25, won)


def observed(observation: object, reward: object, done: object = False) -> dict:
    data = {"observation": observation, "reward": reward, "done": done}
    return {"type": "observation", "data": data}


def failed(code: str, **more) -> dict:
    return {"type": "error", "data": {"message": "So it is.", "code": code, **more}}


ANSWERS = {
    "no JSON": "what?",
    "a list": "[1, 2]",
    "deep": "[" * 100_000,
    "no reward": {"type": "observation", "data": {"observation": {}, "done": False}},
    "reward in words": observed({}, "many"),
    "text": observed("text", 0.5),
    "no session": failed("CAPACITY_REACHED"),
    "unlike": {"type": "unlike", "data": {}},
    "invalid": failed("VALIDATION_ERROR", errors=[{"msg": "Too many."}]),
    "raises": failed("EXECUTION_ERROR"),
    "ends": failed("SESSION_ERROR"),  # OpenEnv cannot say why it refuses the action
    "long": observed({"page": "x" * 10_000}, 0.5),
    "book": observed({"page": "x" * 2_000_000}, 0.5),
}
NO_ANSWER = ["die", "hang", "book", *list(ANSWERS)[:8]]


@pytest.fixture
def server():
    server = Server()
    yield server
    server.stop()


def eventually(holds) -> bool:
    until = time.monotonic() + 10
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


# --- Use ------------------------------------------------------------------------------------------


def test_an_action_is_one_tool_an_observation_its_answer_and_each_episode_a_session(server):
    kind = environment_named(server.address)
    assert check_environment(kind) == []
    assert get_json_schema(kind().step)["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "word": {"type": "string", "description": "The word, as it is."},
            "times": {"type": "integer", "description": "times"},
        },
        "required": ["word"],
    }
    game = Guarded(kind)()
    assert (
        game.reset(seed=7, prompt=[{"role": "user", "content": "Play."}]) == '{"prompt": "Say w7."}'
    )
    assert server.heard[-1]["data"]["prompt"][0]["content"] == "Play."
    assert game.get_reward() == 0.0, "nothing was earned yet"
    game.reset(seed=8)
    assert game.step(word="a") == '{"echoed": "a"}'
    assert server.heard[-1]["data"] == {"word": "a"}, "the server's own default counts"
    assert game.step(word="ab", times=2) == '{"echoed": "abab"}'
    assert game.step(word="win") == '{"echoed": "win"}'
    with pytest.raises(ToolError, match="The episode is over"):
        game.step(word="more")
    assert [game.get_reward(), game.get_reward()] == [1.0, 1.0]
    assert server.sessions == 2 and eventually(lambda: server.open == 0)


class Local:
    def move(self, to: Literal["north", "south"], by: list[int], why: str | None = None) -> str:
        """Move on.

        Args:
            to: The direction,
                of two.
            by: How far.
            why: For what.

        Returns:
            What is there.
        """


def test_listed_tools_look_to_a_policy_as_they_do_where_they_are_at_home():
    said, schema = Local.move.__doc__, TypeAdapter(Local().move).json_schema()
    server = Server({"properties": {"tool_name": {}}}, [listed("move", said, schema)])
    game = environment_named(server.address)()
    assert get_json_schema(game.move) == get_json_schema(Local().move)
    assert server.sessions == 1 and eventually(lambda: server.open == 0)
    server.stop()


def listed(name: str, said: str, schema: dict) -> dict:
    return {"name": name, "description": said, "input_schema": schema}


def test_a_result_of_mcp_is_its_text_and_an_error_of_a_tool_the_environments_word():
    schema = {"properties": {"result": {"type": "string"}, "error": {"type": "string"}}}
    server = Server({"properties": {"tool_name": {}}}, [listed("look", "Look.", schema)])
    game = environment_named(server.address)()
    game.reset(seed=1)
    content = [{"type": "text", "text": "A"}, {"type": "image"}, {"type": "text", "text": "door."}]
    assert game.look(result={"content": content, "is_error": False}) == "A\ndoor."
    assert game.look(result=[1, 2]) == "[1, 2]" and game.look(result=None) == "null"
    with pytest.raises(ToolError, match="Closed"):
        game.look(result=None, error={"error_type": "execution_error", "message": "Closed."})
    server.stop()


def test_a_class_of_ones_own_gives_a_servers_actions_words(server):
    class Words(Remote):
        _url = f"http://127.0.0.1:{server.port}/"

        def say(self, word: str) -> str:
            """Say it.

            Args:
                word: A word.
            """
            return f"You said {self._step({'word': word})['echoed']}."

    game = Guarded(Words)()
    game.reset(seed=1)
    assert game.say(word="win") == "You said win." and game.get_reward() == 1.0


# --- What a server may do -------------------------------------------------------------------------


@pytest.mark.parametrize("word", NO_ANSWER)
def test_an_episode_whose_server_dies_hangs_or_answers_nonsense_has_no_reward_and_is_counted(
    server, word
):
    guard = Guarded(environment_named(server.address), seconds=1 if word == "hang" else 10)
    game, other = guard(), guard()
    for each in (game, other):
        each.reset(seed=1)
        each.step(word="a")
    failed = [called(game, "step", {"word": said})[1] for said in (word, "win")]
    assert failed == [True, True]
    assert game.get_reward() is None and guard.counts["dead"] == 1
    assert other.step(word="win") and other.get_reward() == 1.0, "another session lives"
    game.reset(seed=2)
    assert game.step(word="win") and game.get_reward() == 1.0, "and so does the next episode"


@pytest.mark.parametrize(("word", "faults"), [("invalid", 0), ("raises", 1)])
def test_an_action_that_the_server_refuses_costs_one_call(server, word, faults):
    guard = Guarded(environment_named(server.address))
    game = guard()
    game.reset(seed=1)
    game.step(word="a")
    with pytest.raises(ToolError, match=r"So it is\.") as told:
        game.step(word=word)
    assert ("Too many." in str(told.value)) == (word == "invalid")
    assert guard.counts["faults"] == faults and game.get_reward() == 0.25
    assert not guard.counts["dead"]


def test_an_action_that_ends_the_session_is_no_way_out_of_a_low_reward(server):
    guard = Guarded(environment_named(server.address))
    game = guard()
    game.reset(seed=1)
    game.step(word="\ud800")  # a lone surrogate, which no JSON takes
    with pytest.raises(ToolError):
        game.step(word="ends")
    assert game.get_reward() == 0.25 and not guard.counts["dead"]


def test_what_a_server_says_is_cut(server):
    guard = Guarded(environment_named(server.address), result_characters=100)
    game = guard()
    game.reset(seed=1)
    assert len(game.step(word="long")) == 100 and guard.counts["cut"] == 1


def test_a_training_goes_on_without_the_episode_whose_server_died(server, beginner, tmp_path):
    guard, words = Guarded(environment_named(server.address)), iter(["win", "a", "die", "win"])

    def script(prompts):
        return [
            tokenizer(f"{episodes_called('step', word=word)}<|im_end|>")["input_ids"]
            if (word := next(words, None))
            else tokenizer("Done.<|im_end|>")["input_ids"]
            for _ in prompts
        ]

    model, tokenizer = beginner
    options = {"script": script, "length": 200, "turns": 3, "ours": False, "environment": guard}
    trainer, _ = step(model, tokenizer, tmp_path, [row("1", 1), row("2", 2)], **options)
    assert [one.get_reward() for one in trainer.environments] == [1.0, 0.25, None, 1.0]
    assert trainer.state.global_step == 1 and guard.counts["dead"] == 1


def test_a_server_that_is_gone_ends_episodes_and_one_that_is_back_plays_on(server):
    guard = Guarded(environment_named(server.address))
    game = guard()
    server.stop()
    assert game.reset(seed=1) == "" and game.get_reward() is None and guard.counts["dead"] == 1
    server.start(server.port)
    game.reset(seed=1)
    assert game.step(word="win") and game.get_reward() == 1.0


# --- At the door ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"properties": {"to": {"$ref": "#/x"}}, "required": ["to"]}, "to is neither text, number"),
        ({"properties": {"to-day": {"type": "string"}}}, "not a valid parameter name"),
        ({}, "KeyError"),
        ("nonsense", "TypeError"),
    ],
)
def test_actions_that_cannot_be_a_tool_are_refused_in_a_sentence(schema, says):
    server = Server(schema)
    for check in (environment_named, lambda named: check_parameters({"environment": named})):
        with pytest.raises(ValueError, match=f"environment='{server.address}': .*{says}"):
            check(server.address)
    server.stop()


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "127.0.0.1:8001", "", "http://["])
def test_an_address_where_no_server_is_is_refused(address):
    with pytest.raises(ValueError, match="no OpenEnv server"):
        environment_named(f"openenv:{address}")


# --- Attack first ---------------------------------------------------------------------------------


def test_the_laboratory_attacks_a_server_and_says_what_it_cannot_know(server):
    """Whoever says anything earns 0.25, and nobody shows how to win."""
    rows = [{"seed": seed} for seed in range(3)]
    lab = Laboratory(Guarded(environment_named(server.address), turns=3), rows)
    assert lab.played["reward"]["does nothing"] == 0 and lab.played["reward"]["random"] == 0.25
    assert lab.checks["holds"].all()
    assert not {"the oracle wins", "other rows give other episodes"} & set(lab.checks.index)
    assert "nobody showed that the game can be won, nor that other rows" in str(lab.verdict)
    assert eventually(lambda: server.open == 0), "no session is left open"
