"""``view``: look at runs in the browser, live, and label answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer


def view(
    store: Annotated[
        list[str] | None,
        typer.Option(help="Run store: an SQLite file or a PostgreSQL URL; may be repeated."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="On 127.0.0.1; 0 for any.")] = 0,
) -> None:
    """Look at runs and answers in the browser, and label them."""
    import asyncio
    from contextlib import suppress

    from bestarm_agent.cli.stores import default_stores

    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(default_stores(store), port))


async def _serve(stores: Sequence[str | Path], port: int) -> None:
    import asyncio

    from bestarm_agent.view.server import serve

    async with serve(stores, port) as address:
        typer.echo(f"{address}\nOpen this address in a browser on this machine; Ctrl-C ends it.")
        await asyncio.Event().wait()
