"""The standing of a run, worked out from its log.

The source of pairs that was fed the same log says what the scores amount to.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import repeat, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.config.goal_specs import SCORE, Objective
from bestarm_agent.domain.spend import NANOS_PER_USD, Budget, Spend, sum_of
from bestarm_agent.domain.values import Failure
from bestarm_agent.engine.limits.waits import Wait
from bestarm_agent.engine.results.decision import decided
from bestarm_agent.engine.results.new_examples import Against, NewExamples, new_examples
from bestarm_agent.engine.results.objectives import Finding, ObjectiveTracker
from bestarm_agent.engine.results.pairs import unit_of
from bestarm_agent.engine.results.standing import (
    CostLine,
    LimitState,
    ObjectiveResult,
    Row,
    RowLimit,
    RowMeasure,
    Standing,
    Status,
    unscored,
)
from bestarm_agent.engine.scorer_signs import SignCount, fault_of
from bestarm_agent.errors import Blame, FailureKind
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Estimates, Guarantee, State
from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.store.run_state import RunState

CALLS = 1000  # whose price is told


def build_standing(
    state: RunState,
    pairs: Pairs,
    run_id: str,
    objective: ObjectiveTracker | None = None,
    *,
    budget: Budget | None = None,
    spent: Spend | None = None,
    seconds: float | None = None,
    broken: Mapping[str, str] | None = None,
    in_flight: int | None = None,
    waits: tuple[Wait, ...] = (),
    of_new: bool = True,
) -> Standing:
    """Build the standing of a run; what is not given is as the log has it.

    Args:
        state: what the log amounts to.
        pairs: the source of pairs, fed the same log.
        run_id: the run's id.
        objective: the objective, fed the same log; None if it is simply the best.
        budget: the caps.
        spent: the cost so far, of pairs under way as well.
        seconds: wall-clock seconds of all sessions.
        broken: labels of the candidates that cannot be called any more, with the reason.
        in_flight: pairs under way.
        waits: why calls wait.
        of_new: whether to say what holds for new examples; a picture of a run that goes on need
            not.
    """
    spent = state.spend + state.pending_spend if spent is None else spent
    broken = state.broken if broken is None else broken
    # Three sources are put together: the log (costs, failures, what was asked), the pairs (what the
    # scores amount to, and what is proved), the objective (prices and limits). All were fed the
    # same events, so that their rows, numbered as in the log, are of the same candidates.
    estimates = pairs.answer.estimates()
    ruling, result = None if objective is None else objective.state(), None
    findings = ruling.findings if ruling else ()
    numbers = _numbers(state, pairs, findings)
    order = _cheaper_first(state, pairs, numbers, broken) if state.candidates else []
    if objective is not None and ruling is not None:
        answered = ruling.answer, ruling.established, ruling.margin
        result = ObjectiveResult(objective.spec, *answered, objective.confidence)
    named, separated, margin = _lead(state, pairs, estimates, order, broken, result)
    latest = state.told["failure"][state.failed()[-1:]]
    is_scored = state.started.scored_by != "people"  # else the log's scores stand for none
    on_new, against = None, dict[int, Against]()
    if of_new and is_scored:
        on_new, against = _on_new(state, pairs, order, named, result)
    numbers["is_ruled_out"] = _ruled_out(pairs, order, named, result)
    rows = _rows(state, numbers, order, broken, objective, findings, against)
    if not is_scored:
        rows, margin, separated = tuple(map(unscored, rows)), None, False
    graded = bool(np.any((pairs.table.score > 0) & (pairs.table.score < 1)))
    scorer = state.started.config.get("scorer")
    named_scorer = scorer.get("name") if isinstance(scorer, Mapping) else scorer
    named_row = next((row for row in rows if row.index == named), None)
    standing = Standing(
        name=state.name,
        run_id=run_id,
        rows=rows,
        separated=separated,
        margin=margin,
        within=pairs.rule.problem.within or 0.0,
        level=pairs.answer.is_level,
        for_new=pairs.rule.problem.for_new,
        confidence=pairs.rule.problem.confidence,
        guarantee=estimates.guarantee,
        selector=pairs.rule.name,
        n_examples=pairs.table.n_examples,
        asked=pairs.table.n_asked,
        told=state.n_told,
        in_flight=_under_way(state) if in_flight is None else in_flight,
        waits=waits,
        spent=spent,
        budget=state.budget if budget is None else budget,
        configured=state.configured,
        seconds=state.seconds + state.elapsed if seconds is None else seconds,
        graded=graded,
        end=state.end,
        latest_failure="".join(state.failures[number].message for number in latest),
        objective=result,
        costs=cost_breakdown(state, spent),
        cached_tokens=state.cached_tokens,
        reused=int(state.told["cached"].sum()),
        new_examples=on_new,
        seeks_best=pairs.rule.seeks_best,
        scored_by=state.started.scored_by,
        suspect=fault_of(sign_counts(state, named_row), str(named_scorer or "the scorer")),
        scorer_trusted=isinstance(scorer, Mapping) and bool(scorer.get("trusted")),
        n_independent=pairs.answer.on_new.n_independent,
        study=state.started.study,
        changes=state.started.changes,
        unit=unit_of(state),
    )
    return decided(standing)


def _under_way(state: RunState) -> int:
    """Count the answers that are awaited: none once a run has ended."""
    return state.n_asked - state.n_told if state.end is None else 0


def _lead(
    state: RunState,
    pairs: Pairs,
    estimates: Estimates,
    order: Sequence[int],
    broken: Mapping[str, str],
    result: ObjectiveResult | None,
) -> tuple[int | None, bool, float | None]:
    """Return who is named, whether it beats all others, and how far the best may be above it.

    ``order``: the candidates, best first.
    """
    usable = (
        i
        for i in order
        if estimates.n[i] and i not in state.barred and state.candidates[i].label not in broken
    )
    named = next(usable, None) if result is None else result.answer
    # the best of those that left is none
    has_score = bool(order) and bool(estimates.n[order[0]]) and order[0] not in state.barred
    rivals = set(pairs.answer.tied(order[0])) if order else set[int]()
    separated = has_score and not rivals - state.barred.keys()
    if not order or estimates.guarantee is Guarantee.HEURISTIC:
        return named, separated, None
    # before a score, one that has no rival is not shown to be good for anything either
    return named, separated, pairs.answer.margin() if has_score else 1.0


def sign_counts(state: RunState, leader: Row | None) -> list[SignCount]:
    """Count what is odd about the replies to each prompt, and about those of the leader."""
    names = [candidate.prompt.name for candidate in state.candidates]
    prompts = {name: k for k, name in enumerate(dict.fromkeys(names))}
    of_row = np.array([prompts[name] for name in names], dtype=np.int64)
    wholes = [f"prompt `{name}`" for name in prompts] if len(prompts) > 1 else ["the prompt"]
    counts = _signs_by(state, of_row, wholes)
    if leader is not None and len(names) > len(prompts):
        others = (np.arange(len(names)) != leader.index).astype(np.int64)
        [own, *_] = _signs_by(state, others, [f"candidate `{leader.candidate.label}`", ""])
        counts.append(replace(own, is_part=True))
    return counts


def _signs_by(state: RunState, groups: IntArray, names: Sequence[str]) -> list[SignCount]:
    """Count by groups of candidates with these names; ``groups`` (K,) is the number of each's."""
    outcomes, of_ask = state.told, groups[state.asks["candidate"]]
    is_scored = ~np.isnan(outcomes["score"]) & (outcomes["state"] != State.VOID)
    n = np.bincount(of_ask[is_scored], minlength=len(names)).tolist()
    is_wrong = is_scored & (outcomes["score"] <= 0.0)
    wrong = np.bincount(of_ask[is_wrong], minlength=len(names)).tolist()
    has_sign = is_scored & (outcomes["sign"] > 0)
    of_sign = zip(of_ask[has_sign].tolist(), outcomes["sign"][has_sign].tolist(), strict=True)
    signs = defaultdict[int, Counter[str]](Counter)
    for (group, sign), count in sorted(Counter(of_sign).items()):
        signs[group][state.signs[sign]] = count
    return [SignCount(name, n[k], wrong[k], signs[k]) for k, name in enumerate(names)]


