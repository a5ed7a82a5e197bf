"""Draw the README's figure: calls needed to be right in 95 % of the runs, beside UCB-E.

The ratios are those of the summary in docs/reproduction/auto.md: geometric means over 38 score
matrices, exact winner.

Run: ``python -m benchmarks.auto.draw_calls_needed``.
"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[2] / "docs"
SUMMARY = re.compile(
    r"relative to UCB-E ([\d.]+) .*?UCB-E in batches of 16 ([\d.]+) .*?SySRs ([\d.]+) .*?"
    r"common examples ([\d.]+)",
    re.DOTALL,
)


def ratios() -> dict[str, float]:
    """Read the share of UCB-E's calls that each rule needs from the report."""
    found = SUMMARY.search((DOCS / "reproduction" / "auto.md").read_text(encoding="utf-8"))
    assert found is not None, "the summary of docs/reproduction/auto.md has another form"
    auto, batch, sysrs, halving = map(float, found.groups())
    return {
        "UCB-E, batches of 16": auto / batch,
        "UCB-E": 1.0,
        "halving, common examples": auto / halving,
        "successive rejects (SySRs)": auto / sysrs,
        "auto": auto,
    }


def main() -> None:
    """Write docs/images/calls_needed.svg."""
    shares = ratios()
    mpl.rcParams["svg.hashsalt"] = "bestarm-agent"
    figure, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
    colors = ["#0072B2" if name == "auto" else "#999999" for name in shares]
    bars = axes.barh(list(shares), list(shares.values()), color=colors)
    axes.bar_label(bars, [f"{share:.2f}" for share in shares.values()], padding=3)
    axes.set_xlim(0, 1.3)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title(
        "Calls to name the best in 95 % of runs, UCB-E = 1 (38 matrices)", loc="left", size=10
    )
    figure.savefig(DOCS / "images" / "calls_needed.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
