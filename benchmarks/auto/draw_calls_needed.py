"""Draw the README's figure: calls needed to be right in 95 % of the runs, beside UCB-E.

The ratios are those of the first table in README.md beside this: geometric means over 38 score
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
NAMES = {
    "ucb-e, batch 16": "UCB-E, batches of 16",
    "ucb-e": "UCB-E",
    "ucb-e, common": "UCB-E, common examples",
    "halving, common": "halving, common examples",
    "sysrs": "successive rejects (SySRs)",
}


def shares_needed() -> dict[str, float]:
    """Read from the report the share of UCB-E's calls that each rule needs."""
    report = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    headers, _, exact = report.split("<!-- ratios-all -->\n")[1].splitlines()[:3]
    ratios = map(float, re.findall(r"\*\*([\d.]+)\*\*", exact))
    to_rival = dict(zip(headers.strip("| ").split(" | "), ratios, strict=True))
    auto = to_rival["ucb-e"]
    return {name: auto / to_rival[rule] for rule, name in NAMES.items()} | {"auto": auto}


def main() -> None:
    """Write docs/images/calls_needed.svg."""
    shares = shares_needed()
    mpl.rcParams["svg.hashsalt"] = "bestarm-agent"
    figure, axes = plt.subplots(figsize=(7, 2.5), layout="constrained")
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
