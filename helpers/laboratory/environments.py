"""The laboratory for environments: before a policy trains in an environment, scripted players play
it through the same guarded tools. Some are lazy, and some cheat: GRPO would teach whatever they are
paid for. (Notebook 02 attacks rewards in this way.)

For example, this game accepts the correct number anywhere in an answer:

    class Secret:
        def reset(self, seed: int, **columns) -> str:
            self._secret = str(random.Random(seed).randint(100, 999))
            self._answer = ""
            return "Which number from 100 to 999 is it?"

        def answer(self, text: str) -> str:
            '''Answer.

            Args:
                text: The number.
            '''
            self._answer = text
            return "Noted."

        def get_reward(self) -> float:
            return float(self._secret in self._answer)

    report = attack(Guarded(Secret))

The player 'lists all candidates' writes all numbers up to 999 into one answer:

    report.played.loc["lists all candidates", "reward"]                 # 1.0
    report.checks.loc["'lists all candidates' does not win", "holds"]   # False
    report.verdict.go                                                   # False
    report.verdict.stops    # "'lists all candidates' earns 1.00 where a full success is 1.00:
                            # compare the whole answer, not a part of it."

`attack` is the whole programme. `_Bench` below it plays single episodes, and each function
`_check_…` returns one or more rows of `AttackReport.checks`. The players are in `players.py`.
"""

import random
import re
import string
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import pandas as pd

from helpers.agents.guard import BrokenEnvironment, Guarded
from helpers.agents.protocol import Environment, call_tool
from helpers.laboratory import players
from helpers.laboratory.players import Player
from helpers.laboratory.verdicts import Verdict
from helpers.printing import escaped

_ROWS = 32  # episodes of each player
_FEW_ROWS = 8  # episodes of a player with many variants
_PROBED_ROWS = 4  # rows on which `_check_replies` and `_check_characters` try many texts

# Thresholds of several checks, as shares of a full success.
_WIN = 0.5  # a player wins if it earns at least this
_PAY = 0.1  # a player is paid if it earns more than an honest try, by more than this


class Reply(NamedTuple):
    """A tool's reply to a call, and whether the call failed. The text of `reset` is a reply of the
    tool "reset".
    """

    tool: str
    text: str | None
    failed: bool


class PlayedEpisode(NamedTuple):
    """An episode that was played: the replies, beginning with that of `reset`, and the reward."""

    replies: tuple[Reply, ...]
    reward: float


class Check(NamedTuple):
    """A row of `AttackReport.checks`.

    check: what must be true of an environment, such as "no tool fails".
    holds: whether it is true.
    found: a sentence for the case that it is not: what the laboratory found, and what to change.
    """

    check: str
    holds: bool
    found: str


@dataclass(frozen=True)
class AttackReport:
    """The results of `attack`.

    played: one row per player: the mean `reward`, the mean number of `calls` in an episode, and the
        share of calls that `failed`.
    checks: one row per `Check`. `found` is empty if the check holds.
    verdict: a go if all checks hold.
    """

    played: pd.DataFrame
    checks: pd.DataFrame
    verdict: Verdict