def _on_new(
    state: RunState,
    pairs: Pairs,
    order: Sequence[int],
    named: int | None,
    result: ObjectiveResult | None,
) -> tuple[NewExamples | None, dict[int, Against]]:
    estimate = math.nan if named is None else float(pairs.answer.estimates().mean[named])
    if named is None or not pairs.table.n_scored[named] or math.isnan(estimate):
        return None, {}
    # the cheapest within epsilon is not the best, so it is to be that near to the best on new
    # examples as well, and not ahead of all others
    is_cheapest = result is not None and result.spec.name is Objective.CHEAPEST
    within = result.spec.epsilon if result and is_cheapest else pairs.rule.problem.within or 0.0
    labels = {row: state.candidates[row].label for row in order}
    return new_examples(pairs, named, labels, estimate, within=within, unit=unit_of(state))


def _cheaper_first(
    state: RunState, pairs: Pairs, numbers: Mapping[str, NDArray[Any]], broken: Mapping[str, str]
) -> list[int]:
    """Return the ranking; of equals at its head that have all answers, the cheapest first."""
    order = pairs.answer.ranking()
    prices = [numbers["usd_per_1000"], numbers["gpu_seconds_per_1000"]]
    best, is_complete = numbers["estimate"][order[0]], numbers["n"] == pairs.table.n_examples
    equal = list(takewhile(lambda i: is_complete[i] and numbers["estimate"][i] == best, order))
    # Dollars and worker seconds have no rate of exchange: all have a price in one of the two, or
    # the order stays as it is, by chance.
    known = [price for price in prices if all(price[i] is not None for i in equal)]
    if known:
        equal.sort(key=lambda i: (state.candidates[i].label in broken, known[0][i]))
    return [*equal, *order[len(equal) :]]


