"""Logs of other tools as score matrices, as recorded answers, and as a study that replays them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from bestarm_agent.domain.values import Json, clip_rounding
from bestarm_agent.errors import ConfigError, StoreError, counted, nearest
from bestarm_agent.interop.formats import Result, label_candidates, read_results
from bestarm_agent.simulation.score_matrices import ScoreMatrix, matrix_from_cells
from bestarm_agent.simulation.score_tables import Cell
from bestarm_agent.store.export import whole_file

_USUAL = "score"  # the metric of formats that have one of that name
# beside such grades a `C` is one of them, and not what Inspect writes for "correct"
_GRADE = re.compile(r"[A-Z][+-]?")
_SHOWN = 8  # different verdicts that are named
_FILES = ("study.json", "answers.jsonl", "examples.jsonl")
Repeat: TypeAlias = tuple[Result, float | None]  # a result and its score, None for no answer


@dataclass(frozen=True, slots=True)
class Logs:
    """Results by candidate and example; a pair's repeats in the order of the log."""

    pairs: Mapping[tuple[str, str], Sequence[Repeat]]
    metrics: Sequence[str]
    unscored: Sequence[str]  # candidates without any score, which are left out
    source: str
    # by metric: its verdicts that are no number, such as grades
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def candidates(self) -> list[str]:
        """Return the labels of the candidates, as they first come."""
        return list(dict.fromkeys(candidate for candidate, _ in self.pairs))

    @property
    def examples(self) -> dict[str, str | None]:
        """Return the examples' ids, as they first come, with their questions."""
        return {example: repeats[0][0].question for (_, example), repeats in self.pairs.items()}

    @property
    def n_repeats(self) -> int:
        """Return how many results every pair with an answer has; 1 if their numbers differ."""
        scored = [[score is not None for _, score in repeats] for repeats in self.pairs.values()]
        # A study with repeats draws every pair equally often. Logs in which pairs differ become a
        # study of one draw, and their repeats further attempts.
        counts = {len(pair) if all(pair) else 1 for pair in scored if any(pair)}
        return counts.pop() if len(counts) == 1 else 1

    def matrix(self) -> ScoreMatrix:
        """Return the mean scores of the pairs, NaN without an answer; raises ConfigError."""
        known = (
            (pair, [s for _, s in repeats if s is not None]) for pair, repeats in self.pairs.items()
        )
        cells = (Cell(*pair, fmean(scores) if scores else None, None) for pair, scores in known)
        return matrix_from_cells(cells, self.source)

    def records(self) -> Iterator[dict[str, Json]]:
        """Yield the rows of a recording for the `replay` provider.

        Repeats are attempts, those with a score first. A pair without score and answer is a failed
        call, which says nothing about quality.
        """
        for (candidate, example), repeats in self.pairs.items():
            # The first attempt is the one that is played back, so it should be one that has a
            # score.
            scored_first = sorted(repeats, key=lambda repeat: repeat[1] is None)
            for attempt, (result, score) in enumerate(scored_first, start=1):
                row: dict[str, Json] = {"candidate": candidate, "example": example}
                if score is None and (result.error or result.text is None):
                    row |= {"error": "internal", "message": result.error or "the log has no score"}
                else:
                    row |= {"text": result.text, "score": score}
                row |= {"seconds": result.seconds or None, "usd": result.usd or None}
                row |= {"input_tokens": result.input_tokens or None}
                row |= {"output_tokens": result.output_tokens or None}
                row |= {"attempt": attempt if attempt > 1 else None}
                yield {key: value for key, value in row.items() if value is not None}

    def notes(self) -> list[str]:
        """Return for readers the metric, repeats, answers without scores, what is left out."""
        void = sum(all(score is None for _, score in repeats) for repeats in self.pairs.values())
        repeated = sum(len(repeats) > 1 for repeats in self.pairs.values())
        lines = [f"metric: {', '.join(self.metrics)}"]
        if repeated:
            lines.append(f"{counted(repeated, 'answer')} with several results, whose mean counts")
        if void:
            of_all = f"{void:,} of {counted(len(self.pairs), 'answer')}"
            lines.append(f"without a score, not wrong (an error, or no verdict): {of_all}")
        if absent := len(self.candidates) * len(self.examples) - len(self.pairs):
            lines.append(f"in no log, and so without a score: {counted(absent, 'answer')}")
        for name, verdicts in self.words.items():
            lines.append(f"verdicts in words, which are no scores: {name} ({_listed(verdicts)})")
        if self.unscored:
            lines.append(f"left out, without any score: {', '.join(self.unscored)}")
        return lines


def read_logs(paths: Sequence[str], *, metric: str | None = None) -> Logs:
    """Read logs of any known format, joined by task and example.

    Args:
        paths: files.
        metric: the score to take; None takes the only one of a task, or `score`.

    Raises:
        ConfigError: a file is missing, damaged, or of an unknown format or version; there are
            several metrics to choose from, or none of that name; a score is outside [0, 1].
    """
    results = [result for path in paths for result in read_results(Path(path))]
    source = paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    wanted = _metrics(results, metric, source)
    # Tasks number their examples each from the start; with several tasks an id alone would join
    # strangers.
    several = len({result.task for result in results}) > 1
    pairs: dict[tuple[str, str], dict[str, Repeat]] = defaultdict(dict)
    for candidate, result in zip(label_candidates(results), results, strict=True):
        example = f"{result.task}: {result.example}" if several and result.task else result.example
        name = wanted.get(result.task, "")
        score = check_range(result.scores[name], name, source) if name in result.scores else None
        known = pairs[candidate, example]
        if score is not None or result.repeat not in known:  # lm-eval: a line for each metric
            known[result.repeat] = result, score
    scored = {
        candidate
        for (candidate, _), repeats in pairs.items()
        if any(score is not None for _, score in repeats.values())
    }
    unscored = dict.fromkeys(candidate for candidate, _ in pairs if candidate not in scored)
    kept = {pair: list(repeats.values()) for pair, repeats in pairs.items() if pair[0] in scored}
    return Logs(kept, sorted(set(wanted.values())), list(unscored), source, _words(results))


