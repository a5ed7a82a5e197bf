"""Odd values of plug-ins: each is the outcome of its pair, and the run and its log go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import pytest

from bestarm_agent import Options, Study
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Example, Position, Reply, Request, Score, Token, Vote
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import Blame, FailureKind, JudgeError, PluginError, ProviderError
from bestarm_agent.judges.base import Calls, Judge, JudgeOptions
from bestarm_agent.providers.base import Capabilities, Provider, ProviderOptions
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.study import Archive

EXAMPLES = [Example(f"e{i}", {"q": f"{i}"}, "yes") for i in range(8)]
ODD = "e3"
NAN, INFINITE = float("nan"), float("inf")
DEFECT: Any = object()


class Unspeakable(Exception):
    """Cannot even be written."""

    def __str__(self) -> str:
        raise RuntimeError


def raising(error: BaseException) -> Callable[..., Never]:
    def act(*_arguments: object) -> Never:
        raise error

    return act


def altered(made: Any, **fields: Any) -> Any:  # noqa: ANN401 - no value is too odd
    """Change a value behind its own checks, as a subclass or another language can."""
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def reply(**fields: Any) -> Callable[[], Any]:  # noqa: ANN401
    return lambda: altered(Reply("yes"), **fields)


def score(**fields: Any) -> Callable[[], Any]:  # noqa: ANN401
    return lambda: altered(Score(1.0), **fields)


RAISED = {
    "key": raising(KeyError("q")),
    "exit": raising(SystemExit(1)),
    "stop": raising(StopIteration()),
    "cancelled": raising(asyncio.CancelledError()),
    "unspeakable": raising(Unspeakable()),
    "long": raising(ValueError("x" * 10**6)),
    "a kind of its own": lambda: ProviderError("?", kind=DEFECT),
    "a wait that never ends": lambda: ProviderError(
        "?", kind=FailureKind.RATE_LIMITED, retry_after=NAN
    ),
}
REPLIES: dict[str, Callable[[], Any]] = {
    **RAISED,
    "none": lambda: None,
    "a number": lambda: 1.5,
    "bytes": lambda: b"yes",
    "a text": lambda: "yes",
    "no seconds": reply(seconds=NAN),
    "endless": lambda: Reply("yes", seconds=INFINITE),
    "before it began": lambda: Reply("yes", seconds=-1.0),
    "a trillion dollars": lambda: Reply("yes", usd_nanos=10**21),
    "a debt": reply(usd_nanos=-1),
    "fractions of a nano-dollar": reply(usd_nanos=1.5),
    "a score above 1": lambda: Reply("yes", score=1.5),
    "a score in words": reply(score="high"),
    "no text": reply(text=None),
    "text in bytes": reply(text=b"yes"),
    "endless text": lambda: Reply("x" * 5_000_000),
    "endless thoughts": reply(reasoning="x" * 5_000_000),
    "minus infinity": reply(logprobs=(Position(Token("yes", -INFINITE)),)),
    "tokens that were not used": lambda: Reply("yes", usage=Usage(output=-5)),
    "too many tokens": lambda: Reply("yes", usage=Usage(output=10**30)),
    "no usage": reply(usage=None),
    "an end of its own": reply(finish="tired"),
    "an object among what was sent": reply(sent={"client": DEFECT}),
    "calls": reply(calls=INFINITE),
}
SCORES: dict[str, Callable[[], Any]] = {
    **RAISED,
    "none": lambda: None,
    "a number": lambda: 1.0,
    "true": lambda: True,
    "above 1": lambda: Score(1.5),
    "nan": score(value=NAN),
    "in words": score(value="good"),
    "gold": lambda: Score(1.0, gold=-0.5),
    "measures": lambda: Score(1.0, measures=(2.0,)),
    "votes": score(votes=(1,)),
    "a vote": score(votes=(altered(Vote("me", 1.0), value=7),)),
    "an answer that is none": score(answer=5),
    "blame": lambda: JudgeError("?", kind=FailureKind.JUDGE_FAILED, blame=DEFECT),
}


Odd = Callable[[], Any]


class Plugin(Provider[ProviderOptions]):
    """Answers "yes", and once what it is given to."""

    def __init__(self, odd: Odd | None) -> None:
        super().__init__("plugin", ProviderOptions(), Path())
        self.odd = odd

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(frozenset(), price_source="plug-in", by_example=True)

    def bound(self, request: Request) -> Spend:
        return Spend(calls=1, tokens=10, usd_nanos=1000)

    async def generate(self, request: Request) -> Reply:
        await asyncio.sleep(0)
        if self.odd is not None and request.example == ODD:
            found: Any = self.odd()
            if isinstance(found, BaseException):
                raise found
            made: Reply = found
            return made
        return Reply("yes", usd_nanos=10, usage=Usage(output=1))


class Scorer(Judge):
    """Scores 1, and once what it is given."""

    def __init__(self, odd: Odd | None) -> None:
        super().__init__("scorer", JudgeOptions())
        self.odd = odd

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        await asyncio.sleep(0)
        if self.odd is not None and example.id == ODD:
            found: Any = self.odd()
            if isinstance(found, BaseException):
                raise found
            made: Score = found
            return made
        return Score(1.0)


def run(
    folder: Path,
    *,
    provider: Callable[[], Any] | None = None,
    judge: Callable[[], Any] | None = None,
) -> tuple[Standing, PairOutcome]:
    """Run a study to its end, read it back; return where it stands, and the odd pair."""
    config: dict[str, Any] = {
        "candidates": [{"model": "plugin/m", "prompt": "p"}],
        "prompts": [{"p": "{{ q }}"}],
        "dataset": "given.jsonl",
        "scorer": "exact",
        "selector": {"name": "uniform", "stop_when_separated": False},
    }
    place = folder / "runs.sqlite"
    objects = Options(store=place, judge=Scorer(judge), providers={"plugin": Plugin(provider)})

    async def scene() -> tuple[Standing, PairOutcome]:
        async with Study.open(config, examples=EXAMPLES, options=objects) as study:
            standing = await study.run()
            [odd] = [pair async for pair in study.outcomes() if pair.example == ODD]
        stored = (await Archive(place).record("latest")).standing
        assert (stored.told, stored.end) == (standing.told, standing.end)
        return standing, odd

    return asyncio.run(scene())


def check(standing: Standing, pair: PairOutcome) -> None:
    assert (standing.end, standing.asked, standing.told) == ("exhausted", 8, 8)
    assert [(row.n, row.void) for row in standing.rows] == [(7, 1)]
    assert pair.message
    assert len(pair.message) < 2_500


@pytest.mark.parametrize("odd", REPLIES.values(), ids=REPLIES)
def test_an_odd_reply_is_the_outcome_of_its_pair(tmp_path: Path, odd: Odd) -> None:
    standing, pair = run(tmp_path, provider=odd)
    check(standing, pair)
    assert pair.failure == "internal"


@pytest.mark.parametrize("odd", SCORES.values(), ids=SCORES)
def test_an_odd_score_is_the_outcome_of_its_pair(tmp_path: Path, odd: Odd) -> None:
    standing, pair = run(tmp_path, judge=odd)
    check(standing, pair)
    assert pair.failure == "judge-failed"


def test_what_came_back_and_cannot_be_read_is_charged_as_if_it_had_been_answered(
    tmp_path: Path,
) -> None:
    standing, _ = run(tmp_path, provider=reply(seconds=NAN))
    assert standing.spent.usd_nanos == 7 * 10 + 1000


def test_blames() -> None:
    assert JudgeError("?", kind=FailureKind.JUDGE_FAILED, blame=Blame.JUDGE).blame is Blame.JUDGE
    with pytest.raises(ValueError, match="tired"):
        ProviderError("?", kind="tired")  # type: ignore[arg-type] # as plug-ins may


def overriding(
    monkeypatch: pytest.MonkeyPatch, base: type, name: str, method: Callable[..., Any]
) -> None:
    """Let a plug-in's class override one of the methods that the engine asks about pairs."""
    made = type("Overriding", (base,), {name: method, "__module__": "somebodys"})
    monkeypatch.setattr(f"{__name__}.{base.__name__}", made)


