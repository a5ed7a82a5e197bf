"""A judge held against gold scores: how far it can be trusted, and what its errors may change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.outcome import Vote
from bestarm_agent.domain.spend import Spend, usd
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.pairwise import place_of
from bestarm_agent.standing import Row, Standing
from bestarm_agent.stats.agreement import (
    Agreement,
    Measure,
    agreement,
    corrected,
    difference,
    mean,
    share,
    shifted,
)


@dataclass(frozen=True, slots=True)
class Compared:
    """One answer that has both a judge's score and a gold score.

    Attributes:
        candidate: row of the candidate, or None.
        judged: the judge's score, in [0, 1].
        gold: the gold score, in [0, 1].
        n_chars: length of the answer.
        spend: what judging it cost.
        votes: the judgements that the score is made of.
    """

    candidate: int | None
    judged: float
    gold: float
    n_chars: int
    spend: Spend
    votes: tuple[Vote, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """All answers that could be compared.

    Attributes:
        pairs: those that were.
        n_labels: how many labels there are.
        n_void: labelled answers on which the judge failed, or that no budget was left for.
        why: what was said of the last of those.
    """

    pairs: tuple[Compared, ...]
    n_labels: int
    n_void: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One measure, for people.

    Attributes:
        name: what it is called.
        measure: its value with an interval.
        meaning: what it says.
    """

    name: str
    measure: Measure
    meaning: str


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """What a judge is worth, measured on gold scores.

    Attributes:
        comparison: what was compared.
        agreement: agreement, kappa, bias, sensitivity, specificity.
        place: for comparisons in both orders: how often the answer in the first place wins beyond
            one half, in [-1/2, 1/2]; 0 is fair. None for other judges.
        flips: share of those answers whose verdict turns with the order; None likewise.
        length: bias on the longer half of the answers minus bias on the shorter half, in [-2, 2];
            above 0, length is rewarded beyond what the gold scores say.
        usd_per_1000: dollars for a thousand judgements.
        confidence: of each interval by itself, in (0, 1).
    """

    comparison: Comparison
    agreement: Agreement
    place: Measure | None
    flips: Measure | None
    length: Measure
    usd_per_1000: float
    confidence: float

    def lines(self) -> list[Line]:
        """The measures, in words."""
        found = self.agreement
        lines = [
            Line("agreement", found.agreement, "share judged good or bad as the labels say"),
            Line("kappa", found.kappa, "agreement beyond chance; 1 is perfect"),
            Line("bias", found.bias, "mean of judge minus label; above 0 is too kind"),
            Line("sensitivity", found.sensitivity, "share of good answers judged good"),
            Line("specificity", found.specificity, "share of bad answers judged bad"),
            Line("length bias", self.length, "bias on longer answers minus that on shorter ones"),
        ]
        if self.place is not None:
            lines.append(Line("place bias", self.place, "how far the first place is favoured"))
        if self.flips is not None:
            lines.append(Line("flips", self.flips, "share of verdicts that turn with the order"))
        return lines


@dataclass(frozen=True, slots=True)
class Moved:
    """Where a candidate may truly stand, given the judge's measured errors.

    Attributes:
        row: the candidate as the run has it.
        alike: its mean if the judge errs alike on all candidates' answers.
        own: its mean corrected by the judge's bias on its own labelled answers.
        n_own: how many of those there are.
    """

    row: Row
    alike: Measure
    own: Measure
    n_own: int


def check_judge(comparison: Comparison, confidence: float) -> JudgeCheck:
    """Measure a judge.

    Args:
        comparison: the judge's scores beside gold scores.
        confidence: of each interval, in (0, 1).

    Raises:
        ConfigError: nothing could be compared.
    """
    pairs, alpha = comparison.pairs, 1.0 - confidence
    if not pairs:
        raise ConfigError(_nothing_compared(comparison))
    firsts = [wins for pair in pairs if (wins := _first_wins(pair.votes)) is not None]
    swings = [abs(first - second) > 0.5 for first, second in _orders(pairs)]
    return JudgeCheck(
        comparison=comparison,
        agreement=agreement([p.judged for p in pairs], [p.gold for p in pairs], alpha),
        place=mean(np.array(firsts) - 0.5, -0.5, 0.5, alpha) if firsts else None,
        flips=share(sum(swings), len(swings), alpha) if swings else None,
        length=_length_bias(pairs, alpha),
        usd_per_1000=1000 * usd(sum(p.spend.usd_nanos for p in pairs)) / len(pairs),
        confidence=confidence,
    )


def _nothing_compared(comparison: Comparison) -> str:
    if comparison.n_void:
        return (
            f"the judge scored none of the {comparison.n_labels} labelled answers; it failed on "
            f"{comparison.n_void} of them, the last time: {comparison.why}"
        )
    return (
        f"none of {comparison.n_labels} labels is about an answer that the judge scored; "
        f"labels name an example's id with a candidate's label or the answer"
    )


def moved(standing: Standing, check: JudgeCheck) -> list[Moved]:
    """Correct the candidates' means by the judge's measured errors.

    Scores of 0 and 1 are corrected by sensitivity and specificity, others by the bias. Every
    interval takes the run's and the check's error probabilities together.
    """
    pairs = check.comparison.pairs
    binary = all(value in (0.0, 1.0) for pair in pairs for value in (pair.judged, pair.gold))
    found = []
    for row in standing.rows:
        if row.mean is None:
            continue
        observed = Measure(row.mean, row.lower, row.upper)
        errors = [p.judged - p.gold for p in pairs if p.candidate == row.index]
        own = shifted(observed, mean(errors, -1.0, 1.0, 1.0 - check.confidence))
        alike = shifted(observed, check.agreement.bias)
        if binary:
            alike = corrected(observed, check.agreement.sensitivity, check.agreement.specificity)
        found.append(Moved(row, alike, own, len(errors)))
    return found


def _orders(pairs: Iterable[Compared]) -> list[tuple[float, float]]:
    """The candidate's mean worth in the first and in the second place, where it stood in both."""
    found = []
    for pair in pairs:
        first = [vote.value for vote in pair.votes if place_of(vote) == "first"]
        second = [vote.value for vote in pair.votes if place_of(vote) == "second"]
        if first and second:
            found.append((float(np.mean(first)), float(np.mean(second))))
    return found


def _first_wins(votes: Sequence[Vote]) -> float | None:
    """How often the answer in the first place wins, over both orders; None without both."""
    for first, second in _orders([Compared(None, 0.0, 0.0, 0, Spend(), tuple(votes))]):
        return (first + 1.0 - second) / 2
    return None


def _length_bias(pairs: Sequence[Compared], alpha: float) -> Measure:
    errors = np.array([pair.judged - pair.gold for pair in pairs])
    lengths = np.array([pair.n_chars for pair in pairs])
    longer = lengths > np.median(lengths)
    return difference(errors[longer], errors[~longer], -1.0, 1.0, alpha)
