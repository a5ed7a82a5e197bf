"""Every sentence about a result, and numbers as text: for terminal, report, page and messages.

Also reservations about a verdict (missing scores or rivals, caps that were passed), limits of an
objective, the spend, the waits and the end of a run, and the winner's mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from math import ceil, inf, isfinite, isnan
from typing import Any

from bestarm_agent.config.fields import StudyModel
from bestarm_agent.config.study import LENGTH, PRICE, SECONDS, Constraint, Objective, ObjectiveSpec
from bestarm_agent.domain.events import Told
from bestarm_agent.domain.spend import NANOS_PER_USD, usd
from bestarm_agent.domain.text import about, cost_text, duration, money, near, safe, share
from bestarm_agent.domain.values import Candidate, Vote
from bestarm_agent.engine.limits.waiting import Wait
from bestarm_agent.engine.results.compare import PairedComparison
from bestarm_agent.engine.results.effects import AxisEffects, axis_effects
from bestarm_agent.engine.results.new_examples import NewExamples
from bestarm_agent.engine.results.standing import (
    LimitState,
    Row,
    RowLimit,
    RowMeasure,
    Standing,
    Status,
)
from bestarm_agent.errors import counted
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.new_examples import FEWEST_EXAMPLES, USUAL_DIFFERING
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.store.run_state import RunState

_QUESTION = 400  # characters at the end of a prompt
_APART = 0.15  # of an estimate and the share that was right
_MARKS: Mapping[Status, str] = {
    Status.BEST: "●",
    Status.LEADING: "●",
    Status.OPEN: "○",
    Status.BEATEN: "–",
    Status.BROKEN: "×",
    Status.BARRED: "×",
}


def marked(a: str, b: str) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Part two texts into their common start, what differs, and their common end.

    Example:
        >>> marked("it is 42.", "it is 7.")
        (('it is ', '42', '.'), ('it is ', '7', '.'))
    """
    least, start, end = min(len(a), len(b)), 0, 0
    while start < least and a[start] == b[start]:
        start += 1
    while end < least - start and a[-1 - end] == b[-1 - end]:
        end += 1
    return _parts(a, start, end), _parts(b, start, end)


def question_of(pair: PairOutcome) -> str:
    """Return the field named question, or the end of the prompt, where the question stands."""
    if isinstance(asked := pair.inputs.get("question"), str):
        return asked
    return (pair.prompt or "")[-_QUESTION:]


def _parts(text: str, start: int, end: int) -> tuple[str, str, str]:
    return text[:start], text[start : len(text) - end], text[len(text) - end :]


def seconds_text(seconds: float | None) -> str:
    """Write the time of a call; a dash if none was timed.

    Example:
        >>> seconds_text(0.0213), seconds_text(0.8), seconds_text(2), seconds_text(75)
        ('21 ms', '0.80 s', '2.0 s', '1:15')
    """
    if seconds is None:
        return "–"
    if seconds < 0.1:
        return f"{1000 * seconds:.{0 if seconds >= 0.001 else 1}f} ms"
    return f"{seconds:.{1 if seconds >= 1 else 2}f} s" if seconds < 10 else duration(seconds)


def seen(row: Row, *, graded: bool) -> str:
    """Write what was seen of a candidate: right answers of those asked, or the mean score.

    A failure of the candidate itself counts as asked and scores the floor.
    """
    if not row.n:
        return "-"
    return f"{share(row.total / row.n)} ({row.n:,})" if graded else f"{row.total:,.0f}/{row.n:,}"


def seen_title(*, graded: bool) -> str:
    """Name the column that ``seen`` fills."""
    return "mean score" if graded else "right"


def estimate(row: Row) -> str:
    """Write the rule's estimate of a candidate's mean; shown with its ``interval``."""
    return "-" if row.estimate is None else share(row.estimate, row.upper - row.lower)


def estimates_line(rows: Sequence[Row]) -> str:
    """Say why an estimate is far from the share that was right; "" where none is."""
    seen_mean = [(row, row.total / row.n) for row in rows if row.n and row.estimate is not None]
    if all(abs(mean - (row.estimate or 0.0)) < _APART for row, mean in seen_mean):
        return ""
    return "estimates allow for how hard the asked examples are, and for few answers"


