"""Plan a study before it begins: what it can cost and will use, and what its examples can tell.

What it will use is worked out in three steps:

1. ``Known`` gathers what a store holds: replies to the study's own requests, as ``try`` and earlier
   runs bought them, and the scores of the latest run on these examples.
2. ``answers_needed`` lets the study's own rule select in worlds of that spread, until it stops.
3. ``usage_of`` prices an answer of each candidate by its replies; one without any by how far the
   replies of the others stay below the most that they could have cost.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.config.goal_specs import SCORE, ObjectiveSpec
from bestarm_agent.config.prompts import about_tokens
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.spend import Budget, Spend, nanos
from bestarm_agent.domain.values import Example
from bestarm_agent.engine.call import Model, replied_spend
from bestarm_agent.engine.evaluate import ReadyCandidate
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.engine.record import Size, known_costs
from bestarm_agent.engine.reply_cache import ReplyCache
from bestarm_agent.engine.results.labelling import MOST_CONTENDERS
from bestarm_agent.engine.results.objectives import (
    FEWEST_NEW,
    SHARE_NEW,
    Finding,
    Means,
    ObjectiveState,
    rule,
)
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.collection import Collection
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.errors import RunNotFoundError, StoreError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Ask, State, Tell
from bestarm_agent.stats.betting import bet_grid, bounds_on_new
from bestarm_agent.stats.costs import pull_weights
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.new_examples import (
    OF_WINNER,
    SHARE_OF_TEST,
    USUAL_DIFFERING,
    examples_needed,
    resolution,
)
from bestarm_agent.stats.people import labels_needed
from bestarm_agent.store.chunks import folded
from bestarm_agent.store.export import matrix
from bestarm_agent.store.store import Store, StorePlace, open_store

_LOOKED_UP = 2_000  # requests whose reply is looked up, over all candidates
_WORLDS, MOST_ASKS = 3, 4_000  # simulated selections, and answers in all: a few seconds
_MEAN, _SPREAD = 0.7, 0.1  # of the candidates' true means, where no score is known
_FEWEST, _LEAST_SPREAD = 5, 0.01  # scores of a candidate that say something of its mean
_SHARED = 0.85  # correlation of what two candidates find hard: 15 % of their answers differ
_DOLLARS = 3  # their place in ``Spend.amounts``, in nano-dollars
_DISAGREE = (0.05, 0.1, 0.2, 0.4, 0.8)  # of examples on which one of two candidates is right


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """The price of a model, as far as it is known."""

    model: str  # provider and model
    source: str | None  # where the price comes from, for people; None where it is not known
    # the most that one call for the longest example can cost, over the candidates that use the
    # model; None where that is not known
    most_usd_nanos: int | None
    role: str  # "candidate" or "judge"


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a study and what running it can cost."""

    n_candidates: int  # K
    n_examples: int  # N; those kept back are not among them
    n_independent: int  # the same without copies, or the number of clusters that they belong to
    unit: str  # what these are: "example" or "cluster"
    repeats: int  # draws of each
    answers: int  # the most that the budget allows, at most all of them
    # by the mean of some simulated selections, each answer at what stored replies cost, else at the
    # most that it can; within the caps
    expected: Spend
    least: int  # answers that the shortest of these took
    most: int  # and the longest
    n_simulated: int  # number of them
    is_open: bool  # whether the last one was left before its end
    # whether the run may end before they did: limits of prices end it, which are not simulated
    is_most: bool
    # examples that people label to a proof, by half of simulated races; None where no one is asked
    labels: int | None
    n_replies: int  # stored replies that the cost of an answer rests on
    # each of them by the most expensive candidate, all attempts used; within the caps
    worst: Spend
    sure_answers: int  # that the caps pay for even if each costs the most that it can
    prices: tuple[ModelPrice, ...]  # what is known of each model's price
    unpriced: tuple[str, ...]  # models whose price is not known, the judge's included
    budget: Budget  # the caps
    # difference of two means that the examples show with probability .8, at the usual share of
    # differing answers
    resolution: float
    kept_back: int  # examples for the winner, without copies
    half_width: float  # of the interval of its mean on them; 0 where none are kept back
    cached_tokens: int  # of the expected ones, about: those that providers' prompt caches hold
    notices: tuple[str, ...]  # what the user should know before a call is paid for


