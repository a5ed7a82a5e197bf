"""Write what the README and the docs show of the demo, from one real run of it.

Run: ``python -m benchmarks.cli.draw_demo`` (needs playwright and Chromium). ``demo.svg`` is the
terminal at the end, ``idea.svg`` all possible answers, the asked ones in colour, with the ranking
beside them; ``report-first.png`` and ``report-race.png`` are parts of its report; the README's
first block of text is what it said.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from pathlib import Path
from textwrap import wrap
from xml.sax.saxutils import escape

import numpy as np
from rich.console import Console

from bestarm_agent import Standing, Study
from bestarm_agent.cli.progress import CandidateTable
from bestarm_agent.cli.start import write_demo
from bestarm_agent.domain.text import duration, percent
from bestarm_agent.domain.values import RIGHT
from bestarm_agent.engine.results.standing import hidden_line
from bestarm_agent.report.words import budget_line
from bestarm_agent.store.chunks import folded
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import open_store

README = Path(__file__).parents[2] / "README.md"
IMAGES = README.parent / "docs" / "images"

# The report's own colours, light and dark (base.css).
STYLE = """
.paper { fill: #fff; } .ink { fill: #1b1f24; } .dim { fill: #57606a; } .cells { fill: #eceff3; }
.right { stroke: #0072b2; } .wrong { stroke: #e69f00; }
.lead { fill: none; stroke: #57606a; stroke-opacity: .5; }
.range { fill: #57606a; opacity: .45; } .mean { fill: #57606a; }
.take .range, .take .mean { fill: #00694a; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #14181d; } .ink { fill: #e7ebf0; } .dim { fill: #a4aebb; }
  .cells { fill: #1f262e; }
  .right { stroke: #2f8fd0; } .range, .mean { fill: #a4aebb; }
  .take .range, .take .mean { fill: #35c793; }
}
text { font: 13px system-ui, sans-serif; } .small { font-size: 11px; }
"""
REPORT = "report.html"
SHOWN = 5  # candidates, as `select` prints
LEFT, TOP, ROW, COLUMN = 8, 44, 6, 1.1  # pixels
BARS, LABELS, LINE = 180, 8, 15  # width of the intervals; candidates with their names, each a line


async def run(study: Path) -> tuple[Standing, RunState]:
    """Run the demo to its end, and write its report beside the study."""
    async with Study.open(study) as opened:
        standing = await opened.run()
        await opened.write_report(study.parent / REPORT)
    async with open_store(opened.store, create=False) as store:
        return standing, await folded(store, opened.run_id)


def draw_idea(standing: Standing, state: RunState) -> str:
    """Draw the matrix, candidates by rank and examples by first ask, and the intervals."""
    place = {row.index: k for k, row in enumerate(standing.rows)}
    row, column = state.asks["candidate"], state.asks["example"]
    right = state.told["score"] >= RIGHT
    n_rows, n_columns = len(standing.rows), standing.n_examples
    first = np.full(n_columns, len(column))
    np.minimum.at(first, column, np.arange(len(column)))
    order = np.argsort(np.argsort(first, kind="stable"))
    paths = {True: list[str](), False: list[str]()}
    for i, j, is_right in zip(row.tolist(), column.tolist(), right.tolist(), strict=True):
        x, y = LEFT + COLUMN * int(order[j]), TOP + ROW * place[i] + ROW / 2
        paths[is_right].append(f"M{x:.1f} {y:g}h{COLUMN}")
    wide, high = COLUMN * n_columns, ROW * n_rows
    bars = LEFT + wide + 16
    asked = f"{standing.asked:,} of {standing.grid:,} possible answers"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {bars + BARS + 250:.0f} '
        f'{TOP + high + 30}" role="img" aria-label="{asked} were asked">',
        f"<style>{STYLE}</style>",
        # of its own: a page may be light (PyPI's always is) where the reader's system is dark
        '<rect class="paper" width="100%" height="100%" rx="6"/>',
        f'<text class="ink" x="{LEFT}" y="18">{n_rows} candidates x {n_columns} examples: '
        f"asked {asked} ({percent(standing.share)})</text>",
        f'<text class="dim small" x="{LEFT}" y="36">a row is a candidate, the best at the top; a '
        "column is an example, those asked first at the left</text>",
        f'<rect class="cells" x="{LEFT}" y="{TOP}" width="{wide:.0f}" height="{high}"/>',
    ]
    for is_right, name in ((True, "right"), (False, "wrong")):
        width = ROW - 1
        parts.append(
            f'<path class="{name}" stroke-width="{width}" d="{"".join(paths[is_right])}"/>'
        )
    parts.append(
        f'<text class="dim small" x="{bars:.0f}" y="36">share right, with its range</text>'
    )
    for k, one in enumerate(standing.rows):
        y, x = TOP + ROW * k, bars + BARS * one.lower
        mean = bars + BARS * (one.lower if one.estimate is None else one.estimate)
        parts.append(
            f'<g class="{"take" if k == 0 else ""}"><rect class="range" x="{x:.1f}" y="{y + 1}" '
            f'width="{max(1.0, BARS * (one.upper - one.lower)):.1f}" height="{ROW - 2}"/>'
            f'<rect class="mean" x="{mean:.1f}" y="{y}" width="2" height="{ROW}"/></g>'
        )
    # A row is lower than a line of text: thin lines fan out from the first rows to their names.
    for k, one in enumerate(standing.rows[:LABELS]):
        text = escape(one.candidate.label) + (": take this one" if k == 0 else "")
        kind, x, y = "ink" if k == 0 else "dim", bars + BARS, TOP + LINE * k + 4
        parts.append(
            f'<path class="lead" d="M{x + 2:.0f} {TOP + ROW * k + ROW / 2:g}L{x + 18:.0f} {y}"/>'
            f'<text class="{kind} small" x="{x + 22:.0f}" y="{y + 4}">{text}</text>'
        )
    rest = f"and {len(standing.rows) - LABELS} more"
    y = TOP + LINE * LABELS + 8
    parts.append(f'<text class="dim small" x="{bars + BARS + 22:.0f}" y="{y}">{rest}</text>')
    for share in (0, 50, 100):
        x, y = bars + BARS * share / 100, TOP + high + 20
        parts.append(
            f'<text class="dim small" text-anchor="middle" x="{x:.0f}" y="{y}">{share} %</text>'
        )
    foot = TOP + high + 20
    for x, name, text in ((LEFT, "right", "right"), (LEFT + 70, "wrong", "wrong")):
        parts.append(f'<path class="{name}" stroke-width="10" d="M{x} {foot - 4}h10"/>')
        parts.append(f'<text class="dim small" x="{x + 15}" y="{foot}">{text}</text>')
    parts.append(f'<rect class="cells" x="{LEFT + 140}" y="{foot - 9}" width="10" height="10"/>')
    parts.append(f'<text class="dim small" x="{LEFT + 155}" y="{foot}">never asked</text></svg>')
    return "\n".join(parts) + "\n"


def draw_report(report: Path) -> None:
    """Write the first screen of a report, and in dark colours the race and the matrix."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for name, scheme, first in (("first", "light", None), ("race", "dark", "#race")):
            page = browser.new_page(
                viewport={"width": 1100, "height": 900},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            page.goto(report.as_uri())
            place = None if first is None else page.locator(f"section:has({first})").bounding_box()
            clip = {"x": 0, "y": place["y"] if place else 0, "width": 1100, "height": 1300}
            page.screenshot(path=IMAGES / f"report-{name}.png", clip=clip, full_page=True)  # type: ignore[arg-type]
        browser.close()


def main() -> None:
    """Write the pictures, and the block of the README."""
    with tempfile.TemporaryDirectory() as folder:
        standing, state = asyncio.run(run(write_demo(Path(folder))))
        draw_report(Path(folder) / REPORT)
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=84, height=20, file=nowhere, force_terminal=True)
        console.print("$ bestarm-agent demo", highlight=False)
        for sentence in standing.decision.said:
            console.print(sentence, highlight=False)
        console.print()
        console.print(CandidateTable(standing, SHOWN))
        console.print(hidden_line(standing.rows[SHOWN:]), highlight=False)
        spent = f"{budget_line(standing)}, {duration(standing.seconds)}"
        console.print(f"\nSpent: {spent}", highlight=False)
    (IMAGES / "demo.svg").write_text(
        console.export_svg(title="bestarm-agent demo", unique_id="demo")
    )
    (IMAGES / "idea.svg").write_text(draw_idea(standing, state))
    said = [line for text in str(standing).splitlines() for line in wrap(text, 118) or [""]]
    block = "```text\n" + "\n".join(said) + "\n```"
    text = README.read_text(encoding="utf-8")
    README.write_text(re.sub(r"```text\n.*?```", lambda _: block, text, count=1, flags=re.DOTALL))


if __name__ == "__main__":
    main()
