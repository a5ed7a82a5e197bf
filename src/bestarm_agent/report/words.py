"""Texts around a decision: candidates in tables, spend, waits, endings, limits and comparisons.

The sentences of the decision itself are its own (``engine/results/decision.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import inf, isfinite, isnan
from typing import Any

from bestarm_agent.config.fields import StudyModel
from bestarm_agent.config.goal_specs import LENGTH, PRICE, SECONDS, Constraint
from bestarm_agent.domain.spend import NANOS_PER_USD, Budget, usd
from bestarm_agent.domain.text import (
    about,
    cost_text,
    digits_beside,
    duration,
    money,
    percent,
    points,
    safe,
    span,
)
from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.results.compare import PairedComparison
from bestarm_agent.engine.results.decision import listed, passed_caps, price_of_use, proved
from bestarm_agent.engine.results.effects import axis_effects
from bestarm_agent.engine.results.new_examples import SURE
from bestarm_agent.engine.results.standing import (
    LimitState,
    Row,
    RowLimit,
    RowMeasure,
    Standing,
    Status,
)
from bestarm_agent.errors import counted
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.store.export import PairOutcome

_QUESTION = 400  # characters at the end of a prompt
_MARKS: Mapping[Status, str] = {
    Status.TAKE: "●",
    Status.LEADING: "●",
    Status.EQUAL: "≈",
    Status.GOOD: "✓",
    Status.UNDECIDED: "○",
    Status.WORSE: "–",
    Status.BARRED: "×",
    Status.UNMEASURED: "·",
}


def marked(a: str, b: str) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Part two texts into their common start, what differs, and their common end.

    Example:
        >>> marked("it is 42.", "it is 7.")
        (('it is ', '42', '.'), ('it is ', '7', '.'))
    """
    # The end may not reach into the start: of "aa" and "aaa" the common start is "aa", and the end
    # is empty, or one "a" would stand in both.
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
        return "-"
    if seconds < 0.1:
        return f"{1000 * seconds:.{0 if seconds >= 0.001 else 1}f} ms"
    return f"{seconds:.{1 if seconds >= 1 else 2}f} s" if seconds < 10 else duration(seconds)


def measured_text(entry: RowMeasure) -> str:
    """Write a mean of a further scorer, with the number of replies that it scored."""
    return "-" if entry.mean is None else f"{percent(entry.mean)} of {entry.n:,}"


def missing_line(standing: Standing) -> str:
    """Say how far answers that are missing could move the candidates; "" where it matters not."""
    # said only where some candidate could overtake the one to take: missing answers of others
    # change no decision, and a warning that never matters is not read when it does
    winner, rivals = standing.winner, standing.rivals_by_voids
    if winner is None or not rivals:
        return ""
    those = listed(map(_bounds, (winner, *rivals)), 1 + len(rivals))
    return f"range of the mean, had the missing answers scored 0 or 1: {those}"


def _bounds(row: Row) -> str:
    return f"{safe(row.candidate.label)} {span(*row.void_bounds)} ({row.void or 'none'} missing)"


def state(row: Row) -> str:
    """Write a candidate's state with its mark, never by colour alone."""
    return "× cannot be called" if row.is_broken else f"{_MARKS[row.status]} {row.status}"


def measure(measured: Measure) -> tuple[str, str]:
    """Write a share and its interval; a dash where there is none.

    Example:
        >>> measure(Measure(0.25, 0.1, 0.4))
        ('25 %', '10 to 40 %')
    """
    value = "-" if isnan(measured.value) else percent(measured.value)
    return value, span(measured.lower, measured.upper)


def use_text(row: Row) -> str:
    """Write what 1,000 calls of a candidate cost: dollars, else seconds of workers."""
    price = price_of_use(row)
    if price is None:
        return "-"
    unit, amount = price
    return money(round(amount * NANOS_PER_USD)) if unit == "usd" else f"{amount:,.3g} s"


def price_text(price: Measure | None) -> str:
    """Write dollars for 1,000 calls, with their interval where one is known."""
    if price is None or isnan(price.value):
        return "-"
    mean = money(round(price.value * NANOS_PER_USD))
    # without an upper end the lower one alone would look like a statement about the mean
    if price.upper == inf:
        return mean
    ends = (money(round(end * NANOS_PER_USD)) for end in (price.lower, price.upper))
    return f"{mean} [{', '.join(ends)}]"


