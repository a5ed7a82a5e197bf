"""Runs ``preselect choose``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from bestarm_agent.cli.preselect.training import embedder_of
from bestarm_agent.preselection.feedback import parse_prompt
from bestarm_agent.preselection.router import Router
from bestarm_agent.store.store import open_store


def choose_for(
    asked: Iterator[dict[str, Any]], name: str, where: str | Path, k: int, *, as_lines: bool
) -> None:
    """Print the candidates that a router chooses for each prompt, as JSON lines or as names."""
    asyncio.run(_choose(asked, name, where, k, as_lines))


async def _choose(
    asked: Iterator[dict[str, Any]], name: str, where: str | Path, k: int, as_lines: bool
) -> None:
    async with (
        open_store(where, create=False) as store,
        Router.open(name, store) as router,
        embedder_of(router, store) as embedder,
    ):
        for row in asked:
            given = row.get("features", ())
            chosen = router.choose(
                row["prompt"],
                row.get("k", k),
                features=await embedder.vector(row["prompt"]) if embedder else given,
                among=row.get("candidates"),
            )
            if not as_lines:
                typer.echo("\n".join(chosen))
                continue
            answer = {"prompt": row["prompt"], "shown": chosen, "version": router.version}
            typer.echo(json.dumps(answer, ensure_ascii=False))
            sys.stdout.flush()  # the program that asked is waiting


def prompts_on_stdin() -> Iterator[dict[str, Any]]:
    """Read the prompts asked for, one JSON object a line."""
    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            yield parse_prompt(line, f"stdin, line {number}")