def interval(row: Row) -> str:
    """Write a candidate's interval; none where every example was seen."""
    width = row.upper - row.lower
    if not width:
        return "all seen"
    return f"[{share(row.lower, width)}, {share(row.upper, width)}]"


def measured_text(one: RowMeasure) -> str:
    """Write a mean of a further scorer, with the number of replies that it scored."""
    return "-" if one.mean is None else f"{share(one.mean, 0.0)} ({one.n:,})"


def measures_line(row: Row | None) -> str:
    """Write a candidate's means by the further scorers; "" without any."""
    measures = () if row is None else row.measures
    return ", ".join(f"{safe(one.name)} {measured_text(one)}" for one in measures)


def placed(row: Row, *, graded: bool) -> str:
    """Write what is known of a candidate in one line."""
    verb = "mean score" if graded else "right"
    price = "" if row.price is None else f", {price_text(row.price)} per 1,000 calls"
    known = f"{verb} {seen(row, graded=graded)}, estimate {estimate(row)} {interval(row)}"
    return f"{safe(row.candidate.label)}, {known}{price}"


def state(row: Row) -> str:
    """Write a candidate's state with its mark, never by colour alone."""
    return f"{_MARKS[row.status]} {row.status}"


def measure(found: Measure) -> tuple[str, str]:
    """Write an estimate and its interval; a dash where there is none.

    Example:
        >>> measure(Measure(0.25, 0.1, 0.4))
        ('0.250', '[0.100, 0.400]')
    """
    value = "-" if isnan(found.value) else f"{found.value:.3f}"
    return value, f"[{found.lower:.3f}, {found.upper:.3f}]"


def objective_text(spec: ObjectiveSpec) -> str:
    """Describe an objective.

    Example:
        >>> objective_text(ObjectiveSpec(name="cheapest-within-epsilon", epsilon=0.05))
        'the cheapest within 0.05 of the best'
    """
    if spec.name is Objective.CHEAPEST:
        return f"the cheapest within {spec.epsilon:g} of the best"
    limits = [
        f"costs at most ${one.limit:g} per 1,000 calls"
        if one.name == PRICE
        else f"keeps {one.text}"
        for one in spec.constraints
    ]
    return f"the best that {' and '.join(limits)}" if limits else "the best"


def price_text(price: Measure | None) -> str:
    """Write dollars for 1,000 calls, with their interval where one is known."""
    if price is None or isnan(price.value):
        return "-"
    mean = money(round(price.value * NANOS_PER_USD))
    if price.upper == inf:
        return mean
    ends = (money(round(end * NANOS_PER_USD)) for end in (price.lower, price.upper))
    return f"{mean} [{', '.join(ends)}]"


_SHOWN_RIVALS = 3
_SLACK = 1.01  # of the time cap, for writing down what happened


def caveat(standing: Standing) -> str:
    """Say in a few words what could change who leads, for the line that names it; else ""."""
    if standing.winner is None:
        return ""
    reasons = []
    if standing.unseen:
        reasons.append(f"{standing.unseen} of {len(standing.rows)} candidates have no score")
    if standing.rivals_by_voids:
        reasons.append("void pairs could change who leads")
    return f" (but {'; '.join(reasons)})" if reasons else ""


def caveat_lines(standing: Standing) -> list[tuple[str, str]]:
    """Return what leaves the winner open, each as a title and a sentence."""
    lines = []
    if standing.unseen and standing.best is not None:
        named = f"{standing.unseen} of {len(standing.rows)} candidates have no score"
        lines.append(("Unseen", f"{named}, and may be better"))
    winner, rivals = standing.winner, standing.rivals_by_voids
    if winner is not None and rivals:
        named = "; ".join(_bounds(row) for row in (winner, *rivals[:_SHOWN_RIVALS]))
        more = f"; and {len(rivals) - _SHOWN_RIVALS} more" if len(rivals) > _SHOWN_RIVALS else ""
        lines.append(("Void", f"mean if every void pair had scored 0, and 1: {named}{more}"))
    return lines


