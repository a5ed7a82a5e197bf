"""The page in a real browser: drill-down, labels by key, texts that stay texts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from bestarm_agent.config.labels import load_labels
from bestarm_agent.view.server import serve
from tests.support.accessibility import AXE_RUN, SCREENS, axe_script, grave
from tests.view.conftest import ATTACK, E0, REPLIES

if TYPE_CHECKING:
    from playwright.async_api import Page

CHROMIUM = Path("/usr/bin/chromium")
PAGES = {  # and a text of each
    "#/": "capitals",
    "#/run/0/latest": "Take c0",
    "#/run/0/latest/pairs": "Answers of all candidates",
    "#/run/0/latest/pair/0": "1 of 4",
    "#/run/0/latest/compare?a=c0&b=c1": "They differ on 1 example",
}
Scene = Callable[["Page"], Awaitable[None]]
Scheme = Literal["light", "dark"]

pytestmark = pytest.mark.slow


def browse(store: Path, scene: Scene) -> None:
    """Play a scene in a headless browser that has opened the list of runs."""
    playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM}")

    async def play() -> None:
        async with serve([store]) as address, playwright.async_playwright() as driver:
            browser = await driver.chromium.launch(executable_path=CHROMIUM)
            page = await browser.new_page()
            problems: list[str] = []
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda message: problems.append(message.text))
            await page.goto(address)
            await scene(page)
            assert problems == []
            await browser.close()

    asyncio.run(play())


async def tab(page: Page, times: int) -> None:
    for _ in range(times):
        await page.keyboard.press("Tab")


async def heading(page: Page, text: str) -> None:
    """Wait for a page's heading."""
    await page.get_by_role("heading", level=1, name=text).wait_for()


async def answers(page: Page, link: str) -> None:
    """Go from the list of runs to a list of answers."""
    await page.get_by_role("link", name="capitals").click()
    await page.get_by_role("link", name=link).click()
    await heading(page, "Answers of all candidates")


def test_from_the_runs_to_an_answer_and_its_rival(store: Path) -> None:
    async def scene(page: Page) -> None:
        await page.get_by_role("link", name="capitals").click()
        await heading(page, "Take c0")
        rows = page.locator("tbody tr")
        assert [(await row.inner_text()).split()[0] for row in await rows.all()] == ["c0", "c1"]
        await page.get_by_role("link", name="the wrong ones").click()
        await heading(page, "Answers of all candidates")
        await page.locator("tbody a").click()
        await heading(page, f"c1 on {E0}")
        texts = await page.locator("pre").all_inner_texts()
        assert texts[:3] == [f"France? {ATTACK}", REPLIES["c1", E0], "Paris"]
        assert await page.title() == f"{E0} - Answers - {await run_id(page)} - Runs"
        await page.evaluate("location.hash = '#/run/0/latest/compare?a=c0&b=c1'")
        await page.get_by_role("heading", name="They differ on 1 example").wait_for()
        sides = await page.locator(".sides pre").all_inner_texts()
        assert sides == [REPLIES["c0", E0], REPLIES["c1", E0]]
        assert await page.locator("img, body script").count() == 0

    browse(store, scene)


async def run_id(page: Page) -> str:
    """Return the run that the page's trail names."""
    return await page.locator("nav a").nth(1).inner_text()


def test_one_key_labels_an_answer(store: Path) -> None:
    async def scene(page: Page) -> None:
        await answers(page, "all answers")
        last = await page.locator("tbody a").last.inner_text()
        await page.locator("tbody a").first.click()
        for place, key in enumerate("rw24", start=1):
            await page.get_by_text(f"{place} of 4").wait_for()
            await page.keyboard.press(key)
        await page.get_by_text("Your label: 0.75").wait_for()
        assert await page.get_by_role("status").inner_text() == f"Labelled 0.75: {last}."
        await page.keyboard.press("Escape")
        await heading(page, "Answers of all candidates")
        await page.locator("tbody a").last.click()
        await page.get_by_text("Your label: 0.75").wait_for()
        await page.keyboard.press("u")
        await page.get_by_role("status").get_by_text("Took the label back.").wait_for()

    browse(store, scene)
    [file] = store.parent.glob("*.labels.jsonl")
    scores = {label.score for label in load_labels(file)}
    assert scores
    assert scores <= {1.0, 0.0, 0.25}  # of the two that both answered "Rome", the later label holds


def test_scores_are_hidden_until_an_answer_is_labelled_on_a_narrow_screen(store: Path) -> None:
    async def scene(page: Page) -> None:
        await page.set_viewport_size({"width": 380, "height": 800})
        await answers(page, "the wrong ones")
        await page.locator("tbody a").click()
        await page.get_by_role("heading", name="Score 0").wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 380
        await page.keyboard.press("b")
        await page.get_by_text("are hidden until").wait_for()
        assert await page.get_by_role("heading", name="Score 0").count() == 0
        await page.keyboard.press("w")
        await page.get_by_role("heading", name="Score 0").wait_for()
        await page.evaluate("location.hash = '#/run/0/latest/compare?a=c0&b=c1'")
        await page.get_by_role("heading", name="They differ on 1 example").wait_for()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 380

    browse(store, scene)


@pytest.mark.parametrize(("scheme", "width"), SCREENS)
def test_every_page_is_accessible(store: Path, scheme: Scheme, width: int) -> None:
    script, found = axe_script(), dict[str, list[str]]()

    async def scene(page: Page) -> None:
        await page.emulate_media(color_scheme=scheme)
        await page.set_viewport_size({"width": width, "height": 800})
        for name, shown in PAGES.items():
            await page.evaluate("(at) => { location.hash = at; }", name)
            await page.get_by_text(shown).first.wait_for()
            await page.evaluate(script)
            found[name] = grave(await page.evaluate(AXE_RUN))

    browse(store, scene)
    assert found == {name: [] for name in PAGES}
