"""The cheapest candidate that is good enough: candidates screened one after the other.

The order runs from the candidate most likely to be good (the most expensive, the largest) to the
most desirable one (the cheapest), and is fixed before any label is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bestarm_agent.certification.evidence import Goal
from bestarm_agent.certification.multiple_testing import CORRECTIONS, e_bh
from bestarm_agent.certification.portfolio_prior import FloatArray
from bestarm_agent.certification.screening import DrawScreen, PoolScreen, Verdict
from bestarm_agent.errors import nearest


@dataclass(frozen=True, slots=True)
class Screened:
    """The result of screening one candidate."""

    candidate: int
    verdict: Verdict  # of the test in both directions
    examples: tuple[int, ...]  # indices of the labels used, in the order of use
    log_e_value: float  # logarithm of the highest wealth against "the risk is above the target"
    log_wealths: tuple[float, ...]  # logarithm of that wealth after each label
    weights: tuple[FloatArray, ...]  # (S,) weights of the reliance factors before each label
    mean_loss: float  # mean true loss over the labels, NaN without any; carries no guarantee

    @classmethod
    def of(
        cls,
        candidate: int,
        screen: DrawScreen | PoolScreen,
        examples: Sequence[int],
        losses: Sequence[float],
    ) -> Screened:
        """Summarise a screen."""
        return cls(
            candidate=candidate,
            verdict=screen.verdict,
            examples=tuple(examples[: screen.n]),
            log_e_value=screen.log_e_value,
            log_wealths=tuple(screen.log_wealths),
            weights=tuple(screen.weights),
            mean_loss=sum(losses) / len(losses) if losses else float("nan"),
        )


@dataclass(frozen=True, slots=True)
class Certificate:
    """The candidates shown to be good enough."""

    chosen: int | None  # the certified candidate that comes last in the order, or None
    certified: tuple[int, ...]  # in the order
    screened: tuple[Screened, ...]  # those tested, in the order of testing

    @property
    def n_labels(self) -> int:
        """Return the number of labelled examples; one label serves all candidates."""
        return len({example for one in self.screened for example in one.examples})

    def labels_to_certify(self, candidate: int) -> int | None:
        """Return the number of labelled examples when a candidate was certified, or None."""
        labelled: set[int] = set()
        for one in self.screened:
            labelled.update(one.examples)
            if one.candidate == candidate and candidate in self.certified:
                return len(labelled)
        return None


def single_goal(goal: Goal, n_candidates: int, correction: str) -> Goal:
    """Return the goal of each single test, so that ``goal`` holds for all K candidates together."""
    if correction == "sequence":
        return goal
    return replace(goal, delta=goal.delta / max(1, n_candidates))


Screening = Callable[[int, Goal], Screened]


def certify(
    order: Sequence[int], screening: Screening, goal: Goal, correction: str = "sequence"
) -> Certificate:
    """Screen candidates until it is known which is the last good one of the order.

    Args:
        order: from the most likely to be good to the most desirable.
        screening: tests one candidate until there is a verdict or no label left.
        goal: its delta is for all candidates together.
        correction: "sequence" stops at the first that is not certified, at the full level;
            "bonferroni" tests each at delta/K, from the end of the order until one is certified;
            "e-bh" tests all, and bounds the expected share of bad ones among those certified.

    Example:
        >>> def screening(candidate, goal):  # the first two of four are good
        ...     verdict = Verdict.CERTIFIED if candidate < 2 else Verdict.REFUTED
        ...     return Screened(candidate, verdict, (0, 1), 3.0, (), (), 0.0)
        >>> found = certify([0, 1, 2, 3], screening, Goal(0.1, 0.1))
        >>> found.chosen, len(found.screened), found.n_labels
        (1, 3, 2)
    """
    strict = single_goal(goal, len(order), correction)
    if correction == "sequence":
        return _in_sequence(order, screening, goal)
    if correction == "bonferroni":
        return _from_the_end(order, screening, strict)
    if correction == "e-bh":
        return _by_e_bh(order, screening, goal, strict)
    raise ValueError(f"there is no correction {correction!r}; {nearest(correction, CORRECTIONS)}")


def _in_sequence(order: Sequence[int], screening: Screening, goal: Goal) -> Certificate:
    screened: list[Screened] = []
    certified: list[int] = []
    for candidate in order:
        screened.append(screening(candidate, goal))
        if screened[-1].verdict is not Verdict.CERTIFIED:
            break
        certified.append(candidate)
    return Certificate(certified[-1] if certified else None, tuple(certified), tuple(screened))


def _from_the_end(order: Sequence[int], screening: Screening, goal: Goal) -> Certificate:
    screened: list[Screened] = []
    for candidate in reversed(order):
        screened.append(screening(candidate, goal))
        if screened[-1].verdict is Verdict.CERTIFIED:
            return Certificate(candidate, (candidate,), tuple(screened))
    return Certificate(None, (), tuple(screened))


def _by_e_bh(order: Sequence[int], screening: Screening, goal: Goal, strict: Goal) -> Certificate:
    """Screen each until it would pass alone; then compare the wealths at which they stopped."""
    screened = [screening(candidate, strict) for candidate in order]
    values = [one.log_wealths[-1] if one.log_wealths else 0.0 for one in screened]
    certified = tuple(order[place] for place in e_bh(values, goal.delta))
    return Certificate(certified[-1] if certified else None, certified, tuple(screened))