def passed_caps(standing: Standing) -> list[str]:
    """Say of each cap that was passed by how much, and why."""
    spent, budget = standing.spent, standing.budget
    found = []
    for name, unit in (("usd_nanos", ""), ("tokens", " tokens"), ("calls", " calls")):
        used, cap = getattr(spent, name), getattr(budget, name)
        if cap is None or used <= cap:
            continue
        text = money if name == "usd_nanos" else "{:,}".format
        over = f"{text(used - cap)} too much"
        why = "calls cost more than their providers said they could"
        found.append(f"{text(used)}{unit} of {text(cap)}, {over}: {why}")
    if budget.seconds is not None and standing.seconds > _SLACK * budget.seconds:
        took = f"{duration(standing.seconds)} of {duration(budget.seconds)}"
        found.append(f"{took}: calls in flight were waited for")
    return found


def _bounds(row: Row) -> str:
    low, high = row.void_bounds
    return f"{safe(row.candidate.label)} [{low:.3f}, {high:.3f}], {row.void} void"


def limits_text(row: Row) -> str:
    """Count the limits that a candidate keeps, breaks or may keep, in two words or so."""
    counts = [(state, sum(one.state is state for one in row.limits)) for state in LimitState]
    return ", ".join(f"{count} {state}" for state, count in counts if count)


def limit_text(found: RowLimit) -> str:
    """Say whether a candidate keeps a limit, and by which numbers."""
    said = {
        LimitState.KEPT: "shown to be kept",
        LimitState.BROKEN: "shown to be broken",
        LimitState.OPEN: "not shown yet",
    }[found.state]
    one, mean = found.constraint, found.mean
    if isnan(mean.value):
        return f"{one.text}: nothing seen yet"
    if one.name == PRICE:
        return f"{one.text}: {said}; {price_text(mean)}"
    if one.name == LENGTH:
        value, lower, upper = (f"{x:,.0f}" for x in mean)
    elif one.name == SECONDS:
        value, lower, upper = (seconds_text(x) for x in mean)
    else:
        value, lower, upper = (f"{x:.3f}" for x in mean)
    return f"{one.text}: {said}; mean {value} [{lower}, {upper}]"


_SHOWN_LABELS = 3
_LEAST_USED = 0.02  # of the budget, before the time left is guessed

ENDINGS: Mapping[str, str] = {
    "separated": "more calls would not change the answer",
    "exhausted": "nothing is left to ask",
    "indifferent": "what is left cannot change the answer",
    "level": "the leaders are nearer to each other than the examples can tell apart",
    "within": "the leading candidate is shown to be good enough",
    "verdict": "every verdict is in",
    "served": "every prompt was answered",
    "budget": "the budget cannot pay another pair",
    "interrupted": "it was stopped",
    "failures": "too many pairs could not be measured, or a model cannot be called",
    "error": "something unexpected happened",
}
_GOES_ON: Mapping[str, str] = {
    "budget": "`bestarm-agent resume --budget-...` goes on",
    "interrupted": "`bestarm-agent resume` goes on",
    "failures": "`bestarm-agent resume` goes on once that is mended",
    "error": "`bestarm-agent resume` goes on",
}


def most_used(standing: Standing) -> tuple[float, str]:
    """Return the used share, in [0, 1], and the name of the cap that is nearest to its end."""
    spent, budget = standing.spent, standing.budget
    caps = [
        (spent.usd_nanos, budget.usd_nanos, "the dollars"),
        (spent.pulls, budget.pulls, "the pairs allowed"),
        (spent.calls, budget.calls, "the calls"),
        (spent.tokens, budget.tokens, "the tokens"),
        (spent.gpu_seconds, budget.gpu_seconds, "the worker minutes"),
        (standing.seconds, budget.seconds, "the minutes"),
        (standing.asked, standing.grid, "all pairs"),
    ]
    shares = [(min(1.0, used / cap), name) for used, cap, name in caps if cap]
    return max(shares, key=lambda item: item[0], default=(0.0, "the budget"))


def used_line(standing: Standing) -> str:
    """Say how much of the budget is used, by the cap that is nearest to its end."""
    share, name = most_used(standing)
    return f"{share:.0%} of {name}"


