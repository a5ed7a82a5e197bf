"""Logs of other tools as score matrices, as recorded answers, and as a study that replays them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError, StoreError, counted, nearest
from bestarm_agent.interop.formats import Result, label_candidates, read_results
from bestarm_agent.simulation.score_matrices import ScoreMatrix, matrix_from_cells
from bestarm_agent.simulation.score_tables import Cell
from bestarm_agent.store.export import export_stream

_USUAL = "score"  # the metric of formats that have one of that name


@dataclass(frozen=True, slots=True)
class Logs:
    """Results by candidate and example; a pair's repeats in the order of the log."""

    pairs: Mapping[tuple[str, str], Sequence[tuple[Result, float | None]]]  # score None: void
    metrics: Sequence[str]
    unscored: Sequence[str]  # candidates without any score, which are left out
    source: str

    @property
    def candidates(self) -> list[str]:
        """Return the labels of the candidates, as they first come."""
        return list(dict.fromkeys(candidate for candidate, _ in self.pairs))

    @property
    def examples(self) -> dict[str, str | None]:
        """Return the examples' ids, as they first come, with their questions."""
        return {example: found[0][0].question for (_, example), found in self.pairs.items()}

    @property
    def n_repeats(self) -> int:
        """Return how many results every pair has, void ones aside; 1 if not all have as many."""
        scored = [[score is not None for _, score in found] for found in self.pairs.values()]
        counts = {len(pair) if all(pair) else 1 for pair in scored if any(pair)}
        return counts.pop() if len(counts) == 1 else 1

    def matrix(self) -> ScoreMatrix:
        """Return the mean scores of the pairs; void ones are NaN. Raises ConfigError."""
        return matrix_from_cells(self.cells(), self.source)

    def cells(self) -> Iterator[Cell]:
        """Yield one cell per pair: the means of the repeats' scores and of their costs."""
        for (candidate, example), found in self.pairs.items():
            scores = [score for _, score in found if score is not None]
            costs = [result.usd for result, _ in found if result.usd is not None]
            yield Cell(candidate, example, _mean(scores), _mean(costs))

    def records(self) -> Iterator[dict[str, Json]]:
        """Yield the rows of a recording for the `replay` provider.

        Repeats are attempts, those with a score first. A pair without score and answer is a failed
        call, which says nothing about quality.
        """
        for (candidate, example), found in self.pairs.items():
            scored_first = sorted(found, key=lambda one: one[1] is None)
            for attempt, (result, score) in enumerate(scored_first, start=1):
                yield _record(candidate, example, attempt, result, score)

    def notes(self) -> list[str]:
        """Return what a reader should know: the metric, repeats, void pairs, who is left out."""
        void = sum(all(score is None for _, score in found) for found in self.pairs.values())
        repeated = sum(len(found) > 1 for found in self.pairs.values())
        lines = [f"metric: {', '.join(self.metrics)}"]
        if repeated:
            have = "pair has" if repeated == 1 else "pairs have"
            lines.append(f"{repeated:,} {have} several results; a pair's score is their mean")
        if void:
            of_all = f"{void:,} of {counted(len(self.pairs), 'pair')}"
            lines.append(f"void, not wrong (an error, or no verdict): {of_all}")
        if absent := len(self.candidates) * len(self.examples) - len(self.pairs):
            lines.append(f"in no log, and so void: {counted(absent, 'pair')}")
        if self.unscored:
            lines.append(f"left out, without any score: {', '.join(self.unscored)}")
        return lines


def read_logs(paths: Sequence[str], *, metric: str | None = None, texts: bool = False) -> Logs:
    """Read logs of any known format, joined by task and example.

    Args:
        paths: files.
        metric: the score to take; None takes the only one of a task, or `score`.
        texts: read the answers too, for `records`.

    Raises:
        ConfigError: a file is missing, damaged, or of an unknown format or version; there are
            several metrics to choose from, or none of that name; a score is outside [0, 1].
    """
    results = [result for path in paths for result in read_results(Path(path), texts=texts)]
    shown = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    wanted = _metrics(results, metric, shown)
    several = len({result.task for result in results}) > 1
    pairs: dict[tuple[str, str], dict[str, tuple[Result, float | None]]] = defaultdict(dict)
    for candidate, result in zip(label_candidates(results), results, strict=True):
        example = f"{result.task}: {result.example}" if several and result.task else result.example
        name = wanted.get(result.task, "")
        score = result.scores.get(name)
        _check(score, name, shown)
        known = pairs[candidate, example]
        if score is not None or result.repeat not in known:  # lm-eval: a line for each metric
            known[result.repeat] = result, score
    return _kept(pairs, sorted(set(wanted.values())), shown)


