"""The data and the procedures of the certification experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.certification.betting import Goal, Method, RiskTest

FloatArray: TypeAlias = NDArray[np.float64]

JUDGES = ("best", "med", "bad")
_BLOCK = 32  # labels between looks: the test stops at the first crossing all the same


@dataclass(frozen=True, slots=True)
class Rounds:
    """Labelled examples of one candidate, in order.

    Attributes:
        losses: (n,) true losses.
        guesses: (n,) guesses for the same examples.
        others: (n,) mean guesses over r other examples each.
    """

    losses: FloatArray
    guesses: FloatArray
    others: FloatArray


def labels_needed(goal: Goal, method: Method, rounds: Rounds) -> int | None:
    """Labels until the risk is certified; None if it never is."""
    test = RiskTest(goal, method)
    for start in range(0, len(rounds.losses), _BLOCK):
        part = slice(start, start + _BLOCK)
        path = test.extend(rounds.losses[part], rounds.guesses[part], rounds.others[part])
        if test.certified:
            return start + int(np.argmax(path >= goal.enough)) + 1
    return None


def toy_rounds(n: int, gamma: float, rng: np.random.Generator, r: int = 10) -> Rounds:
    """Example 1 of the paper: R = 0.1, guesses right with probability ``gamma``."""

    def flipped(losses: NDArray[np.bool_]) -> FloatArray:
        return (losses ^ (rng.random(losses.shape) >= gamma)).astype(float)

    losses, others = rng.random(n) < 0.1, rng.random((n, r)) < 0.1
    return Rounds(losses.astype(float), flipped(losses), flipped(others).mean(axis=1))


def toy_stream(gamma: float, rng: np.random.Generator) -> Iterator[Rounds]:
    """Example 1 without end, in parts."""
    while True:
        yield toy_rounds(2048, gamma, rng)


def crossings(
    deltas: Sequence[float],
    method: Method,
    stream: Iterator[Rounds],
    most: int = 200_000,
) -> list[int]:
    """Labels until each level is reached, on one path."""
    test = RiskTest(Goal(0.12, min(deltas)), method)
    found: list[int] = []
    levels = [-np.log(delta) for delta in deltas]
    for rounds in stream:
        for start in range(0, len(rounds.losses), _BLOCK):
            part = slice(start, start + _BLOCK)
            before = test.n
            path = test.extend(rounds.losses[part], rounds.guesses[part], rounds.others[part])
            while test.log_peak >= levels[len(found)]:
                found.append(before + int(np.argmax(path >= levels[len(found)])) + 1)
                if len(found) == len(levels):
                    return found
            if test.n > most:
                raise RuntimeError(f"not certified within {most} labels")
    raise RuntimeError("the stream ended")


@dataclass(frozen=True, slots=True)
class Models:
    """The quantised models of one task, in the testing order: falling bits.

    Attributes:
        losses: (48, N) true losses.
        guesses: (48, N) losses as each judge sees them.
        bits: (48,) average bit widths.
        gigabytes: (48,) model sizes.
        n_test: examples of a permutation that are set aside for the reported loss.
    """

    losses: FloatArray
    guesses: Mapping[str, FloatArray]
    bits: FloatArray
    gigabytes: FloatArray
    n_test: int


def load_models(data: Path, task: str) -> Models:
    """Read ``rautoeval_triviaqa.npz`` or ``rautoeval_coqa.npz``."""
    with np.load(data / f"rautoeval_{task}.npz") as file:
        return Models(
            losses=file["loss_true"].astype(float),
            guesses={judge: file[f"loss_{judge}"].astype(float) for judge in JUDGES},
            bits=file["avg_bitwidth"].astype(float),
            gigabytes=file["model_size_gb"].astype(float),
            n_test={"triviaqa": 960, "coqa": 983}[task],
        )


@dataclass(frozen=True, slots=True)
class Split:
    """Which examples are what in one repetition."""

    test: NDArray[np.intp]
    labelled: NDArray[np.intp]
    others: NDArray[np.intp]


def split(n_examples: int, n_test: int, n: int, ratio: int, seed: int) -> Split:
    """As the published experiments split a permutation."""
    order = np.random.default_rng(seed).permutation(n_examples)
    ends = n_test, n_test + n, n_test + n + ratio * n
    if ends[-1] > n_examples:
        raise ValueError(f"{ends[-1]} examples are needed, there are {n_examples}")
    return Split(order[: ends[0]], order[ends[0] : ends[1]], order[ends[1] : ends[2]])


def rounds_of(losses: FloatArray, guesses: FloatArray, parts: Split) -> Rounds:
    """The rounds of one candidate, from its row of losses and its row of guesses."""
    n = len(parts.labelled)
    others = guesses[parts.others].reshape(n, -1).mean(axis=1)
    return Rounds(losses[parts.labelled], guesses[parts.labelled], others)


def smallest_certified(models: Models, judge: str, goal: Goal, method: Method, parts: Split) -> int:
    """Fixed-sequence testing down the rows: the last row certified, the first if none is."""
    for row in range(len(models.losses)):
        rounds = rounds_of(models.losses[row], models.guesses[judge][row], parts)
        if labels_needed(goal, method, rounds) is None:
            return max(row - 1, 0)
    return len(models.losses) - 1


@dataclass(frozen=True, slots=True)
class Prompts:
    """25 prompts of one task, by rising length.

    Attributes:
        losses: (25, N) one minus execution accuracy.
        guesses: (25, N) by quality of the judge.
        lengths: (25,) prompt lengths.
    """

    losses: FloatArray
    guesses: Mapping[str, FloatArray]
    lengths: FloatArray


QUALITIES = ("bad", "medbad", "med", "medgood", "good", "gooder", "gooderer")


def load_prompts(data: Path, most: int | None = None) -> dict[str, Prompts]:
    """Read the tasks of ``rautoeval_prompting.npz`` that have 2,100 examples or more."""
    found: dict[str, Prompts] = {}
    with np.load(data / "rautoeval_prompting.npz") as file:
        tasks = [name.removeprefix("shape__") for name in file.files if name.startswith("shape__")]
        for task in tasks:
            n_prompts, n_examples, binary = (int(x) for x in file[f"shape__{task}"])
            if n_examples < 2100 or not binary:
                continue
            lengths = file[f"prompt_len__{task}"].astype(float).ravel()
            rows = np.argsort(lengths)[:: n_prompts // 25]

            def table(name: str, rows: NDArray[np.intp], n: int) -> FloatArray:
                return 1.0 - np.unpackbits(file[name], axis=1)[rows, :n].astype(float)

            guesses = {
                quality: table(f"fake_{quality}__{task}", rows, n_examples) for quality in QUALITIES
            }
            losses = table(f"true__{task}", rows, n_examples)
            found[task] = Prompts(losses, guesses, lengths[rows])
            if most is not None and len(found) == most:
                break
    return found


def shortest_certified(
    prompts: Prompts, quality: str, goal: Goal, method: Method, parts: Split
) -> int | None:
    """Bonferroni over the prompts: the shortest certified one, or None."""
    strict = Goal(goal.risk, goal.delta / len(prompts.losses))
    for row in np.argsort(prompts.lengths, kind="stable"):  # the rest cannot be shorter
        rounds = rounds_of(prompts.losses[row], prompts.guesses[quality][row], parts)
        if labels_needed(strict, method, rounds) is not None:
            return int(row)
    return None
