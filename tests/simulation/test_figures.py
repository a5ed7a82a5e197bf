from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.curves import Curve
from bestarm_agent.simulation.figures import check_figure_path, draw_grid, draw_study

pytest.importorskip("matplotlib")


def curve() -> Curve:
    values = {"top1": np.array([0.2, 0.9]), "regret": np.array([0.1, 0.0])}
    errors = {name: np.array([0.05, 0.01]) for name in values}
    return Curve((0.01, 0.1), values, errors, {}, {}, {}, 1e-5)


def texts(path: Path) -> list[str]:
    return [e.text or "" for e in ElementTree.parse(path).iter() if e.tag.endswith("}text")]


@pytest.mark.slow
def test_a_study_has_a_panel_per_metric_and_one_legend(tmp_path: Path) -> None:
    path = tmp_path / "study.svg"
    draw_study(path, {"ucb-e": curve(), "uniform": curve()}, title="a matrix")
    found = texts(path)
    for text in ("a matrix", "Top-1 precision", "Simple regret"):
        assert found.count(text) == 1
    assert found.count("ucb-e") == found.count("uniform") == 1


def test_a_grid_has_a_column_per_study(tmp_path: Path) -> None:
    path = tmp_path / "grid.svg"
    draw_grid(path, {"one": {"a": curve()}, "two": {"b": curve()}}, ["top1", "regret"])
    found = texts(path)
    assert [found.count(text) for text in ("one", "two", "a", "b")] == [1, 1, 1, 1]
    assert found.count("calls made (% of all)") == 2


@pytest.mark.slow
def test_the_same_data_give_the_same_file(tmp_path: Path) -> None:
    files = [tmp_path / "1.svg", tmp_path / "2.svg"]
    for path in files:
        draw_study(path, {"a": curve()}, title="t")
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_other_formats(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"f.{suffix}"
    draw_study(path, {"a": curve()}, title="t")
    assert path.read_bytes()[:4] == {"png": b"\x89PNG", "pdf": b"%PDF"}[suffix]


def test_unknown_formats_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"written as \.svg, \.png, \.pdf, got 'f\.gif'"):
        check_figure_path(Path("f.gif"))
