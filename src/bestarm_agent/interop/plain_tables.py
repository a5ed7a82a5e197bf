"""Reads plain score tables (CSV) and recorded answers (JSON lines, `import`'s own output)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bestarm_agent.interop.results import Object, Result
from bestarm_agent.providers.replay import Record, Recording
from bestarm_agent.simulation.score_tables import read_table


def is_record(row: Object) -> bool:
    """Return whether a JSON object is a recorded answer."""
    return row.keys() >= {"candidate", "example"}


def read_records(rows: Iterable[Object], where: str) -> Iterator[Result]:
    """Yield recorded answers; raises ConfigError if a row breaks a rule of recordings."""
    recording = Recording((f"{where}, row {n}", row) for n, row in enumerate(rows, start=1))
    for candidate in recording.candidates():
        for example in recording.examples(candidate):
            for attempt, record in enumerate(recording.attempts(candidate, example), start=1):
                yield _recorded(candidate, example, f"{where} {attempt}", record)


def read_csv(path: Path) -> Iterator[Result]:
    """Yield the cells of a score table, long or wide; raises ConfigError."""
    for cell in read_table(path):
        yield Result(
            candidate={"model": cell.candidate},
            example=cell.example,
            scores={} if cell.score is None else {"score": cell.score},
            repeat=str(path),
            usd=cell.cost,
        )


def _recorded(candidate: str, example: str, repeat: str, record: Record) -> Result:
    reply, failed = record.reply, record.failed
    return Result(
        candidate={"model": candidate},
        example=example,
        scores={} if reply.score is None else {"score": reply.score},
        repeat=repeat,
        text=None if failed else reply.text,
        error=str(failed) if failed else None,
        seconds=reply.seconds,
        input_tokens=reply.usage.input,
        output_tokens=reply.usage.output,
        usd=None if reply.usd_nanos is None else reply.usd_nanos / 1e9,
    )