def for_one(odd: Odd) -> Callable[..., Any]:
    def bound(_self: Provider, request: Request) -> Any:  # noqa: ANN401
        return odd() if request.example == ODD else Spend(calls=1)

    return bound


BOUNDS: dict[str, Odd] = {
    "key": raising(KeyError("q")),
    "none": lambda: None,
    "a number": lambda: 1.5,
    "nan": lambda: Spend(calls=1, gpu_seconds=NAN),
    "a debt": lambda: Spend(calls=1, usd_nanos=-5),
    "more than there is": lambda: Spend(usd_nanos=10**30),
}


@pytest.mark.parametrize("odd", BOUNDS.values(), ids=BOUNDS)
def test_an_odd_bound_is_the_outcome_of_its_pair(
    tmp_path: Path, odd: Odd, monkeypatch: pytest.MonkeyPatch
) -> None:
    overriding(monkeypatch, Plugin, "bound", for_one(odd))
    check(*run(tmp_path))


@pytest.mark.parametrize("odd", [raising(KeyError("q")), lambda: None, lambda: 5, lambda: [5]])
@pytest.mark.parametrize(
    ("base", "name"),
    [(Plugin, "capabilities"), (Plugin, "fingerprint"), (Plugin, "bound")],
)
def test_what_is_odd_of_every_pair_is_said_before_the_first(
    tmp_path: Path, base: type, name: str, odd: Odd, monkeypatch: pytest.MonkeyPatch
) -> None:
    overriding(monkeypatch, base, name, lambda *_arguments: odd())
    with pytest.raises(PluginError):
        run(tmp_path)


@pytest.mark.parametrize("base", [Plugin, Scorer])
@pytest.mark.parametrize("odd", [raising(KeyError("q")), lambda: 5])
def test_a_check_raises_config_errors_or_nothing(
    tmp_path: Path, base: type, odd: Odd, monkeypatch: pytest.MonkeyPatch
) -> None:
    overriding(monkeypatch, base, "check", lambda *_arguments: odd())
    with pytest.raises(PluginError):
        run(tmp_path)


def test_what_no_future_takes_is_raised_as_a_study_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overriding(monkeypatch, Scorer, "unrecognised", raising(StopIteration("no line")))
    with pytest.raises(RuntimeError, match="StopIteration: no line"):
        run(tmp_path)


def test_a_provider_that_does_not_start_is_a_mistake_of_the_plug_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overriding(monkeypatch, Plugin, "start", raising(KeyError("q")))
    with pytest.raises(PluginError, match="provider `plugin` did not start"):
        run(tmp_path)


def test_a_provider_that_does_not_close_takes_no_result_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    overriding(monkeypatch, Plugin, "close", raising(KeyError("q")))
    standing, _ = run(tmp_path)
    assert (standing.end, standing.told) == ("exhausted", 8)
    assert "provider `plugin` did not close" in caplog.text