def limit_text(row_limit: RowLimit) -> str:
    """Say whether a candidate keeps a limit, and by which numbers."""
    verdict = {
        LimitState.KEPT: "proved to be kept",
        LimitState.BROKEN: "proved to be broken",
        LimitState.OPEN: "not proved yet",
    }[row_limit.state]
    limit, mean = row_limit.constraint, row_limit.mean
    if isnan(mean.value):
        return f"{limit.text}: nothing seen yet"
    if limit.name == PRICE:
        return f"{limit.text}: {verdict}; {price_text(mean)}"
    if limit.name not in (LENGTH, SECONDS):  # a score, or a measure in [0, 1]
        digits = digits_beside(100.0 * limit.limit, (100.0 * x for x in mean))
        ends = f" ({span(*mean[1:], digits=digits)})" if mean.lower < mean.upper else ""
        value = f"{100.0 * mean.value:.{digits}f} %" if digits else percent(mean.value)
        return f"{limit.text}: {verdict}; mean {value}{ends}"
    digits = digits_beside(limit.limit, mean)
    tell = seconds_text if limit.name == SECONDS else f"{{:,.{digits}f}}".format
    # without an upper end the lower one alone would look like a statement about the mean
    ends = "" if mean.upper == inf else f" ({tell(mean.lower)} to {tell(mean.upper)})"
    return f"{limit.text}: {verdict}; mean {tell(mean.value)}{ends}"


# Share of the budget that is used before the time left is guessed: the guess divides by it, so that
# with less it would jump about.
_LEAST_USED = 0.02

# By why a run ended, as the log has it. "finished" is where more calls would change nothing, and
# "stopped" where something from outside ended it, so that `resume` has something to do.
ENDINGS: Mapping[str, str] = {
    "separated": "finished: more calls would not change the decision",
    "exhausted": "finished: every answer was asked for",
    "indifferent": "finished: more calls would not change the decision",
    "level": "finished: more calls on these examples would hardly tell more",
    "within": "finished: the one to take is proved to be good enough",
    "labels": "finished: people score these answers",
    "verdict": "finished: by these scores every verdict is in",
    "served": "finished: every prompt was answered",
    "budget": "stopped: the budget is used up",
    "interrupted": "stopped from outside",
    "failures": "stopped: calls are refused, or too many answers could not be had",
    "error": "stopped: something unexpected happened",
}


def most_used(standing: Standing) -> tuple[float, str]:
    """Return the used share, in [0, 1], and the name of the cap that is nearest to its end."""
    # asking for all answers ends a run like a cap does, so that it counts as one
    spent, budget = standing.spent, standing.budget
    caps = [
        (spent.usd_nanos, budget.usd_nanos, "the dollars"),
        (spent.answers, budget.answers, "the answers allowed"),
        (spent.calls, budget.calls, "the calls"),
        (spent.tokens, budget.tokens, "the tokens"),
        (spent.gpu_seconds, budget.gpu_seconds, "the worker minutes"),
        (standing.seconds, budget.seconds, "the minutes"),
        (standing.asked, standing.grid, "all answers"),
    ]
    shares = [(min(1.0, used / cap), name) for used, cap, name in caps if cap]
    return max(shares, key=lambda item: item[0], default=(0.0, "the budget"))


def used_line(standing: Standing) -> str:
    """Say how much of the budget is used, by the cap that is nearest to its end."""
    share, name = most_used(standing)
    return f"{percent(share)} of {name}"


