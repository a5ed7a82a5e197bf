"""The report in a real browser: sorting, filtering, opening pairs; hostile texts stay texts."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from bestarm_agent.study import Archive
from tests.support.accessibility import AXE_RUN, SCREENS, axe_script, grave
from tests.support.studies import run_all, store_of, write_study

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

OWN = "document.title='owned'"
HOSTILE = f'<img src=x onerror="{OWN}"></script><script>{OWN}</script>'


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of 14 candidates on 30 examples; prompts, replies and errors are hostile."""
    folder = tmp_path_factory.mktemp("report")
    prompts = [{"q": "{{ question }} " + HOSTILE}]
    changes = {"prompts": prompts, "scorer": "numeric", "slices": {"by": ["kind"]},
               "measures": {"wordy": {"name": "regex", "pattern": "it is 7"}},
               "dataset": {"path": "questions.jsonl", "target": "answer"}}  # fmt: skip
    path = write_study(folder, n_candidates=14, n_examples=30, changes=changes)
    _edit(folder / "scores.jsonl", _reply)
    _edit(
        folder / "questions.jsonl",
        lambda row: {**row, "answer": "7", "kind": "ab"[int(row["id"][1:]) % 2]},
    )
    run_all(path)
    return asyncio.run(Archive(store_of(path)).write_report("latest", folder / "page.html"))


def _reply(row: dict[str, object]) -> dict[str, object]:
    right = row.pop("score")
    if row["example"] == "e3" and row["candidate"] == "c0":
        return {"candidate": "c0", "example": "e3", "error": "server", "message": HOSTILE}
    return {**row, "text": f"it is {7 if right else 8} {HOSTILE}"}


def _edit(path: Path, change: object) -> None:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert callable(change)
    path.write_text("".join(json.dumps(change(row)) + "\n" for row in rows))


@pytest.fixture(scope="module")
def browser(report: Path) -> Iterator[Browser]:
    assert report.exists(), "written first: the browser holds this thread's event loop"
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """The open report; afterwards nothing has failed, and no text of others has run."""
    page, problems = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text))
    page.on("request", lambda request: problems.append(request.url))
    page.goto(report.as_uri())
    yield page
    assert page.title() == "recorded - bestarm-agent"
    assert page.locator("img, iframe, link").count() == 0
    page.close()
    assert problems == [report.as_uri()], "nothing else was loaded, and nothing failed"


def labels(page: Page) -> list[str]:
    return page.locator("#ranking tbody tr:visible td.label").all_inner_texts()


def test_tables_sort_and_show_all(page: Page) -> None:
    assert len(labels(page)) == 10
    page.get_by_role("button", name="show all 14").first.click()
    assert len(labels(page)) == 14
    estimates = page.locator("#ranking tbody tr td:nth-child(4)")
    page.locator("#ranking").get_by_role("button", name="Estimate").click()
    values = [float(cell.get_attribute("data-value") or "nan") for cell in estimates.all()]
    assert values == sorted(values)
    assert page.locator("#ranking th[aria-sort=ascending]").inner_text().startswith("Estimate")
    page.keyboard.press("Enter")  # the heading has the focus
    values = [float(cell.get_attribute("data-value") or "nan") for cell in estimates.all()]
    assert values == sorted(values, reverse=True)


def test_a_filter_keeps_the_rows_that_hold_its_text(page: Page) -> None:
    page.locator("section", has=page.locator("#ranking")).get_by_role("searchbox").fill("C13")
    assert len(labels(page)) == 1
    assert labels(page)[0].startswith("c13")


def test_an_answer_opens_with_its_prompt_and_keys_lead_on(page: Page) -> None:
    page.locator("#differing button.pair").first.click()
    dialog = page.locator("dialog#pair")
    assert HOSTILE in dialog.locator("pre").nth(0).inner_text(), "the prompt is text"
    assert HOSTILE in dialog.locator("pre").nth(1).inner_text(), "the reply is text"
    before = dialog.inner_text()
    page.keyboard.press("ArrowRight")
    assert dialog.inner_text() != before
    page.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_a_cell_of_the_matrix_opens_its_pair(page: Page) -> None:
    matrix = page.locator("#matrix canvas.matrix")
    matrix.click(position={"x": 230, "y": 5})
    dialog = page.locator("dialog#pair")
    assert "it is 7" in dialog.inner_text(), "the best candidate gets the easiest example right"
    page.keyboard.press("Escape")
    matrix.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert dialog.is_visible()


def test_the_page_fits_a_narrow_window_and_draws_its_charts(page: Page) -> None:
    page.set_viewport_size({"width": 380, "height": 800})
    # The charts are drawn again at the window's next frame, not at once.
    page.wait_for_function("document.documentElement.scrollWidth <= 380")
    for name in ("race", "pareto"):
        assert page.locator(f"#{name} .uplot canvas").count() == 1
    page.emulate_media(color_scheme="dark")
    assert page.locator("#race .uplot canvas").count() == 1


@pytest.mark.parametrize("width", [390, 1280])
def test_no_table_hides_its_last_column(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    names = ["ranking", "differing"] + ["candidates", "slices"] * (width > 1000)
    for name in names:
        assert page.locator(f"#{name}").count() == 1, name
        table = f"document.getElementById('{name}')"
        assert page.evaluate(f"{table}.scrollWidth <= {table}.parentElement.clientWidth"), name


def test_slices_show_what_was_seen_of_the_leaders(page: Page) -> None:
    cells = [row.split("\t") for row in page.locator("#slices tbody tr").all_inner_texts()]
    assert [row[0] for row in cells] == ["kind=a", "kind=b"]
    assert [row[1] for row in cells] == ["15", "15"]
    ranked = page.locator("#ranking tbody tr").first.inner_text().split("\t")[2]
    seen = [row[2].split(" of ") for row in cells]
    assert f"{sum(int(one) for one, _ in seen)} of {sum(int(n) for _, n in seen)}" == ranked


def test_any_two_quantities_are_drawn_against_each_other(page: Page) -> None:
    across, up = page.locator("#pareto-axes select").all()
    names = [one.get_attribute("value") for one in across.locator("option").all()]
    assert across.input_value() == "price"
    assert up.input_value() == "estimate"
    assert "measure: wordy" in names
    across.select_option("measure: wordy")
    up.select_option("price")
    assert (across.input_value(), up.input_value()) == ("measure: wordy", "price")
    page.locator("#pareto .u-over").hover()
    assert page.locator("#pareto .uplot canvas").count() == 1
    page.set_viewport_size({"width": 700, "height": 800})  # all is drawn again
    assert (across.input_value(), up.input_value()) == ("measure: wordy", "price")


@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_the_report_is_accessible(page: Page, scheme: Literal["light", "dark"], width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate(axe_script())
    assert grave(page.evaluate(AXE_RUN)) == []
    page.locator("canvas.matrix").click()
    page.get_by_role("dialog").wait_for()
    assert grave(page.evaluate(AXE_RUN)) == [], "a pair's page"