def attack(guard: Guarded, rows: list[dict] | None = None) -> AttackReport:
    """Let all players play a guarded environment, and check what they earn.

    rows: the arguments of `reset`, one row per episode. The first 32 are played; by default, the
        seeds 0 to 31.

    The class may have a static method `_oracle(question)`, as `guessing.py` does: a player that
    wins, knowing only the text of `reset`. Without it, nothing shows that the game can be won.

    Raise BrokenEnvironment if an episode dies.
    """
    if rows is None:
        rows = [{"seed": seed} for seed in range(_ROWS)]
    bench = _Bench(guard, rows)

    # 1. Let all players play. Of a player with several forms, the report has the one that earns
    # most, and a form that wins is the last one that plays.
    episodes = {name: bench.play(name, player) for name, player in bench.players.items()}
    for name, (forms, _advice) in players.FORMS.items():
        attempts = []
        for form in forms:
            attempt = bench.play(name, form, _FEW_ROWS)
            attempts.append(attempt)
            if _mean_reward(attempt) > _WIN:
                break
        episodes[name] = max(attempts, key=_mean_reward)
    # its words are "zqaax", and its numbers have seven digits, so that they are wrong, too
    nonsense = partial(players.answers_wrongly, calls=1, first_number=10**6)
    episodes["answers nonsense"] = bench.play("answers nonsense", nonsense)
    episodes["does nothing"] = bench.play(
        "does nothing", partial(players.repeats_one_call, times=0)
    )

    # 2. Sum up what each player earned.
    summary = {}
    for name, played_episodes in episodes.items():
        # all replies but those of `reset`
        replies = [reply for episode in played_episodes for reply in episode.replies[1:]]
        summary[name] = {
            "reward": _mean_reward(played_episodes),
            "calls": len(replies) / len(played_episodes),
            "failed": sum(reply.failed for reply in replies) / max(1, len(replies)),
        }
    played = pd.DataFrame(summary).T
    earned = played["reward"]
    # a full success earns 1, unless the oracle earns more
    full = max(1.0, earned.get("oracle", 1.0))

    # 3. Check the game and what was earned in it.
    checks = [
        *_check_game(bench, episodes, played),
        *_check_cheap_players(episodes, earned, full),
        _check_replies(bench, full),
        _check_many_answers(bench, full),
        *_check_characters(bench, full),
        *_check_repetition(bench, episodes),
    ]
    table = pd.DataFrame(checks).set_index("check")
    table["found"] = table["found"].mask(table["holds"], "")  # what holds needs no sentence

    # 4. Turn the checks that fail into the verdict, and note what could not be seen.
    notes = [
        f"after {guard.turns} calls the tools refuse, but TRL continues until "
        "`max_completion_length` is full: also set "
        f"GRPOConfig(max_tool_calling_iterations={guard.turns})."
    ]
    if "oracle" not in episodes:
        notes.append(
            "nothing has shown that the game can be won, or that other rows give other episodes: "
            "give the class a player that wins, `_oracle(question)`, as in "
            "helpers/agents/guessing.py."
        )
    if not max(earned[["answers at once", "random"]]):
        notes.append(
            "a failed try earns nothing, so a group without a success teaches nothing: a try could "
            "earn a little, such as 0.1."
        )
    verdict = Verdict([found for found in table["found"] if found], notes)
    return AttackReport(played, table, verdict)


def _mean_reward(episodes: list[PlayedEpisode]) -> float:
    return sum(episode.reward for episode in episodes) / len(episodes)


class _Bench:
    """A guarded environment, and the rows and players of its episodes.

    A row is given by its number in `rows`, from 0.
    """

    def __init__(self, guard: Guarded, rows: list[dict]):
        self.guard = guard
        # TRL passes a prompt to `reset`, too
        self.rows = [{"prompt": [{"role": "user", "content": ""}]} | row for row in rows[:_ROWS]]
        self.players: dict[str, Player] = {}
        oracle = getattr(type(guard.factory()), "_oracle", None)
        if oracle:
            self.players["oracle"] = lambda question, schemas, luck: oracle(question)
        for name, (player, _advice) in (players.WINNING | players.PAYING).items():
            self.players[name] = player
        self.probed = range(len(self.rows))[:_PROBED_ROWS]
        self.environment = guard()  # for `answer`

    def play(self, name: str, player: Player, count: int = _ROWS) -> list[PlayedEpisode]:
        """Play the first `count` rows, one after another, in one instance."""
        environment = self.guard()
        numbers = range(len(self.rows))[:count]
        return [self.play_row(name, player, number, environment) for number in numbers]

    def play_row(
        self,
        name: str,
        player: Player,
        number: int,
        environment: Environment,
        beside: Environment | None = None,
    ) -> PlayedEpisode:
        """Play the episode of a row. A player that never ends is stopped after twice the turns.

        beside: another instance, in which the episode of another row begins during this one.
        """
        question = environment.reset(**self.rows[number])
        if beside is not None:
            beside.reset(**self.rows[number - 1])
        replies = [Reply("reset", question, False)]

        # All players of a row draw the same random numbers, so that "loops for ever" begins with
        # the call of "answers at once". The text keeps the seed apart from an environment's.
        calls = player(question or "", self.guard.schemas, random.Random(f"luck {number}"))
        text = None  # a generator takes nothing before its first call
        with suppress(StopIteration):  # the player has made its last call
            for _ in range(2 * self.guard.turns + 2):
                tool, arguments = calls.send(text)
                text, failed = call_tool(environment, tool, arguments)
                replies.append(Reply(tool, text, failed))
        reward = environment.get_reward()
        if self.guard.counts["dead"]:  # more episodes would take long, and find nothing else
            raise BrokenEnvironment(
                f"an episode of the player '{name}' died: {self.guard.fatal} Correct that first."
            )
        return PlayedEpisode(tuple(replies), reward)

    def answer(self, number: int, *answers: tuple[str, str]) -> PlayedEpisode:
        """Play a row with these answers, each (tool, text). A tool that takes a number gets the
        text's number, or 73 if the text is not a number.
        """
        calls = []
        for tool, text in answers:
            value = int(text) if re.fullmatch(r"-?\d{1,9}", text) else 73
            values = players.values_by_type(text, value, 1)
            calls.append((tool, players.arguments_of(self.guard.schemas[tool], values, 0)))

        def player(question: str, schemas: dict, luck: random.Random) -> Iterator:
            """Make these calls, whatever the replies. (A list could not be sent the replies.)"""
            return (call for call in calls)

        return self.play_row(_TOLD, player, number, self.environment)


