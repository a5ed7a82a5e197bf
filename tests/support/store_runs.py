"""Events to try stores with: one of every kind, and whole small runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bestarm_agent.domain.events import (
    Asked,
    BudgetSet,
    CandidatesAdded,
    Event,
    ExamplesAdded,
    Resumed,
    Started,
    Stopped,
    Told,
)
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import (
    Candidate,
    Failure,
    Finish,
    Message,
    Outcome,
    PromptTemplate,
    Reply,
    Score,
    Vote,
)
from bestarm_agent.errors import Blame, FailureKind
from bestarm_agent.store.store import RunLog, Store, open_store

AT = "2026-11-21T09:30:15.250000Z"


def started(name: str = "study") -> Started:
    """Return a first event."""
    return Started(name, AT, "0.1.0", {"selector": {"name": "ucb-e", "seed": 7}}, "..", judge="d1")


def asked(seq: int, candidate: int = 0, example: int | None = None) -> Asked:
    """Return an ask, of example ``seq`` if no other is given."""
    return Asked(seq, candidate, seq if example is None else example, "ucb", ((1, 1),))


def told(seq: int, score: float = 1.0) -> Told:
    """A scored ask that cost 12 tokens and 1,500 nano-dollars, a time-out and judging included."""
    spend = Spend(answers=1, calls=1, tokens=12, usd_nanos=1500, gpu_seconds=0.125)
    usage = Usage(input=9, cached=4, output=3, reasoning=1)
    outcome = Outcome(
        Score(score, "46", (Vote("openai/m", 1.0, "7", "right"),), gold=0.5),
        spend=spend,
        judge_spend=Spend(calls=1, tokens=5, usd_nanos=700),
        lost_spend=Spend(calls=1, usd_nanos=200),
        reply_key=f"key-{seq}",
        usage=usage,
        seconds=0.5,
        usd_nanos=600,
    )
    return Told(seq, outcome, score)


def failed(seq: int, *, score: float | None = None) -> Told:
    """Return an ask that timed out; with a score, one that the candidate refused to answer."""
    kind, blame = FailureKind.TIMEOUT, Blame.PROVIDER
    if score is not None:
        kind, blame = FailureKind.REFUSED, Blame.CANDIDATE
    failure = Failure(kind, blame, "no answer")
    return Told(seq, Outcome(failure=failure, spend=Spend(calls=3), seconds=1.5), score)


def grid(n_candidates: int = 2, n_examples: int = 1000) -> list[Event]:
    """Return candidates and examples, for a run that has started."""
    prompts = (
        PromptTemplate("plain", text="{{ question }}="),
        PromptTemplate("chat", messages=(Message("user", "{{ question }}"),)),
    )
    candidates = tuple(
        Candidate("hf", f"model-{i}", prompts[i % 2], {"temperature": i / 10}, f"model {i}")
        for i in range(n_candidates)
    )
    ids = tuple(f"example-{j}" for j in range(n_examples))
    digests = tuple(f"{j:016x}" for j in range(n_examples))
    costs = tuple((0.25, None)[i % 2] for i in range(n_candidates))
    prices = tuple(("study", None)[i % 2] for i in range(n_candidates))
    return [CandidatesAdded(candidates, costs, prices), ExamplesAdded(ids, digests)]


def small_run(name: str = "study") -> list[Event]:
    """Return a run of two sessions with most kinds of event; one ask has no outcome."""
    return [
        started(name),
        *grid(),
        BudgetSet(Budget(usd_nanos=10**9, calls=100)),
        asked(0),
        asked(1),
        asked(2, candidate=1),
        told(1, 0.5),
        Stopped(AT, "interrupted", 2.5),
        Resumed(AT, "0.1.1"),
        BudgetSet(Budget(calls=200, seconds=60.5)),
        failed(0),
        failed(2, score=0.0),
        asked(3, candidate=1),
        Stopped(AT, "budget", 1.5),
    ]


def reply(text: str = "46") -> Reply:
    """Return a reply with every field set."""
    return Reply(
        text=text,
        finish=Finish.LENGTH,
        usage=Usage(input=9, output=3),
        usd_nanos=1500,
        seconds=0.5,
        gpu_seconds=0.125,
        model="model-0-2026",
        request_id="req-1",
        score=0.5,
    )


def outcomes_in(store: Store | str | Path, run: str = "latest") -> list[Outcome]:
    """Return the outcomes that a store has of a run, in the order of telling."""

    async def read() -> list[Event]:
        async with open_store(store, create=False) as opened:
            return await opened.events_of(run)

    return [event.outcome for event in asyncio.run(read()) if isinstance(event, Told)]


async def begin(store: Store, name: str = "study") -> RunLog:
    """Begin a run whose start is durable."""
    log = await store.create(name)
    log.append(started(name))
    await log.flush()
    return log
