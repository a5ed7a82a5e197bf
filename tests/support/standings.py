"""Standings made by hand, for tests of what people see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bestarm_agent.domain.events import CandidatesAdded, ExamplesAdded, Started
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Candidate, PromptTemplate
from bestarm_agent.engine.limits.waits import Wait
from bestarm_agent.engine.results.decision import decided
from bestarm_agent.engine.results.from_log import build_standing
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Problem, State, Tell
from bestarm_agent.store.run_state import RunState, fold

PROMPT = PromptTemplate("q", text="{{ question }}")


def changed(standing: Standing, **changes: object) -> Standing:
    """A standing with other fields, and the decision that follows from them."""
    return decided(replace(standing, **changes))  # type: ignore[arg-type]


def state_of(labels: list[str], n_examples: int, name: str = "study") -> RunState:
    """A run in which nothing was asked yet."""
    candidates = tuple(Candidate("p", f"m{i}", PROMPT, {}, label) for i, label in enumerate(labels))
    ids = tuple(f"e{j}" for j in range(n_examples))
    return fold(
        [
            Started(name, "2026-01-01T00:00:00+00:00", "0.1.0", {}, "."),
            ExamplesAdded(ids, ids),
            CandidatesAdded(candidates, tuple(0.0 for _ in candidates)),
        ]
    )


def selector_with(scores: list[list[float]], n_examples: int) -> Pairs:
    """A selector that was told some scores of each candidate, and nothing else."""
    selector = make_selector(
        "uniform", Problem(len(scores), n_examples, seed=1, stop_when_separated=False)
    )
    for i, row in enumerate(scores):
        only = np.arange(len(scores)) == i
        for score in row:
            [ask] = selector.ask(allowed=only)
            selector.tell([Tell(ask.seq, State.DONE, score)])
    return selector


def standing_of(labels: list[str], selector: Pairs, n_examples: int) -> Standing:
    """A standing of candidates as a selector has them."""
    return build_standing(
        state_of(labels, n_examples),
        selector,
        "20260101-000000-abcd",
        budget=Budget(),
        spent=Spend(),
        seconds=75.0,
        broken={},
    )


def standing_with(
    labels: list[str],
    scores: list[list[float]],
    *,
    n_examples: int = 20,
    name: str = "study",
    budget: Budget | None = None,
    spent: Spend | None = None,
    waits: tuple[Wait, ...] = (),
    broken: dict[str, str] | None = None,
) -> Standing:
    """A standing in which the candidates scored so far."""
    return build_standing(
        state_of(labels, n_examples, name),
        selector_with(scores, n_examples),
        "20260101-000000-abcd",
        budget=budget or Budget(),
        spent=spent or Spend(),
        seconds=75.0,
        broken=broken or {},
        in_flight=3,
        waits=waits,
    )