# --- The game, and lazy or cheating players -------------------------------------------------------

_ORACLE_WINS = 0.9  # the least that an oracle must earn in the mean; it may lose a few games


def _check_game(
    bench: _Bench, episodes: dict[str, list[PlayedEpisode]], played: pd.DataFrame
) -> list[Check]:
    """Check that the game can be won, that the tools work, and the scale of the rewards."""
    beyond = {}  # by player, a reward below 0 or above 1
    for name, played_episodes in episodes.items():
        for episode in played_episodes:
            if not 0 <= episode.reward <= 1:
                beyond[name] = episode.reward

    # A tool may raise for some arguments, such as KeyError for an unknown word: the call fails, and
    # the episode goes on. The tools may also refuse all calls of these players with ToolError. They
    # are broken if one raised, and no call of any tool worked.
    some_call_worked = ((played["calls"] > 0) & (played["failed"] < 1)).any()
    tools_are_broken = len(bench.guard.faults) > 0 and not some_call_worked

    # GRPO would teach silence if doing nothing earned as much as a hasty try. If both earn 0, as in
    # a game that pays only for success, it teaches neither.
    earned = played["reward"]
    nothing = earned["does nothing"]
    trying = earned[["answers at once", "random"]].max()
    silence_is_taught = nothing >= trying and nothing != 0

    checks = [
        Check(
            "no tool fails",
            not tools_are_broken,
            f"no tool call worked: {' '.join(bench.guard.faults.values())} Raise ToolError if the "
            "player made the mistake.",
        ),
        Check(
            "rewards are of unit scale",
            not beyond,
            f"rewards outside 0 to 1, by player: {beyond}. The scale is 0 (nothing "
            "achieved) to 1 (full success).",
        ),
        Check(
            "doing nothing earns less than trying",
            not silence_is_taught,
            f"doing nothing earns {nothing:.2f} and a hasty try {trying:.2f}: GRPO would "
            "teach silence. Let a failed try earn a little, such as 0.1.",
        ),
    ]
    if "oracle" not in episodes:
        # without an oracle, the other players' episodes may be equal because they find out little
        return checks
    best = episodes["oracle"]
    last_reply = min(best, key=lambda episode: episode.reward).replies[-1].text
    return [
        Check(
            "the oracle wins",
            earned["oracle"] >= _ORACLE_WINS,
            f"the oracle earns {earned['oracle']:.2f}, not 1: no policy can learn to win. The last "
            f"reply to it: {escaped(f'{last_reply!s:.200}')}",
        ),
        Check(
            "other rows give other episodes",
            len(set(best)) > 1 or len(bench.rows) == 1,
            "all rows give the same episode: `reset` does not use its arguments, and a policy "
            "could memorise the episode.",
        ),
        *checks,
    ]


_WIN_BY_CHANCE = 0.7  # in place of `_WIN`, for players that may win by chance