def budget_line(standing: Standing) -> str:
    """Say what was spent, each against its cap where there is one."""
    spent, budget = standing.spent, _caps(standing)
    parts = [f"{standing.asked:,} of {standing.grid:,} answers ({percent(standing.share)})"]
    if budget.answers is not None:
        parts[0] += f", at most {budget.answers:,}"
    if standing.reused:
        parts[0] += f", {standing.reused:,} from the cache"
    parts[0] += standing.further
    parts.append(_against(counted(spent.calls, "call"), budget.calls and f"{budget.calls:,}"))
    parts.append(_against(counted(spent.tokens, "token"), budget.tokens and f"{budget.tokens:,}"))
    if standing.cached_tokens:
        parts[-1] += f" ({standing.cached_tokens:,} read from prompt caches)"
    cost = cost_text(spent.usd_nanos, priced=standing.priced)
    cost = cost if standing.priced else f"cost {cost}"
    parts.append(_against(cost, budget.usd_nanos and money(budget.usd_nanos)))
    return ", ".join(parts)


def time_used(standing: Standing) -> str:
    """Say how long a run took, against its cap where there is one."""
    cap = _caps(standing).seconds
    return _against(duration(standing.seconds), cap and duration(cap))


def _caps(standing: Standing) -> Budget:
    """Return the caps; what a stage, such as a confirmation, was allowed ends with it."""
    return (standing.end is not None and standing.configured) or standing.budget


def _against(used: str, cap: str | float | None) -> str:
    return f"{used} of {cap}" if cap else used


def ending(end: str | None, n_asked: int = 1) -> str:
    """Say why a run that asked for so many answers, or a session of it, ended.

    Example:
        >>> ending("exhausted"), ending(None), ending(None, 0)
        ('finished: every answer was asked for', 'running, or cut off', 'asked for nothing')
    """
    if end is None:  # those that run and those that were cut off look alike in a store
        return "running, or cut off" if n_asked else "asked for nothing"
    return ENDINGS.get(end, f"ended: {end}")


def time_left(standing: Standing) -> str:
    """Guess the time left from the share of the budget used so far; "" where that says little."""
    used, _ = most_used(standing)
    if used < _LEAST_USED or used >= 1 or standing.end is not None:
        return ""
    # as if the rest were used as fast as what is used; the run may end early, so it is the most
    remaining = standing.seconds * (1 - used) / used
    return f"at most about {duration(remaining)} left"


def failures_line(standing: Standing) -> str:
    """Count answers that could not be had and failures of candidates; "" if there is none."""
    void = sum(row.void for row in standing.rows)
    failed = sum(row.failed for row in standing.rows)
    parts = [f"{void:,} without an answer"] * (void > 0)
    parts += [f"{failed:,} failed by the candidate"] * (failed > 0)
    return ", ".join(parts)


def problem_lines(standing: Standing, told: str | None = None) -> list[str]:
    """Say why candidates can no longer be asked, one line per reason.

    Reasons that stand in ``told``, by default the decision, are left out.
    """
    told = standing.decision.text if told is None else told
    groups: dict[tuple[str, str], list[str]] = {}
    for row in standing.rows:
        if row.problem is not None and safe(row.problem) not in told:
            why = "Breaks a limit" if row.is_barred else "Cannot be called"
            groups.setdefault((why, row.problem), []).append(row.candidate.label)
    return [
        f"{why}: {listed(map(safe, labels), len(labels))}: {safe(text)}"
        for (why, text), labels in groups.items()
    ]


def compared_names(c: PairedComparison) -> tuple[str, str]:
    """Name the two candidates, by their runs as well where these are two."""
    if c.runs is None or c.runs[0] == c.runs[1]:
        return c.a, c.b
    return f"{c.a} of run {c.runs[0]}", f"{c.b} of run {c.runs[1]}"


def paired_lines(c: PairedComparison) -> list[str]:
    """Say which examples count, and which do not."""
    lines = [f"{c.n:,} of {c.n_examples:,} examples were scored for both; only they count here"]
    for name, label in (("a", c.a), ("b", c.b)):
        if rest := getattr(c, f"scored_{name}") - c.n:
            lines.append(f"  {rest:,} scored for {name.upper()} ({label}) alone, and left out")
        if unpaired := getattr(c, f"unpaired_{name}"):
            lines.append(f"  {counted(unpaired, 'example')} only in {name.upper()}'s ({label})")
    return lines


def seen_line(comparison: PairedComparison, a: str = "A", b: str = "B") -> str:
    """Say how two candidates differ on the examples of a comparison."""
    return f"on these {counted(comparison.n_examples, 'example')} {_ahead(comparison.seen, a, b)}"


