"""Scores that people gave to a run's answers, in a file beside the store.

The file is one of gold labels (``config/datasets/gold_labels.py``): ``judge check`` reads it, and a
study may name it as its ``labels``. A label is about the text of an answer, not its candidate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from bestarm_agent.config.datasets.gold_labels import Label, answer_digest, load_labels
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import StoreError
from bestarm_agent.store.export import whole_file
from bestarm_agent.store.store import StorePlace, folder_of


def labels_path(where: StorePlace, run_id: str) -> Path:
    """Return the path of a run's labels: next to a store that is a file, else in this folder."""
    return folder_of(where) / f"{run_id}.labels.jsonl"


def human_labels(where: StorePlace, run_id: str) -> tuple[Label, ...]:
    """Read a run's labels; none if nobody gave any."""
    path = labels_path(where, run_id)
    return load_labels(path) if path.is_file() else ()


def put_label(
    where: StorePlace, run_id: str, example: str, answer: str, score: float | None
) -> None:
    """Store the score in [0, 1] of an answer in place of an earlier one; None takes it back.

    Raises:
        StoreError: the file cannot be written.
    """
    digest = answer_digest(answer)
    others = [
        label
        for label in human_labels(where, run_id)
        if (label.example, label.answer_digest) != (example, digest)
    ]
    fresh = [] if score is None else [Label(example, score, answer=answer, answer_digest=digest)]
    path, lines = labels_path(where, run_id), list(_lines([*others, *fresh]))
    try:
        if lines:
            with whole_file(path) as stream:
                stream.writelines(lines)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"the labels {path} cannot be written ({error.strerror}); make the folder writable"
        ) from error


def _lines(labels: Iterable[Label]) -> Iterable[bytes]:
    for label in labels:
        row: dict[str, Json] = {"example": label.example, "score": label.score}
        # a reader takes empty text for none, so an empty answer goes by its digest
        if label.answer:
            row["answer"] = label.answer
        else:
            row["answer_digest"] = label.answer_digest
        yield (json.dumps(row) + "\n").encode()