def make_plan(parts: StudyParts, where: StorePlace | None = None) -> Plan:
    """Check a study as a run would, and work out what it can cost; no call is made.

    ``where`` is a store whose replies and scores the forecast goes by. What this machine lacks for
    the calls, such as a key, is a notice.

    Raises:
        ConfigError: the study cannot run.
    """
    prepared = ReadyCandidates(parts, Clock(), calls=False)
    budget, costs = parts.budget, tuple(entry.usd for entry in prepared.ready)
    size = Size(len(costs), len(parts.examples), budget, costs, parts.slices, parts.independent)
    pairs = parts.mode.pairs(size, parts.candidates)
    grid = size.n_candidates * size.n_examples
    answers = grid if budget.answers is None else min(grid, budget.answers)
    bounds = [replace(entry.bound, answers=1, gpu_seconds=0.0) for entry in prepared.ready]
    most = reduce(Spend.highest, bounds)
    worst = replace(most * (answers * parts.config.limits.max_attempts), answers=answers)
    known = Known.nothing(len(costs))
    if where is not None:
        known = asyncio.run(known_of(parts, prepared, where))
    judging = replace(prepared.judge_client.bound(prepared.longest), gpu_seconds=0.0)
    usage = usage_of(known, [bound - judging for bound in bounds], judging)
    whole = _asks(parts, size, pairs, known, usage, answers)
    n_asked = whole.sum(axis=1)
    asks = _affordable(whole, usage, budget)
    totals = asks.sum(axis=1).round()
    amounts = asks.mean(axis=0) @ usage
    expected = replace(Spend(*map(round, amounts.tolist())), gpu_seconds=0.0)
    prices = _prices(prepared, parts)
    n_kept = len(parts.kept_independent) or len(parts.kept_back)
    return Plan(
        n_candidates=size.n_candidates,
        n_examples=len(parts.examples) // parts.config.repeats,
        n_independent=n_independent(parts),
        unit=parts.unit,
        repeats=parts.config.repeats,
        answers=answers,
        expected=_capped(expected, budget),
        least=int(totals.min()),
        most=int(totals.max()),
        n_simulated=len(totals),
        is_open=bool(totals[-1] == n_asked[-1] < answers and n_asked.sum() == MOST_ASKS),
        is_most=not _is_simulated(parts.config.objective),
        labels=_labels(parts),
        n_replies=known.n_replies,
        worst=_capped(worst, budget),
        sure_answers=Ledger(budget).room_for(most, answers),
        prices=prices,
        unpriced=tuple(sorted(price.model for price in prices if price.most_usd_nanos is None)),
        budget=budget,
        resolution=resolution_of(parts),
        kept_back=n_kept,
        half_width=_half_width(n_kept, parts.config.selector.level) if n_kept else 0.0,
        cached_tokens=_cached(prepared, asks.mean(axis=0).tolist()),
        notices=(
            *parts.notices,
            *parts.mode.notices(pairs, size),
            *(f"before the first call: {text}" for text in prepared.lacking or ()),
        ),
    )


def _labels(parts: StudyParts) -> int | None:
    by = parts.judge.main.scored_by
    if by == "rule" or not isinstance(parts.mode, Selection | Collection):
        return None
    n = len(parts.candidates)
    rows = n if by == "people" else min(n, MOST_CONTENDERS)
    return labels_needed(rows, len(parts.examples), 1.0 - parts.config.selector.level)


def _asks(
    parts: StudyParts,
    size: Size,
    pairs: Pairs,
    known: Known,
    usage: NDArray[np.float64],
    answers: int,
) -> NDArray[np.float64]:
    """Return (S, K) answers of each candidate in S simulated runs of at most ``answers``.

    A mode that seeks no best takes all of them, and so does a run that cannot ask every candidate
    twice: evenly, or as working per dollar spreads them.
    """
    objective, stops = parts.config.objective, parts.config.selector.stop_when_separated
    objective_ends = stops and not objective.is_plain and _is_simulated(objective)
    if pairs.rule.seeks_best and answers > size.n_candidates:
        return answers_needed(
            partial(parts.mode.pairs, size, parts.candidates),
            known,
            (usage[:, _DOLLARS] * 1e-9).tolist(),
            most=answers,
            at_once=parts.config.limits.in_flight,
            seed=parts.config.selector.seed,
            objective=objective if objective_ends else None,
        ).astype(np.float64)
    per_dollar = known_costs(size.costs or ()) if parts.config.selector.per == "dollar" else None
    shares = np.ones(size.n_candidates)
    if per_dollar is not None:
        shares = 1 / pull_weights(np.array(per_dollar))
    return np.atleast_2d(answers * shares / shares.sum())


