"""Certification on a stored table: as if labels were asked for one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.certification.certificate import Certificate, Screened, certify
from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.reliance import METHODS
from bestarm_agent.certification.screening import DrawScreen, PoolScreen, Verdict
from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.losses import LossTable
from bestarm_agent.stats.keyed import KeyedRandom

_DEFAULT_RATIO = 3  # unlabelled examples per label, where the table leaves it open


@dataclass(frozen=True, slots=True)
class Terms:
    """How a table is certified from.

    Attributes:
        goal: what is to be shown.
        method: how evidence is gathered.
        order: column by which candidates are tried, from large to small, or "given".
        correction: see ``certify``.
        max_labels: most labels that may be used, or None.
        ratio: unlabelled examples per label, >= 1; None: as many as there are, 3 if all are
            labelled. Not used on a pool.
        pool: whether the question is the mean loss over exactly these examples.
        choose: whether to choose which example of the pool to label next.
        seed: of the random order of the examples, >= 0.
    """

    goal: Goal
    method: Method = field(default_factory=Method)
    order: str = "given"
    correction: str = "sequence"
    max_labels: int | None = None
    ratio: int | None = None
    pool: bool = False
    choose: bool = False
    seed: int = 0


def certify_table(table: LossTable, terms: Terms) -> Certificate:
    """Find the last candidate of the order that is good enough.

    Raises:
        ConfigError: the table has too few examples, or the terms do not fit it.
    """
    order = table.order(terms.order)
    screening = _Pool(table, terms) if terms.pool else _Draws(table, terms)
    return certify(order, screening.screen, terms.goal, terms.correction)


def alternatives(table: LossTable, terms: Terms) -> dict[str, Certificate]:
    """What each method would have found, and with how many labels; by the method's name."""
    return {
        name: certify_table(table, replace(terms, method=replace(terms.method, name=name)))
        for name in METHODS
        if len(table.guesses) or name == "r-eval"
    }


class _Draws:
    """Labelled examples in a random order, each with its own unlabelled ones."""

    def __init__(self, table: LossTable, terms: Terms) -> None:
        self._table = table
        self._method = terms.method
        labelled, unlabelled = table.labelled, _unlabelled(table)
        if not len(labelled):
            raise ConfigError(f"no example of {table.source} has a true loss for every candidate")
        rng = KeyedRandom(terms.seed, "certify-order").at(0)
        labelled = rng.permutation(labelled)
        self._ratio, n = _sizes(len(labelled), len(unlabelled), terms)
        rest = labelled[n:] if len(unlabelled) < self._ratio * n else labelled[:0]
        others = np.concatenate([rng.permutation(unlabelled), rest])
        self._labelled: NDArray[np.intp] = labelled[:n]
        self._others: NDArray[np.intp] = others[: self._ratio * n].reshape(n, self._ratio)

    def screen(self, candidate: int, goal: Goal) -> Screened:
        """Screen one candidate until there is a verdict or no label is left."""
        losses, guesses = self._table.losses[candidate], self._table.guesses[:, candidate]
        screen = DrawScreen(goal, self._method, len(guesses))
        used: list[float] = []
        for example, others in zip(self._labelled, self._others, strict=True):
            if screen.verdict is not Verdict.UNDECIDED:
                break
            used.append(float(losses[example]))
            screen.push(used[-1], guesses[:, example], guesses[:, others].mean(axis=1))
        return Screened.of(candidate, screen, self._labelled.tolist(), used)


def _unlabelled(table: LossTable) -> NDArray[np.intp]:
    return np.flatnonzero(np.isnan(table.losses).any(axis=0))


def _sizes(n_labelled: int, n_unlabelled: int, terms: Terms) -> tuple[int, int]:
    """Unlabelled examples per label, and labels that can be used."""
    most = n_labelled if terms.max_labels is None else min(terms.max_labels, n_labelled)
    as_many_as_there_are = n_unlabelled // most or _DEFAULT_RATIO
    ratio = as_many_as_there_are if terms.ratio is None else terms.ratio
    n = min(most, (n_labelled + n_unlabelled) // (1 + ratio))
    if n < 1:
        raise ConfigError(
            f"{n_labelled + n_unlabelled} examples are too few for {ratio} unlabelled ones per "
            f"label; lower the ratio"
        )
    return ratio, n


class _Pool:
    """All examples are the population; labels are drawn from it without replacement."""

    def __init__(self, table: LossTable, terms: Terms) -> None:
        n_open = table.losses.shape[1] - len(table.labelled)
        if n_open and terms.choose:
            raise ConfigError(
                f"choosing what to label needs a label for every example, but {n_open} of "
                f"{table.source} have none; leave out --choose-labels"
            )
        self._table = table
        self._terms = terms
        self._random = KeyedRandom(terms.seed, "certify-label")
        # a fixed random order of the labelled ones is a uniform draw from the pool
        rng = KeyedRandom(terms.seed, "certify-order").at(0)
        self._labelled = rng.permutation(table.labelled)

    def screen(self, candidate: int, goal: Goal) -> Screened:
        """Screen one candidate until there is a verdict or no label is left."""
        losses, guesses = self._table.losses[candidate], self._table.guesses[:, candidate]
        screen = PoolScreen(goal, guesses, self._terms.method, choose=self._terms.choose)
        examples: list[int] = []
        used: list[float] = []
        n = len(self._labelled)
        most = n if self._terms.max_labels is None else min(n, self._terms.max_labels)
        while screen.verdict is Verdict.UNDECIDED and screen.n < most:
            rng = self._random.at(screen.n)
            if self._terms.choose:
                ask = screen.ask(rng)
            else:
                ask = screen.take(int(self._labelled[screen.n]))
            examples.append(ask.example)
            used.append(float(losses[ask.example]))
            screen.tell(ask.seq, used[-1])
        return Screened.of(candidate, screen, examples, used)
