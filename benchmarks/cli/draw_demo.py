"""Draw the picture of the demo that the README shows, from a real run of it.

Run: ``python -m benchmarks.cli.draw_demo``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from rich.console import Console

from bestarm_agent import Standing, Study
from bestarm_agent.cli.progress import screen_of
from bestarm_agent.cli.start import write_demo

TARGET = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"


async def run(study: Path) -> Standing:
    """Run the demo to its end."""
    async with Study.open(study) as opened:
        return await opened.run()


def main() -> None:
    """Write docs/images/demo.svg."""
    with tempfile.TemporaryDirectory() as folder:
        standing = asyncio.run(run(write_demo(Path(folder))))
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=84, height=20, file=nowhere, force_terminal=True)
        console.print("$ bestarm-agent demo", highlight=False)
        console.print(screen_of(standing, 6))
        for sentence in standing.decision.said:
            console.print(sentence, highlight=False)
    TARGET.write_text(console.export_svg(title="bestarm-agent demo", unique_id="demo"))


if __name__ == "__main__":
    main()
