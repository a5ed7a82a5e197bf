"""The base of preselection rules: its feedback, choosing k arms, a state to save.

A rule gives each arm an index for the context at hand; the k arms of the largest are run. What
became of them comes back as ``RankedArms``, perhaps late or never.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.stats.keyed_random import KeyedRandom

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.intp]
BoolArray: TypeAlias = NDArray[np.bool_]
Arrays: TypeAlias = Mapping[str, NDArray[Any]]

_PATIENCE = 100  # ``n_ties`` from which a rule explores


@dataclass(frozen=True, slots=True)
class RankedArms:
    """The result of running some arms for one context.

    Winner feedback has ``n_ranked`` 1, a complete ranking has ``n_ranked`` s; anything between is a
    ranking whose tail is unordered. ``n_ranked`` 0 is a tie of all.
    """

    contexts: FloatArray  # (n, d) context vectors of all arms, finite
    # (s,) distinct arms that were run, s >= 2: the ranked ones, best first, then the others
    order: IntArray
    n_ranked: int = 1  # 0 <= n_ranked <= s
    # (s,) in the order of ``order``; None where only that is known
    scores: FloatArray | None = None

    def __post_init__(self) -> None:
        n, s = len(self.contexts), len(self.order)
        if s < 2:
            raise ValueError(f"feedback needs at least 2 arms that were run, got {s}")
        if len(set(self.order.tolist())) != s or self.order.min() < 0 or self.order.max() >= n:
            raise ValueError(
                f"order must hold distinct arms in 0..{n - 1}, got {self.order.tolist()}"
            )
        if not 0 <= self.n_ranked <= s:
            raise ValueError(f"n_ranked must be in 0..{s}, got {self.n_ranked}")
        if self.scores is not None and self.scores.shape != (s,):
            raise ValueError(f"{s} arms were run, got scores of shape {self.scores.shape}")

    @property
    def ordered(self) -> FloatArray:
        """Return the (s, d) context vectors of the arms that were run, in their order."""
        return self.contexts[self.order]


def score_feedback(
    contexts: FloatArray, rows: Sequence[int], scores: FloatArray, rng: np.random.Generator
) -> RankedArms:
    """Turn the scores of the s arms that were run into a ranking; higher is better.

    Arms that share the lowest score stay unranked, all of them if all scores are equal; other ties
    are broken at random. ``contexts`` (n, d) are those of all arms.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> feedback = score_feedback(np.eye(3), [0, 1, 2], np.array([0.0, 1.0, 0.0]), rng)
        >>> int(feedback.order[0]), feedback.n_ranked
        (1, 1)
    """
    if scores.shape != (len(rows),) or not np.isfinite(scores).all():
        raise ValueError(f"{len(rows)} arms need as many finite scores, got {scores.tolist()}")
    # Arms that share the lowest score lost to all others, and nothing is known among them: they
    # stay unranked, so that a coin does not teach the model an order.
    above = int((scores > scores.min()).sum())
    by_score = np.lexsort((rng.random(len(scores)), -scores))
    order = np.asarray(rows, dtype=np.intp)[by_score]
    # the last arm is known to be last, so ranking it too adds nothing to the likelihood
    return RankedArms(contexts, order, above, np.asarray(scores, dtype=np.float64)[by_score])


class Preselector(ABC):
    """Chooses k arms for a context, and learns which of them was best.

    Feedback may come late or never: ``learn`` needs only the contexts that ``choose`` saw. All that
    was learned is in ``state()``, so that another process can continue.

    Args:
        n_arms: that can be chosen, >= 2.
        n_features: length d of an arm's context vector, >= 1.
        seed: of all random choices, >= 0.
    """

    name: ClassVar[str]
    saved: ClassVar[Sequence[str]] = ()  # attributes, arrays all, that hold what was learned

    def __init__(self, n_arms: int, n_features: int, seed: int = 0) -> None:
        if n_arms < 2 or n_features < 1:
            raise ValueError(
                f"2 arms and 1 feature are the least, got n_arms={n_arms}, n_features={n_features}"
            )
        self.n_arms, self.n_features, self.seed = n_arms, n_features, seed
        self.n_learnt = 0  # feedbacks that something was learned from
        self.n_ties = 0  # feedbacks that taught nothing; each that did takes a quarter off
        self._draws = KeyedRandom(seed, "preselection choice")

    @abstractmethod
    def index(self, contexts: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return the (n,) indices of the arms with these (n, d) contexts; larger is better."""

    @abstractmethod
    def update(self, feedback: RankedArms) -> None:
        """Learn from one feedback; ``n_learnt`` counts it already."""

    def renew(self) -> None:  # noqa: B027 - most rules derive nothing
        """Make anew, or forget, what follows from the arrays that are saved: they have changed."""

    def choose(
        self, contexts: FloatArray, k: int, draw: int, *, allowed: BoolArray | None = None
    ) -> IntArray:
        """Return k distinct arms to run, the most promising first.

        Arms that always tie teach nothing, so a rule could run them for ever: while ``n_ties`` is
        100 or more, the last of the k arms is random.

        Args:
            contexts: (n, d) context vector of each arm.
            k: how many, 1 <= k <= arms allowed.
            draw: in [0, 2^64), decides the choice's random numbers.
            allowed: (n,) arms that can be run; None if all can.

        Raises:
            ValueError: shapes do not fit, or fewer than k arms are allowed.
        """
        self._check_contexts(contexts)
        n_allowed = self.n_arms if allowed is None else int(allowed.sum())
        if not 1 <= k <= n_allowed:
            raise ValueError(f"k must be in 1..{n_allowed}, the arms that can be run, got {k}")
        rng = self._draws.at(draw)
        index = self.index(contexts, rng)
        if allowed is not None:
            index = np.where(allowed, index, -np.inf)
        ranked = np.lexsort((rng.random(len(index)), -index))  # equal ones at random
        # One place of k is given away, never the first: users get the most promising candidate all
        # the same.
        if self.n_ties >= _PATIENCE and n_allowed > k > 1:
            place = int(rng.integers(k, n_allowed))
            ranked[[k - 1, place]] = ranked[[place, k - 1]]
        return ranked[:k]

    def learn(self, feedback: RankedArms) -> bool:
        """Learn from one feedback; return False for a tie of all, which teaches nothing.

        Raise ValueError if the contexts do not fit the rule.
        """
        self._check_contexts(feedback.contexts)
        if not feedback.n_ranked:
            self.n_ties += 1
            return False
        self.n_learnt += 1
        # Not back to 0: with one telling feedback among many ties the rule would hardly ever
        # explore.
        self.n_ties = self.n_ties * 3 // 4
        self.update(feedback)
        self.renew()
        return True

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all that was learned, as arrays that the rule does not share."""
        counts = np.array([self.n_learnt, self.n_ties], dtype=np.int64)
        return {"counts": counts, **{name: getattr(self, name).copy() for name in self.saved}}

    def restore(self, state: Arrays) -> None:
        """Continue from a state of the same rule and sizes; raises ValueError if incomplete."""
        missing = {"counts", *self.saved} - set(state)
        if missing:
            raise ValueError(f"the state of {self.name} lacks {', '.join(sorted(missing))}")
        self.n_learnt, self.n_ties = (int(count) for count in state["counts"])
        for name in self.saved:
            setattr(self, name, np.array(state[name]))
        self.renew()

    def _check_contexts(self, contexts: FloatArray) -> None:
        expected = (self.n_arms, self.n_features)
        if contexts.shape != expected:
            raise ValueError(f"contexts must have shape {expected}, got {contexts.shape}")
        if not np.isfinite(contexts).all():
            raise ValueError("contexts must be finite; they hold NaN or infinity")