def _ruled_out(
    pairs: Pairs, order: Sequence[int], named: int | None, result: ObjectiveResult | None
) -> BoolArray:
    """(K,) mask of those that are shown not to be what was asked for, on these examples."""
    estimates = pairs.answer.estimates()
    is_ruled_out: BoolArray = np.full(len(order), False)
    if named is None:
        return is_ruled_out
    if result is not None and result.spec.name is Objective.CHEAPEST:
        is_ruled_out = estimates.upper < estimates.lower.max() - result.spec.epsilon
    elif named == order[0]:
        is_ruled_out[:] = True
        is_ruled_out[[named, *pairs.answer.tied(named)]] = False
        # A race says nothing of one that led and was asked no more, as of the first prompt once
        # others were proposed. Its own interval does, beside what the leading one has for certain:
        # the interval of a prompt written after a look at some answers would not be a proof.
        is_ruled_out |= estimates.upper < pairs.table.certain()[0][named]
    else:
        # by the joint intervals: statements about the leading one are not about another
        is_ruled_out = estimates.upper < estimates.lower[named]
    return is_ruled_out & (estimates.n > 0)


def _rows(
    state: RunState,
    numbers: Mapping[str, NDArray[Any]],
    order: Sequence[int],
    broken: Mapping[str, str],
    objective: ObjectiveTracker | None,
    findings: Sequence[Finding],
    against: Mapping[int, Against],
) -> tuple[Row, ...]:
    """Return the rows in that order."""
    # There may be 64,000 candidates: each column becomes Python's objects at once, and the rows are
    # made of the columns, in the order of the fields.
    places, started = np.array(order, dtype=np.int64), state.started
    candidates = [state.candidates[i] for i in order]
    spends, prices = state.spends(), None if objective is None else objective.prices()
    measures = [
        map(
            partial(RowMeasure, name), n[places].astype(int).tolist(), _known(mean)[places].tolist()
        )
        for name, column in zip(started.measures, state.told["measures"].T, strict=False)
        for n, mean in [state.means(column)]
    ]
    limits = [_limits(finding, places) for finding in findings]
    columns: dict[str, Iterable[object]] = {
        **{name: column[places].tolist() for name, column in numbers.items()},
        "index": order,
        "candidate": candidates,
        "spend": [spends[i] for i in order],
        "problem": [
            broken.get(entry.label, state.barred.get(i))
            for i, entry in zip(order, candidates, strict=True)
        ],
        # as most are of very many: ``decided`` looks at each, and changes the others
        "status": [Status.UNDECIDED if n else Status.UNMEASURED for n in numbers["n"][places]],
        "is_broken": [entry.label in broken for entry in candidates],
        "is_barred": [i in state.barred for i in order],
        "against": map(against.get, order),
        "price": repeat(None) if prices is None else map(prices.of, order),
        "limits": zip(*limits, strict=True) if limits else repeat(()),
        "price_source": [state.prices[i] for i in order],
        "priced": [state.costs[i] is not None and started.judge_priced for i in order],
        "measures": zip(*measures, strict=True) if measures else repeat(()),
    }
    return tuple(map(Row, *(columns[field.name] for field in fields(Row))))


