"""Writes logs as a study that replays them, for everything that looks at stored runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import StoreError
from bestarm_agent.interop.logs import Logs
from bestarm_agent.store.export import export_stream

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