def _metrics(results: Sequence[Result], metric: str | None, shown: str) -> dict[str, str]:
    """Return the metric to take of each task."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for result in results:
        found[result.task].update(dict.fromkeys(result.scores))
    names = dict.fromkeys(name for scores in found.values() for name in scores)
    if not names:
        raise ConfigError(f"{shown}: no result has a score that is a number{_failures(results)}")
    if metric is not None and metric not in names:
        raise ConfigError(f"{shown}: no score is called {metric!r}; {nearest(metric, names)}")
    chosen = {
        task: metric if metric is not None else _only(list(scores), task, shown)
        for task, scores in found.items()
        if scores
    }
    return chosen


def _failures(results: Sequence[Result]) -> str:
    errors = [result.error for result in results if result.error]
    if not errors:
        return ""
    return f"; {len(errors):,} of {len(results):,} are errors, the first: {errors[0]:.200}"


def _only(names: Sequence[str], task: str, shown: str) -> str:
    if len(names) == 1 or _USUAL in names:
        return _USUAL if _USUAL in names else names[0]
    raise ConfigError(
        f"{shown}: task {task!r} has several scores; choose one with --metric: {'; '.join(names)}"
    )


def _check(score: float | None, metric: str, shown: str) -> None:
    if score is not None and not 0 <= score <= 1:
        raise ConfigError(
            f"{shown}: a score must be in [0, 1], higher is better, but {metric!r} is {score:g}; "
            "choose another metric"
        )


def _kept(
    pairs: Mapping[tuple[str, str], Mapping[str, tuple[Result, float | None]]],
    metrics: Sequence[str],
    shown: str,
) -> Logs:
    scored: Counter[str] = Counter()
    for (candidate, _), found in pairs.items():
        scored[candidate] += sum(score is not None for _, score in found.values())
    return Logs(
        {pair: list(found.values()) for pair, found in pairs.items() if scored[pair[0]]},
        metrics,
        [candidate for candidate, number in scored.items() if not number],
        shown,
    )


def _record(
    candidate: str, example: str, attempt: int, result: Result, score: float | None
) -> dict[str, Json]:
    row: dict[str, Json] = {"candidate": candidate, "example": example}
    if score is None and (result.error or result.text is None):
        row |= {"error": "internal", "message": result.error or "the log has no score"}
    else:
        row |= {"text": result.text} if result.text is not None else {}
        row |= {"score": score} if score is not None else {}
    optional: dict[str, Json] = {
        "seconds": result.seconds,
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
        "usd": result.usd,
    }
    row |= {key: value for key, value in optional.items() if value}
    return row if attempt == 1 else {**row, "attempt": attempt}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


_ANSWERS, _EXAMPLES = "answers.jsonl", "examples.jsonl"


def write_replay_study(logs: Logs, folder: Path) -> Path:
    """Write study, examples and answers into a folder; return the path of the study.

    Raises StoreError if they cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be made ({error.strerror}); give another folder"
        ) from error
    write_answers(logs, folder / _ANSWERS)
    _write_lines(folder / _EXAMPLES, _examples(logs))
    study: dict[str, Json] = {
        "name": folder.resolve().name,
        "models": [f"replay/{candidate}" for candidate in logs.candidates],
        "prompts": [{"question": "{{ question }}"}],
        "dataset": {"path": _EXAMPLES},
        "scorer": "recorded",
        "providers": {"replay": {"path": _ANSWERS, "speed": "inf"}},
    }
    if logs.n_repeats > 1:
        study["repeats"] = logs.n_repeats
    path = folder / "study.json"
    with export_stream(path) as stream:
        stream.write(json.dumps(study, indent=1).encode())
    return path


def write_answers(logs: Logs, path: Path) -> None:
    """Write a recording for the `replay` provider; raises StoreError."""
    _write_lines(path, logs.records())


def _write_lines(path: Path, rows: Iterable[dict[str, Json]]) -> None:
    with export_stream(path) as stream:
        for row in rows:
            stream.write(json.dumps(row).encode() + b"\n")


def _examples(logs: Logs) -> Iterator[dict[str, Json]]:
    for name, question in logs.examples.items():
        yield {"id": name, "question": question or name}
