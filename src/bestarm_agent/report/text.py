"""Numbers and verdicts as text, for the terminal and for messages."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, inf, isnan, log10

from bestarm_agent.config.study import PRICE, Objective, ObjectiveSpec
from bestarm_agent.domain.spend import NANOS_PER_USD, usd
from bestarm_agent.engine.results.standing import (
    ObjectiveResult,
    Row,
    RowMeasure,
    Standing,
    Status,
)
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.stats.agreement import Measure

LEAST_LABEL = 16  # characters to which a label is shortened at most
_COARSE = 0.02  # intervals at least this wide are written with two digits
_MARKS: Mapping[Status, str] = {
    Status.BEST: "●",
    Status.LEADING: "●",
    Status.OPEN: "○",
    Status.BEATEN: "–",
    Status.BROKEN: "×",
    Status.BARRED: "×",
}


def safe(text: str) -> str:
    """Make text that others wrote harmless on a terminal: no control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shortened(label: str, width: int) -> str:
    """Shorten a label in its middle, since labels often differ at their ends.

    Example:
        >>> shortened("llama-167k/spaced/t=0.7", 16)
        'llama-16…d/t=0.7'
    """
    width = max(LEAST_LABEL, width)
    if len(label) <= width:
        return label
    tail = (width - 1) // 2
    return f"{label[: width - 1 - tail]}…{label[-tail:]}"


def money(nano_dollars: int) -> str:
    """Write dollars and cents, small amounts with two significant digits.

    Example:
        >>> money(0), money(1_230_000), money(300_000_000), money(12_340_000_000)
        ('$0', '$0.0012', '$0.30', '$12.34')
    """
    amount = usd(nano_dollars)
    if amount == 0:
        return "$0"
    digits = 2 if amount >= 0.1 else 1 - floor(log10(float(f"{amount:.1e}")))
    return f"${amount:,.{digits}f}"


def cost_text(nano_dollars: int, *, priced: bool) -> str:
    """Write dollars; a price that is not known shows as unknown, never as $0.

    Example:
        >>> cost_text(0, priced=True), cost_text(0, priced=False), cost_text(10**9, priced=False)
        ('$0', 'unknown', '$1.00 + unknown')
    """
    if priced:
        return money(nano_dollars)
    return f"{money(nano_dollars)} + unknown" if nano_dollars else "unknown"


def duration(seconds: float) -> str:
    """Write hours, minutes and seconds.

    Example:
        >>> duration(3.2), duration(75), duration(3725)
        ('3 s', '1:15', '1:02:05')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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


def share(value: float, width: float = 1.0) -> str:
    """Write a share with the digits that an interval of that width justifies.

    Example:
        >>> share(0.926, 0.2), share(0.926, 0.01), share(1.0)
        ('.93', '.926', '1.00')
    """
    return f"{value:.{2 if width >= _COARSE else 3}f}".removeprefix("0")


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


def interval(row: Row) -> str:
    """Write a candidate's interval."""
    width = row.upper - row.lower
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


def verdict_line(standing: Standing) -> str:
    """Say in a few words who leads."""
    best = standing.winner
    if best is None or best.estimate is None:
        return "no score yet"
    word: str = Status.BEST if standing.established else Status.LEADING
    if word is Status.BEST and standing.objective is None and not standing.is_best:
        word = "good enough"
    return f"{word}: {placed(best, graded=standing.graded)}"


def how_sure(standing: Standing) -> str:
    """Say how sure the verdict is, and by which guarantee."""
    level = f"{standing.confidence:.0%}"
    if len(standing.rows) == 1:
        return "it is the only candidate: nothing was compared"
    if standing.guarantee is Guarantee.HEURISTIC:
        return f"best guess; the intervals are {Guarantee.HEURISTIC}: no guarantee"
    if standing.objective is not None:
        return _how_sure_of(standing.objective, standing.guarantee)
    word = "certain" if standing.guarantee is Guarantee.EXACT else f"{level} sure"
    if standing.separated:
        return f"{word} that it is the best ({_meaning(standing.guarantee)})"
    if standing.margin == 0:
        equals = f"but {_others(standing)} may be as good"
        return f"{word} that none is better, {equals} ({_meaning(standing.guarantee)})"
    if standing.established:
        near = f"it is within {standing.within:g} of the best"
        return f"{word} that {near}; {_others(standing)} may be it ({_meaning(standing.guarantee)})"
    doubt = f"at {level} {_doubt(standing)} ({_meaning(standing.guarantee)})"
    return f"best guess: {doubt}{_opinion(standing.probability)}"


def _opinion(probability: float | None) -> str:
    """Quote the selection rule's own model, which may be wrong."""
    if probability is None:
        return ""
    likely = f"{probability:.0%}"
    if not 0.01 <= probability <= 0.99:
        likely = "over 99%" if probability > 0.99 else "under 1%"
    return f"; the rule's model, which guarantees nothing, gives it {likely}"


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


def _how_sure_of(result: ObjectiveResult, guarantee: Guarantee) -> str:
    aim = objective_text(result.spec)
    if result.established and result.answer is None:
        return f"{result.confidence:.0%} sure that no candidate keeps the limits, at all times"
    if result.established:
        word = "certain" if guarantee is Guarantee.EXACT else f"{result.confidence:.0%} sure"
        return f"{word} that it is {aim} ({_meaning(guarantee)})"
    within = ""
    if result.margin is not None and result.margin < 1:
        within = f"; it is within {ceil(1000 * result.margin) / 1000:.3f} of the best that counts"
    return (
        f"best guess: that this is {aim} is not established at {result.confidence:.0%}{within} "
        f"({_meaning(guarantee)})"
    )


def _doubt(standing: Standing) -> str:
    """Say how far the leading candidate may be from the best, and how many others may be it."""
    rest = f"{_others(standing)} cannot be ruled out"
    if standing.margin is None or standing.margin >= 1:
        return rest
    return f"it is within {ceil(1000 * standing.margin) / 1000:.3f} of the best, and {rest}"


def _others(standing: Standing) -> str:
    count = len(standing.rivals)
    return f"{count} other{'s' if count != 1 else ''}"


def _meaning(guarantee: Guarantee) -> str:
    if guarantee is Guarantee.EXACT:
        return "exact: every example was seen"
    return "anytime-valid intervals over all candidates, finite sample"


def safe_lines(text: str) -> str:
    """Make text of several lines harmless on a terminal; line breaks stay."""
    return "\n".join(safe(line) for line in text.split("\n"))