def budget_line(standing: Standing) -> str:
    """Say what was spent, each against its cap where there is one."""
    spent, budget = standing.spent, standing.budget
    parts = [f"{standing.asked:,} of {standing.grid:,} pairs ({standing.share:.1%})"]
    if budget.pulls is not None:
        parts[0] += f", at most {budget.pulls:,}"
    parts.append(_against(counted(spent.calls, "call"), budget.calls and f"{budget.calls:,}"))
    parts.append(_against(counted(spent.tokens, "token"), budget.tokens and f"{budget.tokens:,}"))
    if standing.cached_tokens:
        parts[-1] += f" ({standing.cached_tokens:,} read from prompt caches)"
    cost = cost_text(spent.usd_nanos, priced=standing.priced)
    cost = cost if standing.priced else f"cost {cost}"
    parts.append(_against(cost, budget.usd_nanos and money(budget.usd_nanos)))
    if budget.seconds is not None:
        parts.append(_against(duration(standing.seconds), duration(budget.seconds)))
    return ", ".join(parts)


def _against(used: str, cap: str | int | None) -> str:
    return f"{used} of {cap}" if cap else used


def waits_line(waits: Sequence[Wait]) -> str:
    """Say why calls wait, the shortest wait first, grouped by reason."""
    groups: dict[str, list[Wait]] = {}
    for wait in waits:
        groups.setdefault(wait.reason, []).append(wait)
    return "; ".join(_wait_text(reason, alike) for reason, alike in groups.items())


def _wait_text(reason: str, waits: Sequence[Wait]) -> str:
    count = sum(wait.count for wait in waits)
    others = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
    soonest = waits[0].seconds
    return (
        (f"{count} x " if count else "")
        + f"{safe(waits[0].provider)}{others} {safe(reason)}"
        + (f", {soonest:.0f} s" if soonest is not None and soonest >= 0.5 else "")
    )


def ending(end: str | None) -> str:
    """Say why a run, or a session of it, ended.

    Example:
        >>> ending("exhausted"), ending(None)
        ('ended: nothing is left to ask', 'running, or cut off')
    """
    if end is None:
        return "running, or cut off"  # they look alike in a store
    return f"ended: {ENDINGS.get(end, end)}"


def what_next(end: str | None) -> str:
    """Say how to continue a run that ended for a reason; "" if there is nothing to do.

    Example:
        >>> what_next("interrupted"), what_next("exhausted")
        ('; `bestarm-agent resume` goes on', '')
    """
    return f"; {_GOES_ON[end]}" if end is not None and end in _GOES_ON else ""


def time_left(standing: Standing) -> str:
    """Guess the time left from the share of the budget used so far; "" where that says little."""
    used, _ = most_used(standing)
    if used < _LEAST_USED or used >= 1 or standing.end is not None:
        return ""
    left = standing.seconds * (1 - used) / used
    return f"at most about {duration(left)} left"  # it may end early


def failures_line(standing: Standing) -> str:
    """Count pairs that could not be measured and failures of candidates; "" if there is none."""
    void = sum(row.void for row in standing.rows)
    failed = sum(row.failed for row in standing.rows)
    parts = [f"{void:,} not measured (void)"] * (void > 0)
    parts += [f"{failed:,} failed by the candidate"] * (failed > 0)
    return ", ".join(parts)


def latest_failure_line(standing: Standing) -> str:
    """Count failures, as ``failures_line``, and say what the latest was."""
    latest = safe(standing.latest_failure)
    return "; the latest: ".join(filter(None, [failures_line(standing), latest]))


def hidden_line(rows: Sequence[Row]) -> str:
    """Count rows that are not shown, by state; "" if there is none.

    Example:
        >>> hidden_line([])
        ''
    """
    counts = Counter(row.status for row in rows)
    shown = ", ".join(f"{counts[status]:,} {status}" for status in Status if counts[status])
    return f"... and {len(rows):,} more: {shown}" if rows else ""