def _affordable(
    asks: NDArray[np.float64], usage: NDArray[np.float64], budget: Budget
) -> NDArray[np.float64]:
    """Return (S, K) answers cut off, in each run, where the first cap is reached."""
    caps = np.array([math.inf if cap is None else cap for cap in _caps(budget)])
    amounts = asks @ usage
    shares = np.divide(caps, amounts, out=np.ones_like(amounts), where=amounts > caps).min(axis=1)
    totals = asks.sum(axis=1)
    # whole answers; the slack is for rounding in the products
    left = np.where(shares < 1.0, np.floor(totals * shares + 1e-6), totals)
    return np.asarray(asks * (left / np.maximum(totals, 1.0))[:, None])


def _caps(budget: Budget) -> tuple[int | None, ...]:
    """Return the caps of amounts that are known beforehand, in the order of ``Spend.amounts``."""
    return None, budget.calls, budget.tokens, budget.usd_nanos, None


def _capped(spend: Spend, budget: Budget) -> Spend:
    amounts = zip(spend.amounts, _caps(budget), strict=True)
    return Spend(*(amount if cap is None else min(amount, cap) for amount, cap in amounts))


def _cached(prepared: ReadyCandidates, asks: Sequence[float]) -> int:
    """Return the tokens that are read from caches; the first call of each prefix writes it."""
    n_calls = defaultdict[tuple[Model, tuple[str, ...]], float](float)
    for entry, n in zip(prepared.ready, asks, strict=True):
        n_calls[entry.model, entry.prefix] += n
    reads = (max(0.0, n - 1) * about_tokens(*prefix) for (_, prefix), n in n_calls.items())
    return round(sum(reads))


def _prices(prepared: ReadyCandidates, parts: StudyParts) -> tuple[ModelPrice, ...]:
    """Return the price of each model of the candidates, then of the judge, at its dearest."""
    prices: list[ModelPrice] = []
    for entry in prepared.ready:
        most = None if entry.usd is None else nanos(entry.usd)
        prices.append(ModelPrice(str(entry.model), entry.price_source, most, "candidate"))
    judge_client = prepared.judge_client
    for judge_call in judge_client.judge.longest_calls(prepared.longest):
        call = judge_client.call(judge_call)
        capabilities = call.model.able
        most = call.bound().usd_nanos if capabilities.priced else None
        prices.append(ModelPrice(str(judge_call.model), capabilities.price_source, most, "judge"))
    rising = sorted(prices, key=lambda price: price.most_usd_nanos or 0)
    dearest = {(price.role, price.model): price for price in rising}
    return tuple(dearest[at] for at in dict.fromkeys((p.role, p.model) for p in prices))


def examples_to_detect(parts: StudyParts, difference: float) -> dict[float, int]:
    """Say how many examples show a difference of means, by the share of answers that differ.

    On new examples, with probability .8, by a test that may be looked at after every answer.
    """
    shares = [share for share in (*_DISAGREE, 1.0) if share >= difference][: len(_DISAGREE)]
    return {share: examples_needed(difference, share, _level(parts)) for share in shares}


def resolution_of(parts: StudyParts) -> float:
    """Return the difference that the examples show, where as many answers differ as usual."""
    return resolution(USUAL_DIFFERING, n_independent(parts), _level(parts))


def n_independent(parts: StudyParts) -> int:
    """Return the number of examples, of which copies and draws count once, or of clusters."""
    return len(parts.independent) or len(parts.examples) // parts.config.repeats


def _level(parts: StudyParts) -> float:
    """Return the error probability of what is shown about new examples."""
    return SHARE_OF_TEST * (1.0 - parts.config.selector.level)