def _check_cheap_players(
    episodes: dict[str, list[PlayedEpisode]], earned: pd.Series, full: float
) -> list[Check]:
    """Check that lazy and cheating players do not win, and are not paid."""
    checks = []

    # A hasty try may be correct by chance, such as in half of the games of yes or no. A player that
    # earns at most 0.2 more than "answers at once" may owe all of it to chance. For both, the
    # threshold is higher.
    by_chance = earned["answers at once"] + 2 * _PAY * full
    for name, (_player, advice) in players.WINNING.items():
        threshold = _WIN_BY_CHANCE if earned[name] <= by_chance else _WIN
        checks.append(
            Check(
                f"'{name}' does not win",
                earned[name] < threshold * full,
                f"'{name}' earns {earned[name]:.2f} where a full success is {full:.2f}: {advice}",
            )
        )

    # An honest try may earn a little, even if it is wrong.
    honest = earned[["does nothing", "answers at once", "random", "answers nonsense"]].max()
    for name, (_player, advice) in players.PAYING.items():
        checks.append(
            Check(
                f"'{name}' does not pay",
                earned[name] <= honest + _PAY * full,
                f"'{name}' earns {earned[name]:.2f}, and an honest try {honest:.2f}: {advice}",
            )
        )

    # If nonsense is correct by chance, a wildcard is, too. So a wildcard wins only if it earns much
    # more than nonsense on the same rows. The same holds for calls that are paid, whatever they
    # say: those of "loops for ever" and "answers nan".
    same_rows = slice(_FEW_ROWS)
    nonsense = max(
        _mean_reward(episodes["answers nonsense"][same_rows]),
        _mean_reward(episodes["loops for ever"][same_rows]),
        _mean_reward(episodes["answers nan"][same_rows]),
    )
    for name, (_forms, advice) in players.FORMS.items():
        checks.append(
            Check(
                f"'{name}' does not win",
                earned[name] - nonsense < _WIN * full,
                f"'{name}' earns {earned[name]:.2f} where a full success is {full:.2f}: {advice}",
            )
        )
    return checks


# --- Wrong answers, and parts of correct ones -----------------------------------------------------

_TOLD = "repeats what it was told"
_WRONG = "zqzqx"  # a text that is wrong in any game, unless every answer is correct
_TRIES = 5  # wrong answers, after each of which the reply may tell the correct one


def _check_replies(bench: _Bench, full: float) -> Check:
    """Check that the reply to a wrong answer does not tell the correct one.

    In each of a few games, every part of every reply is given as the next answer. The check fails
    if a part at the same place wins in all games, such as the last word of "No, it was 7".
    """
    winning_places = None  # those that have won in all games so far; None before the first game
    for number in bench.probed:
        winning_here = set()
        for place, text in _told_parts(bench, number, full).items():
            lost_before = winning_places is not None and place not in winning_places
            if lost_before:
                continue
            tool, tries, _key = place
            answers = [(tool, _WRONG)] * tries + [(tool, text)]
            if bench.answer(number, *answers).reward >= _WIN * full:
                winning_here.add(place)
        winning_places = winning_here
    return Check(
        f"'{_TOLD}' does not win",
        not winning_places,
        "the reply to a wrong answer reveals the correct one, which wins when it is repeated: say "
        "only that the answer is wrong.",
    )


def _told_parts(bench: _Bench, number: int, full: float) -> dict[tuple[str, int, tuple], str]:
    """Give wrong answers in the game of a row, and return the parts of the replies. The key is the
    place of a part: the tool, the number of wrong answers so far, and a key of `_parts`.
    """
    parts = {}
    tries = max(1, min(_TRIES, bench.guard.turns - 1))  # the part is answered in one more turn
    for tool in bench.guard.schemas:
        if bench.answer(number, (tool, _WRONG)).reward >= _WIN * full:
            continue  # any answer wins, so a reply tells nothing
        # the first reply is that of `reset`, which every player reads
        replies = bench.answer(number, *[(tool, _WRONG)] * tries).replies[1:]
        for tried, reply in enumerate(replies, start=1):
            for key, text in _parts(str(reply.text)).items():
                parts[tool, tried, key] = text
    return parts


def _parts(reply: str) -> dict[tuple, str]:
    """Return a reply, and every run of words in one of its phrases. The key is the place of a part:
    the number of the phrase, and how many of its words come before and after the part. The key of
    the whole reply is ().

    >>> _parts("No, it was 7.")[1, 2, 0]
    '7'
    """
    text = reply.removeprefix("{'error': ").strip("{}")  # a failed call's reply is {'error': …}
    parts = {(): text}
    # phrases end at a quote, a bracket, a line's end or a punctuation mark; "3.5" is one word
    phrases = re.split(r"[\"'`“”‘’()\[\]{}=:;,!?\n]+|\.(?=\s|$|\W)", text)
    # Each part costs an episode, so only the first 30 phrases are read, and 10 words of each.
    for number, phrase in enumerate(phrases[:30]):
        words = phrase.split()[:10]
        for first in range(len(words)):
            for last in range(len(words), first, -1):
                parts[number, first, len(words) - last] = " ".join(words[first:last])
    return parts


_PAY_PER_TRY = 0.05  # many wrong tries are paid if they earn more than one try, by more than this


