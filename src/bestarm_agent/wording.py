"""How numbers and verdicts read, on the terminal and in messages."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, isnan

from bestarm_agent.config.objective import Objective, ObjectiveSpec
from bestarm_agent.domain.spend import NANOS_PER_USD, usd
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.standing import Finding, Row, RowPrice, Standing
from bestarm_agent.stats.agreement import Measure

_MOST_MODELS = 10


def safe(text: str) -> str:
    """Make text that others wrote harmless on a terminal: no control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def money(nano_dollars: int) -> str:
    """Dollars, with as many digits as tell something.

    Example:
        >>> money(0), money(1_230_000), money(12_340_000_000)
        ('$0', '$0.00123', '$12.34')
    """
    amount = usd(nano_dollars)
    if amount == 0:
        return "$0"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.3g}"


def unpriced(models: Sequence[str]) -> str:
    """That the prices of some ``provider/model`` are missing, and how to give them.

    Example:
        >>> unpriced(["openai/a", "openai/b"])[:60]
        'the prices of openai/a and openai/b are not known, and an un'
    """
    more = len(models) - _MOST_MODELS
    named = [*models[:_MOST_MODELS], *([f"{more} more"] if more > 0 else [])]
    *others, last = named
    names = f"{', '.join(others)} and {last}" if others else last
    subject = f"prices of {names} are" if others else f"price of {names} is"
    return (
        f"the {subject} not known, and an unknown price is not $0; give one where the model is "
        f"listed: `options: {{price: {{input: 0.10, output: 0.50}}}}`, in dollars per million "
        f"tokens; a judge's as `model_options: {{price: ...}}`, a program's as "
        f"`options: {{usd_per_call: 0.001}}`, that of recorded answers as `usd` in their rows"
    )


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

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


def interval(row: Row) -> str:
    """A candidate's interval."""
    return f"[{row.lower:.3f}, {row.upper:.3f}]"


def measure(found: Measure) -> tuple[str, str]:
    """An estimate and its interval; a dash where there is none.

    Example:
        >>> measure(Measure(0.25, 0.1, 0.4))
        ('0.250', '[0.100, 0.400]')
    """
    value = "-" if isnan(found.value) else f"{found.value:.3f}"
    return value, f"[{found.lower:.3f}, {found.upper:.3f}]"


def verdict_line(standing: Standing) -> str:
    """Who leads, in a few words."""
    best = standing.winner
    if best is None or best.mean is None:
        return "no score yet"
    return f"leading: {safe(best.candidate.label)} {best.mean:.3f} {interval(best)}"


def how_sure(standing: Standing) -> str:
    """How sure the verdict is, and by which guarantee."""
    level = f"{standing.confidence:.0%}"
    if standing.guarantee is Guarantee.HEURISTIC:
        return f"best guess; the intervals are {Guarantee.HEURISTIC}: no guarantee"
    if standing.finding is not None:
        return _how_sure_of(standing.finding, standing.guarantee)
    word = "certain" if standing.guarantee is Guarantee.EXACT else f"{level} sure"
    if standing.separated:
        return f"{word} that it is the best ({_meaning(standing.guarantee)})"
    if standing.margin == 0:
        equals = f"but {_others(standing)} may be as good"
        return f"{word} that none is better, {equals} ({_meaning(standing.guarantee)})"
    doubt = f"at {level} {_doubt(standing)} ({_meaning(standing.guarantee)})"
    return f"best guess: {doubt}{_opinion(standing.probability)}"


def _opinion(probability: float | None) -> str:
    """What the selection rule's own model thinks; it may be wrong."""
    if probability is None:
        return ""
    likely = "over 99%" if probability > 0.99 else f"{probability:.0%}"
    return f"; the rule's model, which guarantees nothing, gives it {likely}"


def aim_line(spec: ObjectiveSpec) -> str:
    """What an objective asks for.

    Example:
        >>> aim_line(ObjectiveSpec(name="cheapest-within-epsilon", epsilon=0.05))
        'the cheapest within 0.05 of the best'
    """
    match spec.name:
        case Objective.BEST_UNDER_USD:
            return f"the best that costs at most ${spec.usd_per_1k_calls:g} per 1,000 calls"
        case Objective.CHEAPEST:
            return f"the cheapest within {spec.epsilon:g} of the best"
        case Objective.PARETO:
            return "those that none beats without being dearer"
        case _:
            return "the best"


def price_text(price: RowPrice | None) -> str:
    """Dollars for 1,000 calls, with their interval where one is known."""
    if price is None or price.mean is None:
        return "-"
    mean = money(round(price.mean * NANOS_PER_USD))
    if price.upper == inf:
        return mean
    ends = (money(round(end * NANOS_PER_USD)) for end in (price.lower, price.upper))
    return f"{mean} [{', '.join(ends)}]"


def _how_sure_of(finding: Finding, guarantee: Guarantee) -> str:
    aim, several = aim_line(finding.spec), finding.spec.name is Objective.PARETO
    if finding.established:
        word = "certain" if guarantee is Guarantee.EXACT else f"{finding.confidence:.0%} sure"
        are = "these are" if several else "it is"
        return f"{word} that {are} {aim} ({_meaning(guarantee)})"
    within = ""
    if finding.margin is not None and finding.margin < 1:
        within = f"; it is within {ceil(1000 * finding.margin) / 1000:.3f} of the best that counts"
    are = "these are" if several else "this is"
    return (
        f"best guess: that {are} {aim} is not established at {finding.confidence:.0%}{within} "
        f"({_meaning(guarantee)})"
    )


def _doubt(standing: Standing) -> str:
    """How far the leading candidate may be from the best, and how many others may be it."""
    rest = f"{_others(standing)} cannot be ruled out"
    if standing.margin is None or standing.margin >= 1:
        return rest
    return f"it is within {ceil(1000 * standing.margin) / 1000:.3f} of the best, and {rest}"


def _others(standing: Standing) -> str:
    count = len(standing.tied)
    return f"{count} other{'s' if count != 1 else ''}"


def _meaning(guarantee: Guarantee) -> str:
    if guarantee is Guarantee.EXACT:
        return "exact: every example was seen"
    return "anytime-valid intervals over all candidates, finite sample"


def safe_lines(text: str) -> str:
    """Like ``safe``, but line breaks stay: for messages of several lines."""
    return "\n".join(safe(line) for line in text.split("\n"))
