"""The cheapest candidate that is good enough: candidates screened in an order, one after the other.

The order runs from the candidate that is most likely to be good (the dearest, the largest) to the
one that would be nicest to have (the cheapest), and is fixed before any label is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bestarm_agent.certification.evidence import Goal
from bestarm_agent.certification.multiple import CORRECTIONS, e_bh
from bestarm_agent.certification.priors import FloatArray
from bestarm_agent.certification.screening import Screen, Verdict
from bestarm_agent.errors import nearest


@dataclass(frozen=True, slots=True)
class Screened:
    """How the screening of one candidate ended.

    Attributes:
        candidate: its index.
        verdict: what was shown.
        examples: indices of the examples whose labels were used, in the order of use.
        log_e_value: logarithm of the highest wealth against "the risk is above the target".
        log_wealths: its logarithm after each label.
        weights: (S,) weights of the reliance factors before each label.
        mean_loss: mean true loss over the labels, NaN without any; no guarantee goes with it.
    """

    candidate: int
    verdict: Verdict
    examples: tuple[int, ...]
    log_e_value: float
    log_wealths: tuple[float, ...]
    weights: tuple[FloatArray, ...]
    mean_loss: float

    @classmethod
    def of(
        cls, candidate: int, screen: Screen, examples: Sequence[int], losses: Sequence[float]
    ) -> Screened:
        """Sum a screen up."""
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
    """Which candidates are good enough.

    Attributes:
        chosen: the certified candidate that comes last in the order, or None.
        certified: all certified ones, in the order.
        screened: those that were looked at, in the order of looking.
    """

    chosen: int | None
    certified: tuple[int, ...]
    screened: tuple[Screened, ...]

    @property
    def n_labels(self) -> int:
        """How many examples had to be labelled: one label serves all candidates."""
        return len({example for one in self.screened for example in one.examples})

    def labels_to_certify(self, candidate: int) -> int | None:
        """How many examples had been labelled when this candidate was certified, or None."""
        labelled: set[int] = set()
        for one in self.screened:
            labelled.update(one.examples)
            if one.candidate == candidate and candidate in self.certified:
                return len(labelled)
        return None


def single_goal(goal: Goal, n_candidates: int, correction: str) -> Goal:
    """What each of K candidates is tested for, so that ``goal`` holds for all of them together.

    Example:
        >>> single_goal(Goal(0.2, 0.1), 4, "bonferroni").delta
        0.025
    """
    if correction == "sequence":
        return goal
    return replace(goal, delta=goal.delta / max(1, n_candidates))


Screening = Callable[[int, Goal], Screened]


def certify(
    order: Sequence[int], screening: Screening, goal: Goal, correction: str = "sequence"
) -> Certificate:
    """Screen candidates until it is known which is the last good one of the order.

    Args:
        order: candidates, from the most likely to be good to the nicest to have.
        screening: screens one candidate against a goal, until there is a verdict or no label left.
        goal: what is to be shown; delta is for all candidates together.
        correction: "sequence" stops at the first that is not certified, at the full level;
            "bonferroni" tests each at delta/K, from the end of the order until one is certified;
            "e-bh" tests all, and bounds the expected share of bad ones among those certified.

    Raises:
        ValueError: there is no such correction.

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
