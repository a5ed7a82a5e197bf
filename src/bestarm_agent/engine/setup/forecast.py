"""Forecast what a study will use, before it begins: how many answers, and what each of them costs.

1. ``Known`` gathers what a store holds: replies to the study's own requests, as ``try`` and earlier
   runs bought them, and the scores of the latest run on these examples.
2. ``answers_needed`` lets the study's own rule select in worlds of that spread, until it stops.
3. ``usage_of`` prices an answer of each candidate by its replies; one without any by how far the
   replies of the others stay below the most that they could have cost.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Example
from bestarm_agent.engine.call import replied_spend
from bestarm_agent.engine.evaluate import ReadyCandidate
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.errors import RunNotFoundError, StoreError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, State, Tell
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.store.export import matrix
from bestarm_agent.store.run_state import folded
from bestarm_agent.store.store import Store, StorePlace, open_store

_LOOKED_UP = 2_000  # requests whose reply is looked up, over all candidates
_WORLDS, MOST_ASKS = 3, 4_000  # simulated selections, and answers in all: a few seconds
_MEAN, _SPREAD = 0.7, 0.1  # of the candidates' true means, where no score is known
_FEWEST, _LEAST_SPREAD = 5, 0.01  # scores of a candidate that say something of its mean
_SHARED = 0.85  # correlation of what two candidates find hard: 15 % of their answers differ


@dataclass(frozen=True, slots=True)
class Known:
    """The facts that a store holds of a study before it begins.

    Attributes:
        costs: (K, 5) mean amounts of a stored reply of each candidate, as ``Spend.amounts``; NaN
            where it has none.
        n_replies: replies that these rest on.
        means: (K,) mean scores of an earlier run on these examples, NaN where there are too few.
        counts: (K,) scores that they rest on.
    """

    costs: NDArray[np.float64]
    n_replies: int
    means: NDArray[np.float64]
    counts: NDArray[np.int64]

    @classmethod
    def nothing(cls, count: int) -> Known:
        """Return what is known of ``count`` candidates where nothing is stored."""
        gaps = np.full(count, np.nan)
        return cls(np.full((count, 5), np.nan), 0, gaps, np.zeros(count, dtype=np.int64))


async def known_of(parts: StudyParts, prepared: ReadyCandidates, where: StorePlace) -> Known:
    """Look up what a store holds of a study; nothing where there is no store, or none of it."""
    ready = prepared.ready
    try:
        async with open_store(where, create=False) as store:
            replies = ReplyCache(store, prepared.ledger)
            await replies.recall(prepared.models)
            each = -(-_LOOKED_UP // len(ready))
            found = [await _stored(store, one, parts.examples[:each]) for one in ready]
            return Known(
                np.array([mean for mean, _ in found]),
                sum(n for _, n in found),
                *await _scored(store, parts, ready),
            )
    except StoreError:
        return Known.nothing(len(ready))


async def _stored(
    store: Store, candidate: ReadyCandidate, examples: Sequence[Example]
) -> tuple[NDArray[np.float64], int]:
    """Return the (5,) mean amounts of a candidate's stored replies, and their number."""
    # lookups of one moment share a query
    found = await together(store.get_reply(candidate.call(one).key) for one in examples)
    costs = [replied_spend(reply, answers=1).amounts for reply in found if reply is not None]
    return (np.mean(costs, axis=0) if costs else np.full(5, np.nan)), len(costs)


