"""The page of labelling in a real browser, by keys alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bestarm_agent.config.labels import load_labels
from bestarm_agent.study import Archive
from tests.engine.results.test_people import store
from tests.support.accessibility import AXE_RUN, axe_script, grave
from tests.view.test_in_browser import browse

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["store"]

pytestmark = pytest.mark.slow
LABEL = "#/run/0/latest/label"


async def begun(store: Path) -> None:
    async with Archive(store).labelling() as labelling:
        await labelling.stand()


async def grade(page: Page) -> None:
    """Score the answers of the shown example as people do, by one key each."""
    for answer in await page.locator(".answers pre").all_inner_texts():
        await page.keyboard.press("r" if answer.startswith("right") else "w")
    await page.get_by_role("status").get_by_text("Labelled:").wait_for()


async def open_page(page: Page, name: str = "") -> None:
    await page.evaluate(f"location.hash = '{LABEL}'")
    await page.get_by_role("heading", level=1, name="Label answers").wait_for()
    await page.keyboard.type(name)
    await page.keyboard.press("Enter")
    await page.locator(".answers pre").first.wait_for()


def test_by_keys_alone_until_it_is_proved(store: Path) -> None:
    asyncio.run(begun(store))

    async def scene(page: Page) -> None:
        await open_page(page, "ann")
        assert "a" not in await page.locator(".answers h2").all_inner_texts()  # no names
        first = await page.locator("main pre").first.inner_text()
        await page.keyboard.press("l")
        await page.get_by_role("status").get_by_text("Left for later.").wait_for()
        await page.wait_for_function(
            "first => document.querySelector('main pre').innerText !== first", arg=first
        )
        for _ in range(70):
            texts = await page.locator("main pre").all_inner_texts()
            await grade(page)
            await page.wait_for_function(
                "before => !document.querySelector('.answers') "
                "|| document.querySelector('main pre').innerText !== before",
                arg=texts[0],
            )
            if not await page.locator(".answers").count():
                break
        await page.get_by_role("heading", level=1, name="Proved").wait_for()
        await page.get_by_text("b is the best of these 3 (proved at 95 %").wait_for()

    browse(store, scene)
    [file] = store.parent.glob("*.labels.jsonl")
    labels = load_labels(file)
    assert {label.rater for label in labels} == {"ann"}
    assert {label.score for label in labels} == {0.0, 1.0}


def test_no_difference_is_a_verdict_and_back_mends_a_slip(store: Path) -> None:
    asyncio.run(begun(store))

    async def scene(page: Page) -> None:
        await open_page(page)
        first = await page.locator("main pre").first.inner_text()
        await page.keyboard.press("n")
        await page.get_by_role("status").get_by_text("no difference").wait_for()
        await page.wait_for_function(
            "first => document.querySelector('main pre').innerText !== first", arg=first
        )
        await page.keyboard.press("b")
        await page.wait_for_function(
            "first => document.querySelector('main pre').innerText === first", arg=first
        )
        await grade(page)
        # its status may be that of the slip: the page goes on once the scores are stored
        await page.wait_for_function(
            "first => document.querySelector('main pre').innerText !== first", arg=first
        )

    browse(store, scene)
    [file] = store.parent.glob("*.labels.jsonl")
    assert not any(label.tie for label in load_labels(file))


def test_no_barrier_in_light_and_dark(store: Path) -> None:
    asyncio.run(begun(store))

    async def scene(page: Page) -> None:
        await open_page(page)
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            await page.set_viewport_size({"width": 390, "height": 800})
            assert await page.evaluate("document.documentElement.scrollWidth") <= 390
            await page.evaluate(axe_script())
            assert grave(await page.evaluate(AXE_RUN)) == []

    browse(store, scene)