def problem_lines(standing: Standing) -> list[str]:
    """Say why candidates can no longer be asked, one line per reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in standing.rows:
        if row.problem is not None:
            groups.setdefault((_why(row), row.problem), []).append(row.candidate.label)
    return [f"{why}: {whose(labels)}: {safe(text)}" for (why, text), labels in groups.items()]


def _why(row: Row) -> str:
    return str(row.status).capitalize() if row.status is Status.BARRED else "Not usable"


def whose(labels: Sequence[str]) -> str:
    """Name the first three candidates of a list, and count the others."""
    more = len(labels) - _SHOWN_LABELS
    shown = ", ".join(map(safe, labels[:_SHOWN_LABELS]))
    return f"{shown} and {more} more" if more > 0 else shown


def headline(standing: Standing) -> tuple[str, str]:
    """Return who is named, and what the first sentence says; nobody is named before a score.

    Two statements: who leads on the examples of the study, and whether a call could change that;
    and what holds for new examples like them.
    """
    winner, n = standing.winner, standing.n_examples
    if winner is None or winner.estimate is None:
        if standing.objective is None or standing.best is None:
            return "", "No score yet."
        if standing.objective.established:
            return "", f"No candidate keeps the limits ({standing.objective.confidence:.0%})."
        return "", "No candidate fits yet."
    name = safe(winner.candidate.label)
    if len(standing.rows) == 1:
        return name, "is the only candidate; nothing was compared."
    found = standing.new_examples
    few = counted(n, "example") if found is None else counted(found.n_examples, found.unit)
    if (n if found is None else found.n_examples) < FEWEST_EXAMPLES:
        has = seen(winner, graded=standing.graded)
        return name, (
            f"leads with {has} {seen_title(graded=standing.graded)}, but "
            f"{few} are too few to choose by; use at least {FEWEST_EXAMPLES}."
        )
    if found is not None and found.level_with and not found.shown and _is_over(standing):
        return _level(standing, name, found)
    said = _choice(standing)
    return name, f"{said} {_on_new(standing, found)}" if found is not None else said


def first_line(standing: Standing) -> str:
    """Write the ``headline`` in one line."""
    return " ".join(headline(standing)).strip()


def _is_over(standing: Standing) -> bool:
    return standing.established or standing.level or standing.end in ("exhausted", "indifferent")


def _choice(standing: Standing) -> str:
    """Say who leads on the examples of the study, and whether a call could change that."""
    n, sure = f"{standing.n_examples:,}", f"{standing.confidence:.0%}"
    if standing.guarantee is Guarantee.HEURISTIC:
        return f"leads on your {n} examples, by a model that guarantees nothing."
    result = standing.objective
    if result is not None:
        aim = objective_text(result.spec)
        if result.established:
            return f"is {aim} on your {n} examples ({sure})."
        within = ""
        if result.margin is not None and result.margin < 1:
            within = f"; it is within {_up(result.margin)} of the best that counts"
        return f"is the best guess for {aim} on your {n} examples: not shown yet{within}."
    if standing.separated or standing.margin == 0:
        return f"leads on your {n} examples, and no remaining call would change that."
    if standing.level:
        behind = f"at most {_up(standing.margin or 0.0)} behind the best"
        return f"leads on your {n} examples, {behind}: less than they can tell apart."
    if not standing.for_new and standing.established:
        return f"is within {standing.within:g} of the best on your {n} examples ({sure})."
    count = len(standing.rivals)
    what = f"{counted(count, 'other')} {'is' if count == 1 else 'are'} still open"
    better = ""
    if standing.margin is not None and standing.margin < 1:
        better = f" (at most {_up(standing.margin)} better)"
    return f"leads on your {n} examples so far; {what}{better}."


def _on_new(standing: Standing, found: NewExamples) -> str:
    """Say what holds for new examples."""
    width = found.upper - found.lower
    low, mean, high = (share(x, width) for x in (found.lower, found.mean, found.upper))
    said = f"For new {found.unit}s like them: {mean} [{low}, {high}]; "
    if found.shown:
        reach = f", or within {standing.within:g} of them" if standing.within else ""
        return f"{said}ahead of all others{reach}: {shown(standing.confidence)}."
    if not found.leads:
        return f"{said}nothing is shown about others."
    nearest = min(found.leads, key=lambda one: one.mean)
    more = len(found.leads) - 1
    others = f" and of {counted(more, 'other')} by more" if more else ""
    where, ends = "ahead of", (nearest.lower, nearest.mean, nearest.upper)
    if nearest.mean < 0.0:  # on what both have seen; the estimate allows for the rest
        where, ends, others = "behind", (-nearest.upper, -nearest.mean, -nearest.lower), ""
    low, mean, high = map(_signed_share, ends)
    gap = f"{where} {safe(nearest.candidate)} by {mean} [{low}, {high}]{others}: "
    likely = "not shown" if found.probability is None else _likely(found.probability)
    return f"{said}{gap}{likely}{_would_show(standing, found)}."


def shown(confidence: float) -> str:
    """Say that something is shown: the one word for it, wherever a statement is made.

    Example:
        >>> shown(0.95)
        'shown (95%)'
    """
    return f"shown ({confidence:.0%})"


def _likely(probability: float) -> str:
    percent = f"{min(max(probability, 0.01), 0.99):.0%}"
    return f"likely ({percent}), not shown" if probability >= 0.5 else f"not shown ({percent})"


def _would_show(standing: Standing, found: NewExamples) -> str:
    """Say how many more examples would show the lead."""
    if found.examples_needed is None:
        return ""
    more = found.examples_needed - found.n_examples
    if more > 0:
        return f"; about {about(more)} more {found.unit}s would show it"
    is_left = standing.winner is not None and standing.winner.n < standing.n_examples
    return "; the examples that are left would show it (`--for new`)" if is_left else ""


def comparison_line(found: PairedComparison) -> str:
    """Say what a comparison shows about new examples."""
    gap = found.difference
    names, ends = "A is ahead of B", (gap.lower, gap.value, gap.upper)
    if gap.value < 0.0:
        names, ends = "B is ahead of A", (-gap.upper, -gap.value, -gap.lower)
    low, value, high = map(_signed_share, ends)
    said = f"for new examples like them: {names} by {value} [{low}, {high}]: "
    if gap.lower > 0.0 or gap.upper < 0.0:
        return said + shown(found.confidence)
    said += f"not shown; {found.n_examples:,} examples can tell apart about "
    said += near(found.resolution)
    if found.examples_needed is None or abs(gap.value) * 4 < found.resolution:
        return said
    return f"{said}, and a difference of {near(abs(gap.value))} takes about " + (
        f"{about(found.examples_needed)}"
    )


def resolution_line(n_examples: int, resolution: float, unit: str = "example") -> str:
    """Say what the examples of a study can tell apart, before a call is made.

    Example:
        >>> print(resolution_line(20, 0.293).partition(" (")[0])
        20 examples tell apart candidates that differ by about .29
    """
    few = f"; fewer than {FEWEST_EXAMPLES} are too few to choose by"
    return (
        f"{counted(n_examples, unit)} tell apart candidates that differ by about "
        f"{near(resolution)} (where {USUAL_DIFFERING:.0%} of their answers differ; 80% of the "
        f"time){few if n_examples < FEWEST_EXAMPLES else ''}"
    )


def _level(standing: Standing, name: str, found: NewExamples) -> tuple[str, str]:
    """Say that some cannot be told apart, and who is the cheapest of them."""
    names = [name, *map(safe, found.level_with)]
    named = f"{', '.join(names[:-1])} and {names[-1]}"
    if len(names) > _SHOWN_LABELS + 1:
        named = f"{', '.join(names[:_SHOWN_LABELS])} and {len(names) - _SHOWN_LABELS} more"
    return named, (
        f"are level: your {counted(found.n_examples, found.unit)} can tell apart about "
        f"{near(found.resolution)}; {_cheaper(standing, found)}."
    )


def _cheaper(standing: Standing, found: NewExamples) -> str:
    """Name the cheapest of those that are level, where prices are known and differ."""
    winner = standing.winner
    rows = [row for row in standing.rows if row.candidate.label in found.level_with]
    rows = [row for row in ([winner] if winner else []) + rows if row.n]
    costs = [row.spend.usd_nanos / row.n for row in rows]
    if not (standing.priced and rows and min(costs) > 0 and min(costs) < 0.95 * max(costs)):
        return "take the cheapest"
    cheapest = rows[costs.index(min(costs))]
    part = min(costs) / max(costs)
    return f"take the cheapest, {safe(cheapest.candidate.label)} ({part:.0%} of the dearest's cost)"


def _signed_share(value: float) -> str:
    """Write a difference; the sign stands where it is negative.

    Example:
        >>> _signed_share(0.045), _signed_share(-0.003)
        ('.045', '-.003')
    """
    return f"{'-' if round(value, 3) < 0 else ''}{f'{abs(value):.3f}'.removeprefix('0')}"


def _up(bound: float) -> str:
    return f"{ceil(1000 * bound) / 1000:.3f}".removeprefix("0")


def effects_line(standing: Standing) -> str:
    """Name the best and the worst level of each axis on which they can be told apart."""
    found = [axis for axis in axis_effects(standing) if is_clear(axis)]
    return "; ".join(
        f"{safe(axis.axis)} {share(axis.spread)} ({safe(axis.levels[0].level)} over "
        f"{safe(axis.levels[-1].level)})"
        for axis in found
    )


def is_clear(axis: AxisEffects) -> bool:
    """Return whether the intervals of the best and the worst level do not overlap."""
    return axis.levels[0].effect.lower > axis.levels[-1].effect.upper


def number_lines(standing: Standing) -> list[tuple[str, str]]:
    """Return the winner's mean on the examples kept back, if there are, as titles and texts."""
    found = standing.confirmation
    if found is None:
        return []
    is_whole = found.n + found.void == found.held_back
    asked = f"{found.n:,}" if is_whole else f"{found.n:,} of {found.held_back:,}"
    void = f", {found.void:,} void" if found.void else ""
    whose = f"{asked} examples kept back{void}; {found.confidence:.0%} sure for examples like these"
    return [("Confirmed", f"{safe(found.label)}: {_mean(found.mean)} on {whose}")]