def _ahead(gap: Measure, a: str, b: str) -> str:
    """Say which of two is ahead, and by how much; no interval where nothing is uncertain."""
    if gap.value < 0.0:
        return _ahead(Measure(-gap.value, -gap.upper, -gap.lower), b, a)
    # in points with one decimal; adding 0 turns the -0.0 of a small loss into 0
    low, value, high = (round(100 * end, 1) + 0.0 for end in (gap.lower, gap.value, gap.upper))
    alike = f"{a} and {b} {'score alike' if low == high else 'differ by 0 points'}"
    text = f"{a} is ahead of {b} by {value:g} points" if value else alike
    return text if low == high else f"{text}, between {low:g} and {high:g}"


def comparison_line(c: PairedComparison, a: str = "A", b: str = "B") -> str:
    """Say what a comparison shows about new examples."""
    gap, chance = c.difference, min(max(c.chance, 1.0 - c.chance), 0.99)
    text = f"on new {c.unit}s like these {_ahead(gap, a, b)}: "
    if c.verdict in ("a", "b"):
        return text + proved(c.confidence)
    if c.verdict == "about equal":
        text += "about equal"
    else:
        text += (
            f"probable ({100 * chance:.0f} in 100), not proved" if chance > SURE else "not proved"
        )
    text += f"; {counted(c.n_units, c.unit)} can reveal a difference of about "
    text += points(c.resolution)
    # Of a difference below a quarter of what these examples can reveal nothing is known: how many
    # would prove it is a number of many digits that nobody should act on. More are named than the
    # difference that was seen would take, since what was seen may be luck.
    if c.examples_needed is None or abs(gap.value) * 4 < c.resolution:
        return text
    return f"{text}; about {about(c.examples_needed)} should prove who is ahead"


def effects_line(standing: Standing) -> str:
    """Name the best and the worst level of each axis on which they can be told apart."""
    clear = [axis for axis in axis_effects(standing) if axis.is_clear]
    return "; ".join(
        f"{safe(axis.axis)} {points(axis.spread)} ({safe(axis.levels[0].level)} over "
        f"{safe(axis.levels[-1].level)})"
        for axis in clear
    )


def facts(standing: Standing) -> list[tuple[str, str]]:
    """Return what stands below the decision, as titles and texts.

    The winner's mean on examples kept back, its further scores and limits, and what missing
    answers could change; each where there is such.
    """
    winner, confirmation = standing.winner, standing.confirmation
    lines = [("Confirmed", confirmation.text)] if confirmation else []
    measures = (f"{safe(m.name)} {measured_text(m)}" for m in (winner.measures if winner else ()))
    lines.append(("Measures", ", ".join(measures)))
    lines += [("Limit", limit_text(limit)) for limit in (winner.limits if winner else ())]
    lines.append(("Missing", missing_line(standing)))
    return [(title, text) for title, text in lines if text]


def run_lines(standing: Standing) -> list[str]:
    """Return who cannot be called, what a run has spent and how it ended, a line each."""
    return [
        *problem_lines(standing, told=""),  # a mode shows its own lines in place of the decision
        *(f"Cap passed: {text}" for text in passed_caps(standing)),
        f"Spent: {budget_line(standing)}, {time_used(standing)}",
        f"Run: {standing.run_id}, {ending(standing.end, standing.asked)}",
    ]


def run_json(standing: Standing) -> dict[str, Any]:
    """Return the run, its end, its spend and what is wrong as entries of a JSON object."""
    return {
        "problem": plain(standing.decision.problem),
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
    # The first four have a form of their own, and are told apart before the general case, which
    # writes any dataclass as its fields. A tuple must come after ``Measure``, which is one.
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
    # What says that its price is unknown says so for all amounts inside it. Dollars are counted in
    # whole nano-dollars and written as dollars; 0 of an unknown price would read as free.
    priced = getattr(value, "priced", priced)
    names = [f.name for f in fields(value) if f.repr]  # others are for Python alone
    record = {name: plain(getattr(value, name), priced=priced) for name in names}
    if "usd_nanos" in record:
        nanos = record.pop("usd_nanos")
        record["usd"] = usd(nanos) if priced and nanos is not None else None
    return record
