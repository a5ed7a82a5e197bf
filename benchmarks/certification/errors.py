"""How often bad candidates are certified."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.certification.worlds import (
    JUDGES,
    Rounds,
    labels_needed,
    load_models,
    rounds_of,
)
from benchmarks.certification.worlds import Split as Parts

from bestarm_agent.certification.betting import METHODS, Goal, Method

DELTA = 0.1
_JUST = 1e-4  # how far the true risk is above the target: the hardest false hypothesis

World = Callable[[np.random.Generator], tuple[float, Rounds]]  # target, and what is seen


def fair_world(rng: np.random.Generator) -> tuple[float, Rounds]:
    """Bernoulli losses, a judge that is right nine times of ten."""
    losses, others = rng.random(400) < 0.12, rng.random((400, 3)) < 0.12
    guesses = losses ^ (rng.random(400) < 0.1)
    seen = (others ^ (rng.random((400, 3)) < 0.1)).mean(axis=1)
    return 0.12 - _JUST, Rounds(losses.astype(float), guesses.astype(float), seen)


def contrary_world(rng: np.random.Generator) -> tuple[float, Rounds]:
    """A judge that always says the opposite."""
    losses, others = rng.random(400) < 0.3, rng.random(400) < 0.3
    return 0.3 - _JUST, Rounds(
        losses.astype(float), 1.0 - losses.astype(float), 1.0 - others.astype(float)
    )


def rare_world(rng: np.random.Generator) -> tuple[float, Rounds]:
    """A loss is almost always nothing and rarely everything; the judge sees none of it."""
    losses = (rng.random(400) < 0.02).astype(float)
    nothing = np.zeros(400)
    return 0.02 - _JUST, Rounds(losses, nothing, nothing)


def lying_world(rng: np.random.Generator) -> tuple[float, Rounds]:
    """A judge that lies depending on what it said before: right until it is trusted, then not."""
    losses, others = rng.random(400) < 0.2, rng.random((400, 2)) < 0.2
    trusted = np.cumsum(~losses) % 40 >= 20
    before = np.concatenate([[False], trusted[:-1]])  # known before the label is
    guesses = np.where(before, 0.0, losses)
    seen = np.where(before[:, None], 0.0, others).mean(axis=1)
    return 0.2 - _JUST, Rounds(losses.astype(float), guesses, seen)


def real_world(data: Path, task: str) -> World:
    """A random row of a real table with a random judge; the target is just below its risk."""
    models = load_models(data, task)
    risks = models.losses.mean(axis=1)
    rows = np.flatnonzero(risks > 0.02)

    def world(rng: np.random.Generator) -> tuple[float, Rounds]:
        row, judge = int(rng.choice(rows)), JUDGES[int(rng.integers(3))]
        drawn = rng.integers(models.losses.shape[1], size=300 * 4)  # independent draws
        parts = Parts(drawn[:0], drawn[:300], drawn[300:])
        return risks[row] - _JUST, rounds_of(models.losses[row], models.guesses[judge][row], parts)

    return world


def error_rates(data: Path, repetitions: int) -> dict[str, Any]:
    """False certifications: bad candidates, bad sequences."""
    worlds: Mapping[str, World] = {
        "judge right 9 of 10": fair_world,
        "judge always wrong": contrary_world,
        "rare losses, blind judge": rare_world,
        "judge that turns": lying_world,
        "TriviaQA rows": real_world(data, "triviaqa"),
        "CoQA rows": real_world(data, "coqa"),
    }
    found: dict[str, Any] = {}
    for label, world in worlds.items():
        for betting in ("portfolio", "plug-in"):
            for name in METHODS:
                found[f"{label}|{betting}|{name}"] = _false_certifications(
                    world, Method(name, betting), repetitions
                )
    found["TriviaQA sequence|whole order|r-autoeval+"] = _false_sequences(data, repetitions)
    return {"runs": repetitions, "false": found}


def _false_certifications(world: World, method: Method, repetitions: int) -> int:
    false = 0
    for seed in range(repetitions):
        risk, rounds = world(np.random.default_rng([seed, 5]))
        false += labels_needed(Goal(risk, DELTA), method, rounds) is not None
    return false


def _false_sequences(data: Path, repetitions: int) -> int:
    """Fixed-sequence testing down TriviaQA's 48 rows at 200 labels: is any bad row certified?"""
    models = load_models(data, "triviaqa")
    risks = models.losses.mean(axis=1)
    risk = float(risks[37]) - _JUST  # the 38th row is the first bad one, by a hair
    false = 0
    for seed in range(repetitions):
        rng = np.random.default_rng([seed, 8])
        drawn = rng.integers(models.losses.shape[1], size=800)
        parts = Parts(drawn[:0], drawn[:200], drawn[200:])

        for row in range(30, 48):
            rounds = rounds_of(models.losses[row], models.guesses["best"][row], parts)
            if labels_needed(Goal(risk, DELTA), Method(), rounds) is None:
                break
            if risks[row] > risk:
                false += 1
                break
    return false
