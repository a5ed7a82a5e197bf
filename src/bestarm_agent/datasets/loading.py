"""Datasets in JSONL; other formats follow."""

from __future__ import annotations

import json
from pathlib import Path

from bestarm_agent.domain.example import Example


def load_examples(
    path: Path,
    *,
    format: str = "auto",
    id_field: str | None = None,
    target_field: str | None = None,
    fields: object = None,
    limit: int | None = None,
) -> tuple[Example, ...]:
    """Read JSON lines."""
    out = []
    for i, line in enumerate(path.read_text().splitlines()):
        row = json.loads(line)
        out.append(
            Example(
                str(row.get("id", i)),
                {k: v for k, v in row.items() if k != target_field},
                None if target_field is None else str(row[target_field]),
            )
        )
    return tuple(out)