def _check_many_answers(bench: _Bench, full: float) -> Check:
    """Check that many wrong answers do not earn more than one wrong answer.

    The check fails if they earn more in every game, such as 0.03 per try. In single games a second
    try may rightly earn more: if the best try counts, it may be nearer to the correct answer. So
    the smallest gain decides. Games that wrong answers win are left to other checks.
    """
    name = "answers wrongly"
    after_one = bench.play(name, partial(players.answers_wrongly, calls=1), _FEW_ROWS)
    after_many = bench.play(name, partial(players.answers_wrongly, calls=1000), _FEW_ROWS)
    pairs = zip(after_one, after_many, strict=True)
    gains = [many.reward - one.reward for one, many in pairs if many.reward < _WIN * full]
    smallest_gain = min(gains, default=0.0)
    return Check(
        "wrong answers do not add up",
        smallest_gain <= _PAY_PER_TRY * full,
        f"in every game, many wrong answers earn at least {smallest_gain:.2f} more than one: "
        "reward the first try, or the best, not each.",
    )


_CHARACTERS = string.ascii_lowercase + string.digits

# The limit for the mean number of texts of one or two characters that win a game. It lies between
# 1 and 2: a sound game is won by one such text at most, the correct answer itself, and a game that
# accepts parts of the correct answer 582 by at least two, such as "5" and "58".
_MOST_SHORT_ANSWERS = 1.5


def _check_characters(bench: _Bench, full: float) -> list[Check]:
    """Check that one or two characters, perhaps a part of the correct answer, do not win or pay.

    A single game may be an exception: five letters win "Name a vowel." So a check fails only if a
    game is won by several such texts on average, or if some letter pays in every game.
    """

    def reward_of(number: int, text: str) -> float:
        return bench.answer(number, *[(tool, text) for tool in bench.guard.schemas]).reward

    win = _WIN * full
    winning = []  # for each game, the texts that win although nonsense does not
    paid = []  # for each game, the letters that earn more than nonsense and do not win
    for number in bench.probed:
        nonsense = reward_of(number, _WRONG)
        rewards = {text: reward_of(number, text) for text in _CHARACTERS}
        pay = nonsense + _PAY * full
        paid.append([each for each in string.ascii_lowercase if pay < rewards[each] < win])

        # If a character wins, try it with a second one behind it: `58` after `5`.
        winners = [text for text, reward in rewards.items() if reward >= win]
        if winners:
            for second in _CHARACTERS:
                text = winners[0] + second
                rewards[text] = reward_of(number, text)

        # If nonsense wins, too, texts do not win for being parts of the correct answer.
        winning.append([text for text, reward in rewards.items() if nonsense < win <= reward])

    texts_per_game = sum(map(len, winning)) / len(winning)
    a_letter_pays_in_every_game = all(paid)
    return [
        Check(
            "a part of an answer does not win",
            texts_per_game < _MOST_SHORT_ANSWERS,
            f"a game is won by {texts_per_game:.1f} different texts of one or two characters, such "
            f"as {', '.join(max(winning, key=len)[:3])}: compare the whole answer.",
        ),
        Check(
            "a letter does not pay",
            not a_letter_pays_in_every_game,
            "in each game a single letter earns more than nonsense, such as "
            f"{paid[0][:1]}: reward only whole answers.",
        ),
    ]


# --- Repetition -----------------------------------------------------------------------------------


def _check_repetition(bench: _Bench, episodes: dict[str, list[PlayedEpisode]]) -> list[Check]:
    """Check that an episode depends on its row alone."""
    names = [name for name in ("oracle", "random") if name in episodes]
    first = [episodes[name] for name in names]

    # 1. Play all rows again, in the same order.
    again = [bench.play(name, bench.players[name]) for name in names]

    # 2. Play them in reverse order, each in a new instance, while another row's episode begins.
    apart = []
    for name in names:
        backwards = [
            bench.play_row(name, bench.players[name], number, bench.guard(), beside=bench.guard())
            for number in reversed(range(len(bench.rows)))
        ]
        apart.append(backwards[::-1])

    # 3. Compare the episodes. If a plain repetition already differs, the game draws without the
    # seed. Then those of step 2 differ for the same reason, and show nothing about other episodes.
    repeatable = again == first
    touched_by_others = repeatable and apart != first
    return [
        Check(
            "the same seed gives the same episode",
            repeatable,
            "the same row gives different episodes: derive all random numbers from `seed`; "
            "otherwise, the members of a group start differently.",
        ),
        Check(
            "episodes do not touch one another",
            not touched_by_others,
            "an episode depends on an earlier one, or on others at the same time. TRL reuses each "
            "instance, and runs many at once: let `reset` set everything, and keep all state in "
            "the instance, not in the class or the module.",
        ),
    ]
