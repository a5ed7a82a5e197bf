"""Certification on a stored table: as if labels were asked for one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bestarm_agent.certification.certificate import Certificate, Screened, certify
from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.reliance import METHODS
from bestarm_agent.certification.rounds import plan_rounds
from bestarm_agent.certification.screening import DrawScreen, PoolScreen, Verdict
from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.losses import LossTable
from bestarm_agent.stats.keyed import KeyedRandom


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
        try:
            self._rounds = plan_rounds(
                table.labelled,
                np.flatnonzero(np.isnan(table.losses).any(axis=0)),
                KeyedRandom(terms.seed, "certify-order").at(0),
                ratio=terms.ratio,
                max_labels=terms.max_labels,
            )
        except ValueError as error:
            raise ConfigError(f"{table.source}: {error}") from error

    def screen(self, candidate: int, goal: Goal) -> Screened:
        """Screen one candidate until there is a verdict or no label is left."""
        losses, guesses = self._table.losses[candidate], self._table.guesses[:, candidate]
        screen = DrawScreen(goal, self._method, len(guesses))
        used: list[float] = []
        for example, others in zip(self._rounds.labelled, self._rounds.others, strict=True):
            if screen.verdict is not Verdict.UNDECIDED:
                break
            used.append(float(losses[example]))
            screen.push(used[-1], guesses[:, example], guesses[:, others].mean(axis=1))
        return Screened.of(candidate, screen, self._rounds.labelled.tolist(), used)


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