def check_range(score: float, name: str, source: str) -> float:
    """Return a score in [0, 1], without what rounding took it beyond; raise ConfigError."""
    if not 0 <= clip_rounding(score) <= 1:
        raise ConfigError(
            f"{source}: a score must be in [0, 1], higher is better, but {name!r} is "
            f"{score:.9g}; choose another metric"
        )
    return clip_rounding(score)


def _listed(words: Sequence[str]) -> str:
    ending = ", ..." if len(words) > _SHOWN else ""
    return ", ".join(f"{word:.40}" for word in words[:_SHOWN]) + ending


def _words(results: Sequence[Result]) -> dict[str, list[str]]:
    """Return the different verdicts of each metric that has some that are no number."""
    by_metric: dict[str, dict[str, None]] = defaultdict(dict)
    for result in results:
        for name, verdict in result.words.items():
            by_metric[name][verdict] = None
    return {name: sorted(verdict) for name, verdict in by_metric.items()}


def _metrics(results: Sequence[Result], metric: str | None, source: str) -> dict[str, str]:
    """Return the metric to take of each task."""
    by_task = metric_choices(results, metric, source)
    for task, scores in by_task.items():
        if metric is None and len(scores) > 1:
            raise ConfigError(
                f"{source}: task {task!r} has several scores; choose one with --metric: "
                f"{'; '.join(scores)}"
            )
    return {task: scores[0] for task, scores in by_task.items() if scores}


def metric_choices(
    results: Sequence[Result], metric: str | None, source: str
) -> dict[str, Sequence[str]]:
    """Return the metrics of each task that may be meant: the one named, `score`, or all.

    Raises ConfigError where none is a number, or none is called ``metric``.
    """
    by_task: dict[str, dict[str, None]] = defaultdict(dict)
    words = _words(results)
    # Inspect's "C" means correct, unless its scorer gives grades: then "A" and "B" occur, which are
    # words here, and reading the "C" among them as 1 would make the worst grades the only numbers.
    graded = {name for name, verdicts in words.items() if any(map(_GRADE.fullmatch, verdicts))}
    for result in results:
        by_task[result.task].update(dict.fromkeys(n for n in result.scores if n not in graded))
    names = dict.fromkeys(name for scores in by_task.values() for name in scores)
    if metric in words.keys() - names or (words and not names):
        name = metric if metric is not None and metric in words else next(iter(words))
        hint = f"; choose another: {', '.join(names)}" if names else ""
        raise ConfigError(
            f"{source}: the verdicts of {name!r} are words ({_listed(words[name])}), and no scores "
            f"in [0, 1]; turn them into numbers first{hint}"
        )
    if not names:
        errors = [result.error for result in results if result.error]
        of_all = f"; {len(errors):,} of {len(results):,} are errors, the first: " if errors else ""
        reason = f"{of_all}{errors[0]:.200}" if errors else ""
        raise ConfigError(f"{source}: no result has a score that is a number{reason}")
    if metric is not None and metric not in names:
        raise ConfigError(f"{source}: no score is called {metric!r}; {nearest(metric, names)}")
    usual = metric or _USUAL
    return {
        task: [usual] if metric or usual in scores else [*scores]
        for task, scores in by_task.items()
        if scores
    }


def write_replay_study(logs: Logs, folder: Path) -> Path:
    """Write study, examples and answers into a folder; return the path of the study.

    Raises ConfigError if a study lies there, StoreError if they cannot be written.
    """
    path, answers, examples = (folder / name for name in _FILES)
    if path.exists():
        raise ConfigError(f"{path} exists already and is not overwritten; give another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be made ({error.strerror}); give another folder"
        ) from error
    write_answers(logs, answers)
    _write_lines(
        examples, ({"id": id, "question": question or id} for id, question in logs.examples.items())
    )
    study: dict[str, Json] = {
        "name": folder.resolve().name,
        "models": [f"replay/{candidate}" for candidate in logs.candidates],
        "prompts": [{"question": "{{ question }}"}],
        "dataset": {"path": examples.name},
        "scorer": "recorded",
        "providers": {"replay": {"path": answers.name, "speed": "inf"}},
    }
    if logs.n_repeats > 1:
        study["repeats"] = logs.n_repeats
    _write_lines(path, [study], indent=1)
    return path


def write_answers(logs: Logs, path: Path) -> None:
    """Write a recording for the `replay` provider; raises StoreError."""
    _write_lines(path, logs.records())


def _write_lines(path: Path, rows: Iterable[Mapping[str, Json]], indent: int | None = None) -> None:
    with whole_file(path, "export") as stream:
        for row in rows:
            stream.write(json.dumps(row, indent=indent).encode() + b"\n")
