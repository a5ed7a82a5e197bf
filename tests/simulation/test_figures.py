from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.curves import TOP1, Curve
from bestarm_agent.simulation.figures import check_figure_path, draw_study

pytest.importorskip("matplotlib")


def curve() -> Curve:
    values = {name: np.array([0.2, 0.9]) for name in (*TOP1, "ndcg10", "regret")}
    errors = {name: np.array([0.05, 0.01]) for name in values}
    return Curve((0.01, 0.1), values, errors, {}, {}, 1e-5)


def test_a_panel_per_metric_and_one_legend_the_same_each_time(tmp_path: Path) -> None:
    files = [tmp_path / "1.svg", tmp_path / "2.svg"]
    for path in files:
        draw_study(path, {"ucb-e": curve(), "uniform": curve()}, title="a matrix")
    assert files[0].read_bytes() == files[1].read_bytes()
    texts = [e.text for e in ElementTree.parse(files[0]).iter() if e.tag.endswith("}text")]
    for text in ("a matrix", "Top-1 precision", "Simple regret", "ucb-e", "uniform"):
        assert texts.count(text) == 1


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_other_formats(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"f.{suffix}"
    draw_study(path, {"a": curve()}, title="t")
    assert path.read_bytes()[:4] == {"png": b"\x89PNG", "pdf": b"%PDF"}[suffix]


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"written as \.svg, \.png, \.pdf, got 'f\.gif'"):
        check_figure_path(Path("f.gif"))