def _numbers(state: RunState, pairs: Pairs, findings: Sequence[Finding]) -> dict[str, NDArray[Any]]:
    """Return the (K,) numbers of candidates, by the names of their fields; None: not known."""
    table, estimates, told = pairs.table, pairs.answer.estimates(), state.told
    # before the first score, estimates are what a model supposes, and nothing was seen
    mean = estimates.mean if estimates.n.any() else np.full(len(estimates.n), np.nan)
    lower, upper = estimates.lower, estimates.upper
    for means in (finding.means for finding in findings if finding.constraint.name == SCORE):
        if pairs.rule.exogenous:  # of a score one interval is shown: that which decides on a limit
            lower, upper = means.lower, means.upper
            mean = np.clip(mean, lower, upper)
    _, length = state.means(np.where(told["output"] >= 0, told["output"], np.nan))
    _, price = state.means(told["price"])  # of what was answered, from the cache or not
    # Worker seconds are those of calls that were sent: a reply from the cache took none, and would
    # make a candidate that others paid for look cheap.
    is_bought = (told["calls"] > 0) & (told["output"] >= 0)
    _, work = state.means(np.where(is_bought, told["gpu_seconds"], np.nan))
    p50, p95 = state.latencies(50, 95)
    return {
        "n": estimates.n,
        "total": table.total,
        "pending": table.count(State.PENDING),
        "void": table.count(State.VOID),
        "failed": table.count(State.FAILED),
        "estimate": _known(mean),
        "lower": lower,
        "upper": upper,
        "usd_per_1000": _known(CALLS * price / NANOS_PER_USD),
        "gpu_seconds_per_1000": _known(np.where(work > 0, CALLS * work, np.nan)),
        "p50_seconds": _known(p50),
        "p95_seconds": _known(p95),
        "output_tokens": _known(np.where(length > 0, length, np.nan)),
    }


def _known(values: FloatArray) -> NDArray[Any]:
    """Return numbers as Python has them, and None in place of NaN."""
    column = values.astype(object)
    column[np.isnan(values)] = None
    return column


def _limits(finding: Finding, places: IntArray) -> Iterator[RowLimit]:
    """Yield the candidates' means at a limit, in that order."""
    kept, broken = finding.kept.tolist(), finding.broken.tolist()
    for i in places.tolist():
        state = LimitState.BROKEN if broken[i] else LimitState.OPEN
        state = LimitState.KEPT if kept[i] else state
        yield RowLimit(finding.constraint, finding.means.of(i), state)


def cost_breakdown(state: RunState, spent: Spend) -> tuple[CostLine, ...]:
    """Part a run's spend: each provider's calls with and without an answer, judging, proposing."""
    parts, unpriced = dict[str, Spend](), set[str]()
    open_ones = "answers under way" if state.end is None else "unfinished answers"
    providers = {entry.provider: None for entry in state.candidates}
    number_of = {provider: number for number, provider in enumerate(providers)}
    groups = np.array([number_of[entry.provider] for entry in state.candidates], dtype=np.int64)
    spends = state.spends(groups)
    for provider, number in number_of.items():
        answered = f"{provider}: answered calls of candidates"
        lost = f"{provider}: attempts that brought no answer"
        rows = np.flatnonzero(groups == number).tolist()
        judged, lost_there = (
            sum_of(spends_of[i] for i in rows) for spends_of in (state.judging, state.lost)
        )
        whole = spends[number]
        parts[answered], parts[lost] = whole - judged - lost_there, lost_there
        if any(state.costs[i] is None for i in rows):
            unpriced |= {answered, lost, open_ones}
    parts["judging"] = sum_of(state.judging)
    parts["proposing prompts"] = state.proposer_spend
    # ``spent`` counts pairs under way, these those with an outcome; so the parts add up
    parts[open_ones] = spent - sum_of([*spends, state.proposer_spend])
    if not state.started.judge_priced:
        unpriced |= {"judging", open_ones}
    if not state.attempts_of(None).priced:
        unpriced.add("proposing prompts")
    return tuple(
        CostLine(what, spend, what not in unpriced)
        for what, spend in parts.items()  # sums of seconds are not exact
        if replace(spend, gpu_seconds=0.0) != Spend() or abs(spend.gpu_seconds) >= 1e-6
    )


@dataclass(frozen=True, slots=True)
class FailureLine:
    """The count of one kind of failure of one candidate."""

    label: str  # the candidate's label
    count: int  # how often
    last: Failure


def failures_of(state: RunState) -> list[FailureLine]:
    """Count failures by candidate and kind, most frequent first."""
    failures = defaultdict[tuple[int, FailureKind, Blame], list[Failure]](list)
    seqs = state.failed()
    rows, numbers = state.asks["candidate"][seqs].tolist(), state.told["failure"][seqs].tolist()
    for row, number in zip(rows, numbers, strict=True):
        failure = state.failures[number]
        failures[row, failure.kind, failure.blame].append(failure)
    labels = [candidate.label for candidate in state.candidates]
    lines = [FailureLine(labels[row], len(of), of[-1]) for (row, *_), of in failures.items()]
    return sorted(lines, key=lambda line: -line.count)