def _mean(found: Measure) -> str:
    width = found.upper - found.lower
    value = "-" if isnan(found.value) else share(found.value, width)
    return f"{value} [{share(found.lower, width)}, {share(found.upper, width)}]"


_SHOWN_VERDICTS = 100
LOOKED_AT = 1000  # outcomes: a judge that asks a model says something of each that it scores


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One judgement."""

    label: str  # the candidate's label
    example: str  # the example's id
    vote: Vote  # what the judge said
    seq: int  # number of the ask


def latest_verdicts(state: RunState, latest: Iterable[Told]) -> list[VerdictLine]:
    """Return the judgements of outcomes, the newest of which is first; none where a rule scores."""
    lines: list[VerdictLine] = []
    for told in latest:
        if (score := told.outcome.score) is not None:
            row, column, *_ = state.asks[told.seq].tolist()
            label, example = state.candidates[row].label, state.example_ids[column]
            lines += [VerdictLine(label, example, vote, told.seq) for vote in score.votes]
        if len(lines) >= _SHOWN_VERDICTS:
            break
    return lines[:_SHOWN_VERDICTS]


def run_lines(standing: Standing, width: int) -> list[str]:
    """Return a line each, with titles of this width."""
    spent = f"{budget_line(standing)}, {duration(standing.seconds)}"
    ended = f"{ending(standing.end)}{what_next(standing.end)}"
    return [
        *(f"CAP PASSED: {text}" for text in passed_caps(standing)),
        f"{'Spent:':<{width}}{spent}",
        f"{'Run:':<{width}}{standing.run_id}, {ended}",
    ]


def run_json(standing: Standing) -> dict[str, Any]:
    """Return the run, its end and its spend as entries of a JSON object."""
    return {
        "run_id": standing.run_id,
        "end": standing.end,
        "spent": plain(standing.spent, priced=standing.priced),
        "seconds": standing.seconds,
    }


def plain(value: object, *, priced: bool = True) -> Any:  # noqa: ANN401 - JSON
    """Return a value as JSON: a dataclass as its fields, what is not finite as null.

    Amounts are in dollars, and null where a price is not known. A candidate is its label, id,
    model, the name of its prompt, and its parameters.

    Example:
        >>> plain((Measure(0.5, 0.25, inf), Constraint("seconds_mean", True, 2.0)))
        [{'value': 0.5, 'lower': 0.25, 'upper': None}, 'seconds_mean <= 2']
    """
    match value:
        case Candidate(label=label, id=known, prompt=prompt):
            model = {"model": f"{value.provider}/{value.model}", "prompt": prompt.name}
            return {"label": label, "id": known, **model, "params": dict(value.params)}
        case Constraint():
            return value.text
        case StudyModel():
            return value.model_dump(mode="json", exclude_none=True)
        case Measure():
            return {name: plain(end) for name, end in value._asdict().items()}
        case list() | tuple():
            return [plain(item, priced=priced) for item in value]
        case Enum():
            return value.value
        case float() if not isfinite(value):
            return None
        case _ if not is_dataclass(value):
            return value
    priced = getattr(value, "priced", priced)
    shown = [one.name for one in fields(value) if one.repr]  # others are for Python alone
    found = {name: plain(getattr(value, name), priced=priced) for name in shown}
    if "usd_nanos" in found:
        nanos = found.pop("usd_nanos")
        found["usd"] = usd(nanos) if priced and nanos is not None else None
    return found
