"""Certification on a stored table: its labels are used one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from bestarm_agent.certification.certificate import Certificate, Screened, certify
from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.label_plan import plan_rounds
from bestarm_agent.certification.reliance_factors import METHODS
from bestarm_agent.certification.screening import DrawScreen, PoolScreen, Verdict
from bestarm_agent.certification.tables.loss_tables import LossTable
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom


@dataclass(frozen=True, slots=True)
class Terms:
    """Settings of a certification from a table.

    Attributes:
        ratio: unlabelled examples per label, >= 0; None: as many as there are besides the labels
            that may be used, so none in a table that is fully labelled. Not used on a pool.
    """

    goal: Goal
    method: Method = field(default_factory=Method)
    order: str = "given"  # "given", or a column: from large to small
    correction: str = "sequence"  # see ``certify``
    max_labels: int | None = None  # most labels that may be used
    ratio: int | None = None
    pool: bool = False  # the question is the mean loss over exactly these examples
    choose: bool = False  # choose which example of the pool to label next
    seed: int = 0  # of the random order of the examples, >= 0


def certify_table(table: LossTable, terms: Terms) -> Certificate:
    """Find the last candidate of the order that is good enough."""
    order = table.order(terms.order)
    screening = _Pool(table, terms) if terms.pool else _Draws(table, terms)
    return certify(order, screening.screen, terms.goal, terms.correction)


def alternatives(table: LossTable, terms: Terms) -> dict[str, Certificate]:
    """Return the certificate that each method would have given, by the method's name."""
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
                ratio=_ratio(table, terms),
                max_labels=terms.max_labels,
            )
        except ValueError as error:
            raise ConfigError(f"{table.source}: {error}") from error

    def screen(self, candidate: int, goal: Goal) -> Screened:
        """Screen one candidate until there is a verdict or no label is left."""
        losses, guesses = self._table.losses[candidate], self._table.guesses[:, candidate]
        if not self._rounds.others.shape[1]:
            guesses = guesses[:0]  # a guess helps only beside the mean guess of other examples
        screen = DrawScreen(goal, self._method, len(guesses))
        used: list[float] = []
        for example, others in zip(self._rounds.labelled, self._rounds.others, strict=True):
            if screen.verdict is not Verdict.UNDECIDED:
                break
            used.append(float(losses[example]))
            means = guesses[:, others].mean(axis=1) if len(others) else ()
            screen.push(used[-1], guesses[:, example], means)
        return Screened.of(candidate, screen, self._rounds.labelled.tolist(), used)


def _ratio(table: LossTable, terms: Terms) -> int | None:
    """Return the number of unlabelled examples per label that lets all labels be used."""
    n_labelled, n_examples = len(table.labelled), table.losses.shape[1]
    most = n_labelled if terms.max_labels is None else min(terms.max_labels, n_labelled)
    if terms.ratio is not None or not most:
        return terms.ratio
    return int(n_examples - most) // most


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
