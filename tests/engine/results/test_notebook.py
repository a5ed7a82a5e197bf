"""Results in notebooks and as Markdown: short, complete, with everything escaped."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bestarm_agent.cli.result_output import standing_json
from bestarm_agent.engine.results.standing import estimate, interval, seen, unscored
from bestarm_agent.errors import ConfigError
from bestarm_agent.report.markdown import markdown
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.study import followed_by_cell
from tests.support.commands import invoke
from tests.support.standings import standing_with
from tests.support.studies import run_all, write_study
from tests.support.virtual_time import run_virtual

HOSTILE = "<img src=x onerror=alert(1)>|*b*"


def test_a_standing_shows_its_ranking_escaped() -> None:
    standing = standing_with([HOSTILE, "b"], [[1.0, 1.0, 0.0], [0.0]])
    shown = standing._repr_html_()
    assert "<p></p>" not in shown, "nothing is hidden, so nothing is said of it"
    assert "<img" not in shown
    assert "&lt;img" in shown
    assert "<td>2 of 3</td>" in shown
    assert "\x1b" not in str(standing_with(["\x1b[31m", "b"], [[1.0], [0.0]]))
    assert standing.decision.said[0] == f"{HOSTILE} leads so far: 2 of 3 right."
    assert repr(standing).startswith(f"<Standing of run 20260101-000000-abcd: {HOSTILE} leads")


def test_markdown_names_the_winner_and_escapes_the_rest() -> None:
    text = markdown(standing_with([HOSTILE, "b"], [[1.0, 1.0], [0.0]], name=HOSTILE))
    plain = "<\u200bimg src=x onerror=alert(1)>\\|\\*b\\*"
    assert f"**{plain} leads so far: 2 of 2 right.**" in text
    assert f"| {plain} | 2 of 2 |" in text


@pytest.mark.slow
def test_the_command_writes_other_formats_next_to_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    standing = run_all(write_study(tmp_path, n_candidates=3, n_examples=10))
    written = Path(invoke(capsys, "report", "--format", "json", folder=tmp_path).out.strip())
    found = json.loads((tmp_path / written).read_text())
    assert found["effects"] == json.loads(json.dumps(standing_json(standing)["effects"]))
    written = Path(invoke(capsys, "report", "--format", "md", folder=tmp_path).out.strip())
    assert (tmp_path / written).read_text().startswith("## recorded\n")


class Shown(list[object]):
    """What a notebook's cell has shown; takes the place of IPython."""

    def __init__(self, *, kernel: bool) -> None:
        super().__init__()
        handle = SimpleNamespace(display=self.append, update=self.update)
        self.display = SimpleNamespace(DisplayHandle=lambda: handle)
        self.shell = SimpleNamespace(kernel=object()) if kernel else SimpleNamespace()

    def update(self, shown: object, *, raw: bool = False) -> None:
        self.append(shown["text/plain"] if raw and isinstance(shown, dict) else shown)

    def get_ipython(self) -> SimpleNamespace:
        return self.shell


@pytest.mark.parametrize(("kernel", "shown"), [(True, ["0", "1", "2", "3", "'3'"]), (False, [])])
def test_a_cell_follows_what_goes_on(
    monkeypatch: pytest.MonkeyPatch, kernel: bool, shown: list[str]
) -> None:
    cell = Shown(kernel=kernel)
    monkeypatch.setitem(sys.modules, "IPython", cell)

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        async with followed_by_cell(lambda: f"{loop.time():.0f}"):
            await asyncio.sleep(3.2)

    run_virtual(scene())
    assert cell == shown


def test_a_cell_ends_with_a_line_about_its_run_whose_value_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Shown(kernel=True)
    monkeypatch.setitem(sys.modules, "IPython", cell)
    standing = run_all(write_study(tmp_path, n_candidates=2, n_examples=5))
    assert (len(cell), cell[-1]) == (2, repr(standing))


def test_a_long_table_is_cut() -> None:
    shown = standing_with([f"c{i}" for i in range(100)], [[1.0]] * 100)._repr_html_()
    assert shown.count("<tr><td>") == 60
    assert "<p>... and 40 more, all undecided</p>" in shown


