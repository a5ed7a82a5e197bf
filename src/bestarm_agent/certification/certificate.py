"""The last good enough candidate of an order: candidates screened one after the other.

The order runs from the candidate most likely to be good (the most expensive, the largest) to the
most desirable one (the cheapest), and is fixed before any label is seen. Candidates may share
examples and depend on each other in any way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bestarm_agent.certification.betting import Goal, Method, RiskTest
from bestarm_agent.errors import nearest
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.non_inferiority import Conclusion

_STRICTER = 1.0 - 1e-6
_DEFAULT_RATIO = 3  # unlabelled examples per label, where nothing says how many

Indices: TypeAlias = NDArray[np.intp]


class Screen:
    """One candidate's test in both directions, with its history.

    Forward: "the risk is above the target" is to be refuted; then the candidate passes. Backward:
    the same test of 1 - loss against 1 - target, slightly stricter, since a risk equal to the
    target is good. Once it is refuted, the risk is above the target, and more labels are useless.
    Stopping for that reason (or any other) never costs validity.

    Attributes:
        log_wealths: logarithm of the forward wealth after each label.
        weights: (S,) of the reliance factors before each label.
    """

    def __init__(self, goal: Goal, method: Method | None = None) -> None:
        self._forward = RiskTest(goal, method)
        self._backward = RiskTest(Goal((1.0 - goal.risk) * _STRICTER, goal.delta), method)
        self.log_wealths: list[float] = []
        self.weights: list[FloatArray] = []
        self._losses = 0.0

    @property
    def n(self) -> int:
        """Number of labels so far."""
        return self._forward.n

    @property
    def log_e_value(self) -> float:
        """Logarithm of the highest forward wealth so far."""
        return self._forward.log_peak

    @property
    def verdict(self) -> Conclusion:
        """Passed: the risk is at most the target; failed: it is above; once decided it stays."""
        if self._forward.certified:
            return Conclusion.PASSED
        return Conclusion.FAILED if self._backward.certified else Conclusion.UNDECIDED

    def push(self, loss: float | None, guess: float = 0.0, others: float = 0.0) -> None:
        """Take the next labelled example; see ``RiskTest.push``.

        A loss of None, if its label will never come, is the worst in both directions.
        """
        self.push_ranges(loss, (guess, guess), (others, others))

    def push_ranges(
        self, loss: float | None, guess: tuple[float, float], others: tuple[float, float]
    ) -> None:
        """Take an example of which only ranges are known, at its worst value in both directions.

        Each range is (lowest, highest). Understating evidence is safe however the ranges came
        about: the observation used is at least the true one, in every round.
        """
        lowest, highest = (0.0, 1.0) if loss is None else (loss, loss)
        self._losses += highest
        self.weights.append(self._forward.weights)
        self._forward.push(highest, guess[0], others[1])
        self._backward.push(1.0 - lowest, 1.0 - guess[1], 1.0 - others[0])
        self.log_wealths.append(self._forward.log_wealth)

    def screened(self, candidate: int, examples: Sequence[int]) -> Screened:
        """Sum up, given the labelled examples in the order of use."""
        return Screened(
            candidate=candidate,
            verdict=self.verdict,
            examples=tuple(examples[: self.n]),
            log_e_value=self.log_e_value,
            log_wealths=tuple(self.log_wealths),
            weights=tuple(self.weights),
            mean_loss=self._losses / self.n if self.n else float("nan"),
        )


@dataclass(frozen=True, slots=True)
class Screened:
    """The result of screening one candidate."""

    candidate: int
    verdict: Conclusion
    examples: tuple[int, ...]  # indices of the labels used, in the order of use
    log_e_value: float  # logarithm of the highest wealth against "the risk is above the target"
    log_wealths: tuple[float, ...]  # logarithm of that wealth after each label
    weights: tuple[FloatArray, ...]  # (S,) weights of the reliance factors before each label
    mean_loss: float  # mean true loss over the labels, NaN without any; carries no guarantee


@dataclass(frozen=True, slots=True)
class Certificate:
    """The candidates shown to be good enough."""

    chosen: int | None  # the certified candidate that comes last in the order, or None
    certified: tuple[int, ...]  # in the order
    screened: tuple[Screened, ...]  # those tested, in the order of testing

    @property
    def n_labels(self) -> int:
        """Return the number of labelled examples; one label serves all candidates."""
        return len({example for screened in self.screened for example in screened.examples})

    def labels_to_certify(self, candidate: int) -> int | None:
        """Return the number of labelled examples when a candidate was certified, or None."""
        labelled: set[int] = set()
        for screened in self.screened:
            labelled.update(screened.examples)
            if screened.candidate == candidate and candidate in self.certified:
                return len(labelled)
        return None


def certify(
    order: Sequence[int], screening: Callable[[int], Screened], correction: str = "sequence"
) -> Certificate:
    """Screen candidates until it is known which is the last good one of the order.

    Args:
        order: from the most likely to be good to the most desirable.
        screening: tests one candidate for its ``single_goal``, until there is a verdict or no label
            left.
        correction: "sequence" stops at the first that does not pass: a false certification needs
            the first bad candidate to pass, so each is tested at the full level (Bauer 1991).
            "bonferroni" looks from the end of the order until one passes, each at delta/K.

    Example:
        >>> def screening(candidate):  # the first two of four are good
        ...     verdict = Conclusion.PASSED if candidate < 2 else Conclusion.FAILED
        ...     return Screened(candidate, verdict, (0, 1), 3.0, (), (), 0.0)
        >>> found = certify([0, 1, 2, 3], screening)
        >>> found.chosen, len(found.screened), found.n_labels
        (1, 3, 2)
    """
    if len(set(order)) < len(order):
        raise ValueError(f"an order names each candidate once, got {list(order)}")
    screened: list[Screened] = []
    certified: list[int] = []
    for candidate in in_order_of_trying(order, correction):
        screened.append(screening(candidate))
        passed = screened[-1].verdict is Conclusion.PASSED
        if passed:
            certified.append(candidate)
        if not gives_way(screened[-1].verdict, correction):
            break
    return Certificate(certified[-1] if certified else None, tuple(certified), tuple(screened))


def in_order_of_trying(order: Sequence[int], correction: str) -> Sequence[int]:
    """Turn the order of a certification into that in which it looks at candidates, or back.

    Raises:
        ValueError: there is no such correction.
    """
    corrections = "sequence", "bonferroni"
    if correction not in corrections:
        raise ValueError(
            f"there is no correction {correction!r}; {nearest(correction, corrections)}"
        )
    return order[::-1] if correction == "bonferroni" else order


def gives_way(verdict: Conclusion, correction: str) -> bool:
    """Return whether the next candidate is looked at after this verdict on one."""
    return (verdict is Conclusion.PASSED) != (correction == "bonferroni")


def single_goal(goal: Goal, n_candidates: int, correction: str) -> Goal:
    """Return the goal of each single test, so that ``goal`` holds for all K candidates together."""
    if correction == "sequence":
        return goal
    return replace(goal, delta=goal.delta / max(1, n_candidates))


@dataclass(frozen=True, slots=True)
class Rounds:
    """A plan of n rounds, the same for all candidates."""

    labelled: Indices  # (n,) examples to label, in a uniformly random order
    others: Indices  # (n, r) examples that are only guessed, none of them twice

    @property
    def width(self) -> int:
        """Return the number of examples of a round: 1 + r."""
        return 1 + int(self.others.shape[1])

    @property
    def sequence(self) -> Indices:
        """Return the (n (1 + r),) examples, round after round, the labelled one first."""
        return np.column_stack([self.labelled, self.others]).ravel()


def plan_rounds(
    labelled: Indices,
    unlabelled: Indices,
    rng: np.random.Generator,
    *,
    ratio: int | None = None,
    max_labels: int | None = None,
) -> Rounds:
    """Plan the rounds of a certification.

    A round has ``ratio`` >= 0 examples that are only guessed; None: as many as there are, 3 if all
    examples are labelled. Where the ``unlabelled`` ones do not suffice, labelled ones are used
    without their labels. Raises ValueError if there are too few examples.
    """
    if not len(labelled):
        raise ValueError("no example has a label")
    if (ratio is not None and ratio < 0) or (max_labels is not None and max_labels < 1):
        raise ValueError(
            f"ratio must be at least 0 and max_labels at least 1, got {ratio} and {max_labels}"
        )
    most = len(labelled) if max_labels is None else min(max_labels, len(labelled))
    if ratio is None:
        ratio = len(unlabelled) // most or _DEFAULT_RATIO
    n = min(most, (len(labelled) + len(unlabelled)) // (1 + ratio))
    if n < 1:
        raise ValueError(
            f"{len(labelled) + len(unlabelled)} examples are too few for {ratio} unlabelled ones "
            f"per label; lower the ratio"
        )
    # The random order makes the rounds draws without replacement in an order that no score has
    # seen; an order of the file might put the easy ones first.
    labelled = rng.permutation(labelled)
    others = rng.permutation(unlabelled)
    # Labels beyond the n rounds are spent as unlabelled examples: their labels are not looked at,
    # so they are exchangeable with the others.
    if len(others) < ratio * n:
        others = np.concatenate([others, labelled[n:]])
    return Rounds(labelled[:n], others[: ratio * n].reshape(n, ratio))


def certify_losses(
    losses: ArrayLike,
    guesses: ArrayLike | None,
    goal: Goal,
    method: Method | None = None,
    *,
    order: Sequence[int] | None = None,
    correction: str = "sequence",
    max_labels: int | None = None,
    ratio: int | None = None,
    seed: int = 0,
) -> Certificate:
    """Find the last candidate of an order that is good enough.

    Args:
        losses: (K, N) true losses in [0, 1]; NaN where an example has no label.
        guesses: (K, N) the losses as an autoevaluator sees them, in [0, 1]; None without one.
        goal: what is to be shown; its delta is for all candidates together.
        method: how evidence is gathered.
        order: candidates from the most likely to be good to the most desirable; None: by number.
        correction: see ``certify``.
        max_labels: the most labels that may be used.
        ratio: unlabelled examples per label, >= 0; None: as many as there are besides the labels
            that may be used, so none in a table that is fully labelled.
        seed: of the random order of the examples, >= 0.

    Raises:
        ValueError: the tables do not fit, hold other numbers, or have too few examples.
    """
    true = _checked("losses", losses, known=False)
    guessed = None if guesses is None else _checked("guesses", guesses, known=True)
    if guessed is not None and guessed.shape != true.shape:
        raise ValueError(f"guesses are {guessed.shape}, but the losses are {true.shape}")
    is_labelled = np.asarray(~np.isnan(true).any(axis=0))
    labelled = np.flatnonzero(is_labelled)
    plan = plan_rounds(
        labelled,
        np.flatnonzero(~is_labelled),
        KeyedRandom(seed, "certify-order").at(0),
        ratio=_ratio(len(labelled), true.shape[1], max_labels) if ratio is None else ratio,
        max_labels=max_labels,
    )
    method, order = method or Method(), range(len(true)) if order is None else order
    if guessed is None or not plan.others.shape[1]:
        # Without others, rho (their mean guess - own guess) is noise of the guess: R-Eval.
        method, guessed = replace(method, name="r-eval"), np.zeros_like(true)
    if not set(order) <= set(range(len(true))):
        raise ValueError(f"candidates are numbered 0 to {len(true) - 1}, got {list(order)}")
    single = single_goal(goal, len(order), correction)

    def screening(candidate: int) -> Screened:
        screen, row = Screen(single, method), guessed[candidate]
        for example, guessed_only in zip(plan.labelled, plan.others, strict=True):
            if screen.verdict is not Conclusion.UNDECIDED:
                break
            mean = float(row[guessed_only].mean()) if len(guessed_only) else 0.0
            screen.push(float(true[candidate, example]), float(row[example]), mean)
        return screen.screened(candidate, plan.labelled.tolist())

    return certify(order, screening, correction)


def _checked(name: str, values: ArrayLike, *, known: bool) -> FloatArray:
    table: FloatArray = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"{name} must be (candidates, examples), both >= 1, got {table.shape}")
    wrong = (table < 0) | (table > 1) | (np.isnan(table) & known)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(f"{name} must be in [0, 1], got {table[where]:g} at {where}")
    return table


def _ratio(n_labelled: int, n_examples: int, max_labels: int | None) -> int | None:
    """Return the number of unlabelled examples per label that lets all labels be used."""
    most = n_labelled if max_labels is None else min(max_labels, n_labelled)
    return (n_examples - most) // most if most else None
