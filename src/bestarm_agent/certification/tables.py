"""Certification on a table of losses: its labels are used one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from bestarm_agent.certification.betting import Goal, Method
from bestarm_agent.certification.certificate import (
    Certificate,
    Screen,
    Screened,
    certify,
    plan_rounds,
    single_goal,
)
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.non_inferiority import Decision


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
    method = method or Method()
    if guessed is None or not plan.others.shape[1]:
        # a guess helps only beside the mean guess of other examples
        method, guessed = replace(method, name="r-eval"), np.zeros_like(true)
    order = range(len(true)) if order is None else order
    single = single_goal(goal, len(order), correction)

    def screening(candidate: int) -> Screened:
        screen, row = Screen(single, method), guessed[candidate]
        for example, others in zip(plan.labelled, plan.others, strict=True):
            if screen.verdict is not Decision.UNDECIDED:
                break
            mean = float(row[others].mean()) if len(others) else 0.0
            screen.push(float(true[candidate, example]), float(row[example]), mean)
        return screen.screened(candidate, plan.labelled.tolist())

    return certify(order, screening, correction)


def _checked(name: str, values: ArrayLike, *, known: bool) -> FloatArray:
    table: FloatArray = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"{name} must be (candidates, examples), both >= 1, got {table.shape}")
    wrong = (table < 0) | (table > 1) | (np.isnan(table) & known)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(f"{name} must be in [0, 1], got {table[at]:g} at {at}")
    return table


def _ratio(n_labelled: int, n_examples: int, max_labels: int | None) -> int | None:
    """Return the number of unlabelled examples per label that lets all labels be used."""
    most = n_labelled if max_labels is None else min(max_labels, n_labelled)
    return (n_examples - most) // most if most else None
