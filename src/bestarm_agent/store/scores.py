"""The scores of a run in two forms: one record per ask ("long"), or the (K, N) grid ("matrix")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.outcome import Outcome, Scored
from bestarm_agent.domain.spend import usd
from bestarm_agent.store.fold import RunState, state_of


@dataclass(frozen=True, slots=True)
class Record:
    """One ask, and what became of it.

    Attributes:
        candidate: the candidate's label, made unique.
        example: the example's id.
        score: in [0, 1]; None while pending or if void.
        state: "done", "failed" (the candidate's own failure), "void" or "pending".
        seq: the ask's number.
        propensity: probability of having drawn this example, or None.
        reason: the rule's word for why.
        candidate_id: digest of the candidate's content.
        provider: its provider.
        model: its model.
        cost: dollars spent on the pair, retries and judge included; None while pending, as all
            that follows.
        tokens: prompt plus generated tokens spent on the pair.
        calls: requests sent for the pair.
        gpu_seconds: worker seconds spent on the pair.
        seconds: wall-clock seconds of the call that counted.
        cached: whether the reply came from the cache; None if there is none.
        failure: what went wrong, or None.
        answer: what was read out of the reply; None unless texts are asked for.
        message: the failure in words; None unless texts are asked for.
    """

    candidate: str
    example: str
    score: float | None
    state: str
    seq: int
    propensity: float | None
    reason: str
    candidate_id: str
    provider: str
    model: str
    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None
    gpu_seconds: float | None = None
    seconds: float | None = None
    cached: bool | None = None
    failure: str | None = None
    answer: str | None = None
    message: str | None = None


def labels(state: RunState) -> list[str]:
    """The K candidates' labels, or ids; where two agree, with the row's number."""
    names = [candidate.label or candidate.id for candidate in state.candidates]
    count = Counter(names)
    return [name if count[name] == 1 else f"{name} #{row}" for row, name in enumerate(names)]


def records(state: RunState, *, texts: bool = False) -> Iterator[Record]:
    """One record per ask, in ask order.

    Args:
        state: the run.
        texts: whether to add the answers and the failures' messages.
    """
    names = labels(state)
    for ask in state.asks:
        candidate = state.candidates[ask.candidate]
        told = state.told.get(ask.seq)
        yield Record(
            candidate=names[ask.candidate],
            example=state.example_ids[ask.example],
            score=told.score if told else None,
            state=state_of(told).name.lower(),
            seq=ask.seq,
            propensity=ask.propensity,
            reason=ask.reason,
            candidate_id=candidate.id,
            provider=candidate.provider,
            model=candidate.model,
            **(_outcome_fields(told.outcome, texts) if told else {}),
        )


def matrix_rows(state: RunState) -> Iterator[NDArray[np.float64]]:
    """The K rows of the grid, each (N,) in [0, 1] with NaN where there is no score."""
    scored: list[list[tuple[int, float]]] = [[] for _ in state.candidates]
    for told in state.told.values():
        if told.score is not None:
            ask = state.asks[told.seq]
            scored[ask.candidate].append((ask.example, told.score))
    for cells in scored:
        row = np.full(len(state.example_ids), np.nan)
        for example, score in cells:
            row[example] = score
        yield row


def matrix(state: RunState) -> NDArray[np.float64]:
    """(K, N) scores in [0, 1]; NaN where there is none. Builds the whole grid."""
    grid = np.empty((len(state.candidates), len(state.example_ids)))
    for row, scores in enumerate(matrix_rows(state)):
        grid[row] = scores
    return grid


def _outcome_fields(outcome: Outcome, texts: bool) -> dict[str, Any]:
    spend = outcome.spend
    result = {
        "cost": usd(spend.usd_nanos),
        "tokens": spend.tokens,
        "calls": spend.calls,
        "gpu_seconds": spend.gpu_seconds,
        "seconds": outcome.seconds,
    }
    if isinstance(outcome, Scored):
        answer = _clean(outcome.answer) if texts else None
        return {**result, "cached": outcome.cached, "answer": answer}
    message = _clean(outcome.message) if texts else None
    return {**result, "failure": outcome.kind.value, "message": message}


def _clean(text: str | None) -> str | None:
    """Spell out lone surrogates, which models do send and no file format takes."""
    return text and text.encode("utf-8", "backslashreplace").decode()
