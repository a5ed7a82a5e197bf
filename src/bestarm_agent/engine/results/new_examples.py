"""Statements of a run about new examples: drawn like those of the study, and seen by nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from bestarm_agent.domain.value_class import value_class
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.stats.arrays import BoolArray
from bestarm_agent.stats.new_examples import USUAL_DIFFERING, Leads, examples_to_prove, resolution

SURE = 0.9  # probability of what is said to be probable: of a bound, or of being near enough
_SHOWN_LEADS = 10  # of open candidates, those of the highest estimates
_LIKELY = 0.9  # probability from which a lead is worth naming though it is not shown


@value_class
class Against:
    """A candidate seen beside the one that is named."""

    behind: float  # the named one's mean score less its own on common examples, in [-1, 1]
    n: int  # of these examples
    chance: float  # that the named one is the better of the two on new examples, in (0, 1)
    most_behind: float  # on new examples it is at most so far behind, with probability ``SURE``
    is_level: bool  # all examples of the study would leave the two nearer than they can tell apart
    is_beaten: bool  # it is shown to be behind on new examples


@dataclass(frozen=True, slots=True)
class LeadOnNew:
    """The lead of the winner over another candidate."""

    candidate: str  # label of the other
    mean: float  # on the examples that both have seen
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class NewExamples:
    """Statements about the winner on new examples.

    That it is ahead, and the leads, hold together with the run's confidence, at all times,
    in spite of the choice; so does, by itself, the interval of its mean.
    """

    shown: bool  # whether it is ahead of every other candidate, or of all but those within reach
    mean: float  # its estimate
    lower: float
    upper: float
    leads: tuple[LeadOnNew, ...]  # over those that may be better; over the runner-up if none may
    resolution: float  # difference that all examples of the study show with probability .8
    # in all, that should show the leads (8 in 10); None if they are shown, or nobody can say
    examples_needed: int | None
    n_examples: int  # of the study; copies and draws of one count once, or clusters
    unit: str  # "example", or "cluster" where examples belong together


def new_examples(
    pairs: Pairs,
    winner: int,
    labels: Mapping[int, str],
    estimate: float,
    *,
    within: float,
    unit: str,
) -> tuple[NewExamples | None, dict[int, Against]]:
    """Work out what holds for new examples, and each other scored candidate beside the winner.

    None and none where nothing does.

    Args:
        pairs: the source of pairs.
        winner: its row.
        labels: of all rows, best first.
        estimate: of the winner's mean.
        within: how far below the best it may be.
        unit: what the study counts, "example" or "cluster".
    """
    answer, n, alpha = pairs.answer, pairs.answer.on_new.n_independent, pairs.answer.on_new.alpha
    if not (pairs.rule.seeks_best and answer.speaks_of_new) or answer.barred[winner]:
        return None, {}
    others = [row for row in labels if row != winner and not answer.barred[row]]
    evidence = answer.on_new.leads_over(winner, others)
    means = dict(zip(others, evidence.mean.tolist(), strict=True))
    may_be_better, behind = set(answer.on_new.rivals(winner)), answer.on_new.behind(winner)
    open_mask = np.array([row in may_be_better for row in others], dtype=bool)
    open_rows = [row for row in others if row in may_be_better]
    bounds = {row: answer.on_new.lead(winner, row) for row in (open_rows or others)[:_SHOWN_LEADS]}
    # If all open candidates are among those whose lead is bounded, the worst of their bounds is a
    # statement on how far behind the winner may be, beside the joint one: the narrower counts.
    if len(open_rows) <= len(bounds):
        behind = min(behind, max([0.0, *(-lower for lower, _ in bounds.values())]))
    leads = []
    for row, (least, most) in bounds.items() if open_rows else list(bounds.items())[:1]:
        mean = min(max(means[row], least), most)
        leads.append(LeadOnNew(labels[row], mean, min(mean, max(least, -behind)), most))
    # Of very many candidates most have no score: nothing is compared there.
    scored = pairs.table.n_scored[others] > 0
    compared = np.array(others, dtype=np.int64)[scored].tolist()
    beside = _beside(evidence[scored], open_mask[scored], n, alpha)
    # how often two answers differ is taken from the nearest rival: that is whom the resolution is
    # about; a candidate far behind differs on many more examples
    nearest = evidence.differing[open_mask if open_rows else slice(None)][:1].tolist()
    differing = nearest[0] if nearest else USUAL_DIFFERING
    lower, upper = answer.on_new.mean(winner)
    statements = NewExamples(
        shown=bool(others and behind <= within),
        mean=min(max(estimate, lower), upper),
        lower=lower,
        upper=upper,
        leads=tuple(leads),
        resolution=resolution(differing, n, alpha),
        examples_needed=examples_to_prove(evidence[open_mask], alpha),
        n_examples=n,
        unit=unit,
    )
    return statements, dict(zip(compared, beside, strict=True))


def _beside(seen: Leads, is_open: BoolArray, n: int, alpha: float) -> Iterator[Against]:
    """Yield each candidate beside the winner, by its leads and by who may still be better."""
    chances = seen.chances()
    # Too near to be told apart is said only of candidates that are not ruled out, and not of one
    # that the winner probably beats, however small the difference may be.
    is_level = is_open & seen.are_level(n, alpha) & (chances < _LIKELY)
    columns = (seen.mean, seen.n, chances, seen.most(SURE), is_level, ~is_open)
    yield from map(Against, *(column.tolist() for column in columns))
