"""Plan a study before it begins: what it can cost, and what its examples can tell."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.config.prompts import about_tokens
from bestarm_agent.domain.spend import Budget, Spend, nanos
from bestarm_agent.engine.call import Model
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.waiting import Clock
from bestarm_agent.engine.record import Size, known_costs
from bestarm_agent.engine.results.labelling import MOST_CONTENDERS
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.collection import Collection
from bestarm_agent.engine.setup.forecast import (
    MOST_ASKS,
    Known,
    answers_needed,
    known_of,
    usage_of,
)
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.stats.betting import bet_grid, bounds_on_new
from bestarm_agent.stats.costs import pull_weights
from bestarm_agent.stats.new_examples import (
    OF_WINNER,
    SHARE_OF_TEST,
    USUAL_DIFFERING,
    examples_needed,
    resolution,
)
from bestarm_agent.stats.people import labels_needed
from bestarm_agent.store.store import StorePlace

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
    # whether the run may end before they did: limits and prices end it, which are not simulated
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
    asks = _asks(parts, size, pairs, known, usage, answers)
    totals = asks.sum(axis=1)
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
        is_open=int(totals[-1]) < answers and int(totals.sum()) == MOST_ASKS,
        is_most=not parts.config.objective.is_plain,
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
    if pairs.rule.seeks_best and answers > size.n_candidates:
        return answers_needed(
            partial(parts.mode.pairs, size, parts.candidates),
            known,
            (usage[:, _DOLLARS] * 1e-9).tolist(),
            most=answers,
            at_once=parts.config.limits.in_flight,
            seed=parts.config.selector.seed,
        ).astype(np.float64)
    per_dollar = known_costs(size.costs or ()) if parts.config.selector.per == "dollar" else None
    shares = np.ones(size.n_candidates)
    if per_dollar is not None:
        shares = 1 / pull_weights(np.array(per_dollar))
    return np.atleast_2d(answers * shares / shares.sum())


def _capped(spend: Spend, budget: Budget) -> Spend:
    caps = (None, budget.calls, budget.tokens, budget.usd_nanos, None)
    amounts = zip(spend.amounts, caps, strict=True)
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
    found: list[ModelPrice] = []
    for entry in prepared.ready:
        most = None if entry.usd is None else nanos(entry.usd)
        found.append(ModelPrice(str(entry.model), entry.price_source, most, "candidate"))
    judge_client = prepared.judge_client
    for judge_call in judge_client.judge.longest_calls(prepared.longest):
        call = judge_client.call(judge_call)
        able = call.model.able
        most = call.bound().usd_nanos if able.priced else None
        found.append(ModelPrice(str(judge_call.model), able.price_source, most, "judge"))
    rising = sorted(found, key=lambda price: price.most_usd_nanos or 0)
    dearest = {(price.role, price.model): price for price in rising}
    return tuple(dearest[at] for at in dict.fromkeys((p.role, p.model) for p in found))


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
    """Return that of the interval of a winner's mean on ``count`` examples, half of them right."""
    halves, alpha = np.arange(count, dtype=np.float64) % 2.0, OF_WINNER * (1.0 - level)
    lower, upper = bounds_on_new(halves, halves, alpha, bet_grid(count, alpha / 2))
    return (upper - lower) / 2
