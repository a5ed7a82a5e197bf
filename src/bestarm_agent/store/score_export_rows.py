"""The scores of a run, as one record per ask or as the (K, N) grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.outcome import Outcome, Scored
from bestarm_agent.domain.spend import usd
from bestarm_agent.store.pair_records import state_of
from bestarm_agent.store.run_state import RunState


class Texts(NamedTuple):
    """Texts of an ask that are not fields of its outcome as they stand."""

    prompt: str | None = None  # as rendered
    target: str | None = None  # the acceptable answers, one per line
    reply: str | None = None  # raw
    verdicts: str | None = None  # of a judge, with their reasoning, one per line


@dataclass(frozen=True, slots=True)
class Record:
    """One ask and its outcome; while it is pending, ``cost`` and what follows are None."""

    candidate: str  # its label, made unique
    example: str  # its id
    score: float | None  # in [0, 1]; None while pending or if void
    state: str  # "done", "failed" (by the candidate), "void" or "pending"
    seq: int  # the ask's number
    propensity: float | None  # probability of having drawn this example
    reason: str  # the rule's word for why
    candidate_id: str  # digest of the candidate's content
    provider: str
    model: str
    cost: float | None = None  # dollars spent on the pair, retries and judge included
    tokens: int | None = None  # prompt plus generated, spent on the pair
    calls: int | None = None  # requests sent for the pair
    gpu_seconds: float | None = None
    seconds: float | None = None  # wall-clock, of the answered call
    cached: bool | None = None  # the reply came from the cache; None without a reply
    failure: str | None = None
    answer: str | None = None  # read out of the reply; only where texts are asked for
    message: str | None = None  # of the failure; only where texts are asked for
    prompt: str | None = None  # these four as in ``Texts``; only where texts are asked for
    target: str | None = None
    reply: str | None = None
    verdicts: str | None = None


def labels(state: RunState) -> list[str]:
    """Return the K candidates' labels, or ids; equal ones get the row's number."""
    names = [candidate.label or candidate.id for candidate in state.candidates]
    count = Counter(names)
    return [name if count[name] == 1 else f"{name} #{row}" for row, name in enumerate(names)]


def records(state: RunState, *, texts: Iterable[Texts] | None = None) -> Iterator[Record]:
    """Yield one record per ask, in ask order.

    ``texts``, one per ask, are added, and with them the answers and the failures' messages.
    """
    names = labels(state)
    each = repeat(None, len(state.asks)) if texts is None else texts
    for ask, more in zip(state.asks, each, strict=True):
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
            **(_outcome_fields(told.outcome, more is not None) if told else {}),
            **_text_fields(more),
        )


def matrix_rows(state: RunState) -> Iterator[NDArray[np.float64]]:
    """Yield the K rows of the grid, each (N,) in [0, 1] with NaN where there is no score."""
    score = state.told.score
    candidate, example = (of[: len(score)] for of in (state.asks.candidate, state.asks.example))
    order = np.argsort(candidate, kind="stable")
    ends = np.cumsum(np.bincount(candidate, minlength=len(state.candidates)))
    for seqs in np.split(order, ends[:-1]) if len(ends) else ():
        row = np.full(len(state.example_ids), np.nan)
        row[example[seqs]] = score[seqs]
        yield row


def matrix(state: RunState) -> NDArray[np.float64]:
    """Return the (K, N) scores in [0, 1]; NaN where there is none."""
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
        answer = escaped(outcome.answer) if texts else None
        return {**result, "cached": outcome.cached, "answer": answer}
    message = escaped(outcome.message) if texts else None
    return {**result, "failure": outcome.kind.value, "message": message}


def _text_fields(texts: Texts | None) -> dict[str, Any]:
    return {} if texts is None else {key: escaped(text) for key, text in texts._asdict().items()}


def escaped(text: str | None) -> str | None:
    """Escape lone surrogates, which models do send and no file format takes."""
    return text and text.encode("utf-8", "backslashreplace").decode()