async def _scored(
    store: Store, parts: StudyParts, ready: Sequence[ReadyCandidate]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the (K,) mean scores of the study's latest run, and how many each rests on."""
    rows: dict[str, NDArray[np.float64]] = {}
    with suppress(RunNotFoundError):
        state = await folded(store, parts.config.name)
        rows = dict(zip((one.id for one in state.candidates), matrix(state), strict=True))
    own = [rows.get(one.candidate.id, np.full(1, np.nan)) for one in ready]
    counts = np.array([int((~np.isnan(row)).sum()) for row in own])
    means = [float(np.nanmean(row)) if n else np.nan for row, n in zip(own, counts, strict=True)]
    return np.array(means), counts


def usage_of(known: Known, bounds: Sequence[Spend], judging: Spend) -> NDArray[np.float64]:
    """Return (K, 5) expected amounts of an answer of each candidate, judging included.

    A candidate without any reply, and judging, of which none can be looked up before there is an
    answer, count as far below their bounds as the replies are below theirs; all at their bounds
    where there is no reply.

    Args:
        known: what is stored.
        bounds: (K,) the most that an answer can cost with one attempt, without judging.
        judging: the most that judging it can cost.
    """
    most = np.array([bound.amounts for bound in bounds], dtype=np.float64)
    of_judge = np.array(judging.amounts, dtype=np.float64)
    seen = ~np.isnan(known.costs[:, 1])
    shares = np.ones(most.shape[1])
    if seen.any():
        of_seen = most[seen].sum(axis=0)
        np.divide(known.costs[seen].sum(axis=0), of_seen, out=shares, where=of_seen > 0)
        shares = np.minimum(shares, 1.0)
    return np.where(seen[:, None], known.costs, most * shares) + of_judge * shares


def answers_needed(
    open_pairs: Callable[[], Pairs],
    known: Known,
    costs: Sequence[float],
    *,
    most: int,
    at_once: int,
    seed: int,
) -> NDArray[np.int64]:
    """Return (S, K) answers of each candidate in 1 to 3 simulated selections until the rule stops.

    Scores are 0 or 1. A world draws true means about those known, or about ``_MEAN`` where none
    are, with their spread, and what one candidate finds hard, the others mostly do (``_SHARED``).
    They end where they have ``MOST_ASKS`` answers together: the last one may be cut off there.

    Args:
        open_pairs: makes the study's rule, for the problem that it will have.
        known: where the means lie.
        costs: (K,) dollars that an answer of each candidate costs.
        most: answers that the budget allows.
        at_once: calls in flight, >= 1.
        seed: of the worlds, >= 0.
    """
    # A world is a study whose truth is known: means are drawn, and each answer is right where a
    # normal ease exceeds the threshold that gives the mean. The ease of an example has a part that
    # all candidates share, with correlation ``_SHARED``: rules that compare on common examples
    # profit from it, and a forecast without it would be too long.
    means, spreads = _believed(known)
    found: list[NDArray[np.int64]] = []
    while len(found) < _WORLDS and (left := MOST_ASKS - sum(int(n.sum()) for n in found)) > 0:
        world, asked, most = len(found), np.zeros(len(means), dtype=np.int64), min(most, left)
        found.append(asked)
        random, pairs = KeyedRandom(seed, "forecast").at(world), open_pairs()
        true = np.clip(means + spreads * random.standard_normal(len(means)), 0.01, 0.99)
        limits = [NormalDist().inv_cdf(1 - mean) for mean in true.tolist()]
        shared = math.sqrt(_SHARED) * random.standard_normal(pairs.table.n_examples)
        flying = deque[Ask]()
        while True:  # as many calls as may be in flight, answered in their order
            n_free = min(at_once - len(flying), most - int(asked.sum()))
            flying.extend(asks := pairs.ask(n_free))
            np.add.at(asked, [one.pair.candidate for one in asks], 1)
            if not flying:
                break
            one = flying.popleft()
            ease = shared[one.pair.example] + math.sqrt(1 - _SHARED) * random.standard_normal()
            right = float(ease > limits[one.pair.candidate])
            pairs.tell([Tell(one.seq, State.DONE, right, costs[one.pair.candidate])])
    return np.array(found)


def _believed(known: Known) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the (K,) expected true means, and the standard deviation of each about that.

    The usual shrinkage of means towards their average, by the part of their spread that sampling
    does not explain; ``_SPREAD`` where fewer than three are known.
    """
    seen = known.counts >= _FEWEST
    centre, spread = _MEAN, _SPREAD
    if seen.any():
        centre = float(known.means[seen].mean())
    # A score of 0 or 1 has a variance of at most 1/4, so the mean of n has at most 1/(4n). The
    # spread of the means less that is what the true means have; each mean is then drawn to the
    # centre by the share of noise in it, and what stays uncertain is spread * sqrt(1 - weight).
    errors = np.where(seen, 0.25, 0.0) / np.maximum(known.counts, 1)
    if seen.sum() > 2:
        between = float(known.means[seen].var(ddof=1) - errors[seen].mean())
        spread = math.sqrt(max(between, _LEAST_SPREAD**2))
    weights = np.where(seen, spread**2 / (spread**2 + errors), 0.0)
    means = centre + weights * (np.nan_to_num(known.means) - centre)
    return means, spread * np.sqrt(1 - weights)