def _half_width(count: int, level: float) -> float:
    """Return half the width of a winner's interval on ``count`` examples, half of them right."""
    halves, alpha = np.arange(count, dtype=np.float64) % 2.0, OF_WINNER * (1.0 - level)
    lower, upper = bounds_on_new(halves, halves, alpha, bet_grid(count, alpha / 2))
    return (upper - lower) / 2


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
            stored = [await _stored(store, entry, parts.examples[:each]) for entry in ready]
            return Known(
                np.array([mean for mean, _ in stored]),
                sum(n for _, n in stored),
                *await _scored(store, parts, ready),
            )
    except StoreError:
        return Known.nothing(len(ready))


async def _stored(
    store: Store, candidate: ReadyCandidate, examples: Sequence[Example]
) -> tuple[NDArray[np.float64], int]:
    """Return the (5,) mean amounts of a candidate's stored replies, and their number."""
    # lookups of one moment share a query
    replies = await together(store.get_reply(candidate.call(row).key) for row in examples)
    costs = [replied_spend(reply, answers=1).amounts for reply in replies if reply is not None]
    return (np.mean(costs, axis=0) if costs else np.full(5, np.nan)), len(costs)


async def _scored(
    store: Store, parts: StudyParts, ready: Sequence[ReadyCandidate]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the (K,) mean scores of the study's latest run, and how many each rests on."""
    rows: dict[str, NDArray[np.float64]] = {}
    with suppress(RunNotFoundError):
        state = await folded(store, parts.config.name)
        rows = dict(zip((c.id for c in state.candidates), matrix(state), strict=True))
    own = [rows.get(entry.candidate.id, np.full(1, np.nan)) for entry in ready]
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
    objective: ObjectiveSpec | None = None,
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
        objective: ends a selection, too, and is about scores and prices alone; None: the best.
    """
    # A world is a study whose truth is known: means are drawn, and each answer is right where a
    # normal ease exceeds the threshold that gives the mean. The ease of an example has a part that
    # all candidates share, with correlation ``_SHARED``: rules that compare on common examples
    # profit from it, and a forecast without it would be too long.
    means, spreads = _believed(known)
    worlds: list[NDArray[np.int64]] = []
    while len(worlds) < _WORLDS and (unspent := MOST_ASKS - sum(int(n.sum()) for n in worlds)) > 0:
        world, asked, most = len(worlds), np.zeros(len(means), dtype=np.int64), min(most, unspent)
        worlds.append(asked)
        random, pairs = KeyedRandom(seed, "forecast").at(world), open_pairs()
        true = np.clip(means + spreads * random.standard_normal(len(means)), 0.01, 0.99)
        limits = [NormalDist().inv_cdf(1 - mean) for mean in true.tolist()]
        shared = math.sqrt(_SHARED) * random.standard_normal(pairs.table.n_examples)
        flying, worth, look = deque[Ask](), None, FEWEST_NEW
        while True:  # as many calls as may be in flight, answered in their order
            n_free = min(at_once - len(flying), most - int(asked.sum()))
            flying.extend(asks := pairs.ask(n_free, allowed=worth))
            np.add.at(asked, [ask.pair.candidate for ask in asks], 1)
            if not flying:
                break
            ask = flying.popleft()
            ease = shared[ask.pair.example] + math.sqrt(1 - _SHARED) * random.standard_normal()
            right = float(ease > limits[ask.pair.candidate])
            pairs.tell([Tell(ask.seq, State.DONE, right, costs[ask.pair.candidate])])
            n_told = int(asked.sum()) - len(flying)
            if objective is not None and n_told >= look:
                state = _state_of(objective, pairs, np.array(costs))
                worth, look = state.worth, n_told + max(FEWEST_NEW, n_told // SHARE_NEW)
                if state.established:  # what is in flight is paid
                    break
    return np.array(worlds)


def _is_simulated(spec: ObjectiveSpec) -> bool:
    """Return whether what ends a run is known here: scores and prices, not limits of prices."""
    return all(limit.name == SCORE for limit in spec.constraints)


def _state_of(spec: ObjectiveSpec, pairs: Pairs, prices: NDArray[np.float64]) -> ObjectiveState:
    """Return what is known about an objective in a simulated selection."""
    known = pairs.answer.estimates()
    means = Means(known.mean, known.lower, known.upper)
    return rule(spec, pairs, [Finding(limit, means) for limit in spec.constraints], prices)


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