def test_the_text_is_the_first_screen() -> None:
    standing = standing_with(["good", "bad", "c", "d", "e", "f"], [[1.0, 1.0]] + [[0.0]] * 5)
    lines = str(standing).splitlines()
    said = list(standing.decision.said)
    assert lines[: len(said)] == said
    assert re.fullmatch(r"good +2 of 2 +\d+ % +\d+ to \d+ % .*leading", lines[len(said) + 1])
    assert lines[-3:-1] == ["... and 1 more, undecided", ""]
    assert " more" not in str(standing_with(list("abcde"), [[1.0]] * 5))
    assert lines[-1].startswith("Spent: ")


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_frame_holds_the_candidates(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of the library that is there, the imported one before the other."""
    library = pytest.importorskip(name)
    for other in {"pandas", "polars"} - {name}:
        monkeypatch.delitem(sys.modules, other, raising=False)
    frame = standing_with(["good", "bad"], [[1.0, 1.0], [0.0]]).to_frame()
    assert isinstance(frame, library.DataFrame)
    assert list(frame["candidate"]) == ["good", "bad"]
    assert list(frame["mean"]) == [1.0, 0.0]
    assert {"state", "answers", "estimate", "lower", "upper", "usd_per_1000"} <= set(frame.columns)


def test_without_a_library_a_frame_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bestarm_agent.engine.results.standing.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match="pip install pandas"):
        standing_with(["good"], [[1.0]]).to_frame()


def test_a_column_in_which_nothing_stands_is_left_out() -> None:
    standing = standing_with(["a", "b"], [[1.0] * 6, [0.0] * 6])
    assert "<th>per 1,000</th>" not in standing._repr_html_()
    priced = replace(standing, rows=tuple(replace(r, usd_per_1000=2.0) for r in standing.rows))
    assert "<th>per 1,000</th>" in priced._repr_html_()
    first_only = replace(priced, rows=(priced.rows[0], *standing.rows[1:]))
    assert "<th>per 1,000</th>" in first_only._repr_html_()
    assert "  $2.00  " in str(priced)


def test_the_numbers_of_a_row_by_hand() -> None:
    row = replace(
        standing_with(["a"], [[1.0]]).rows[0],
        n=3,
        total=2.0,
        void=1,
        estimate=0.6789,
        lower=0.1239,
        upper=0.9,
    )
    assert (seen(row, graded=False), seen(row, graded=True)) == ("2 of 3", "67 % of 3")
    assert (estimate(row), interval(row)) == ("68 %", "12 to 90 %")
    assert estimate(replace(row, estimate=0.0678)) == "7 %"
    assert interval(replace(row, lower=0.9)) == "all seen"
    assert row.void_bounds == (0.5, 0.75)
    blank = unscored(replace(row, void=0))
    assert (seen(blank, graded=True), estimate(blank), interval(blank)) == ("-", "-", "0 to 100 %")
    assert blank.void_bounds == (0.0, 1.0)


def test_a_run_is_settled_once_no_call_could_change_its_decision() -> None:
    standing = standing_with(["a", "b"], [[1.0] * 2, [0.0] * 2], n_examples=2)

    def is_settled(**changes: Any) -> bool:  # noqa: ANN401
        of_all = {"told": 4, "in_flight": 0, "end": "budget", **changes}
        return replace(standing, **of_all).is_settled

    assert is_settled()
    assert not is_settled(end=None)
    assert not is_settled(told=3)
    assert not is_settled(in_flight=1)
    assert is_settled(told=3, level=True)
    assert is_settled(told=3, in_flight=1, end="separated")


def test_answers_that_are_missing_may_hide_the_best_unless_it_is_proved() -> None:
    standing = standing_with(["a", "b", "c"], [[1.0] * 2, [1.0, 0.0], [0.0] * 2])
    first, second, third = standing.rows
    rows = (
        replace(first, n=10, total=9.0),
        replace(second, n=5, total=5.0, void=5),  # .5 to 1
        replace(third, n=5, total=4.0, void=5),  # .4 to .9
    )

    def rivals(**changes: Any) -> list[str]:  # noqa: ANN401
        found = replace(standing, **{"rows": rows, "separated": False, "margin": 0.1, **changes})
        return [row.candidate.label for row in found.rivals_by_voids]

    assert rivals() == rivals(margin=None) == ["b"]
    assert rivals(margin=0.0) == rivals(separated=True) == []
    assert rivals(separated=True, guarantee=Guarantee.HEURISTIC) == ["b"]
    assert rivals(rows=(rows[0], replace(rows[1], is_barred=True), rows[2])) == []
    assert rivals(rows=(replace(rows[0], void=1), *rows[1:])) == ["b", "c"], "9 of 11 at least"
    assert replace(standing, rows=(replace(first, estimate=None),)).best is None
    assert replace(standing, rows=()).best is None
