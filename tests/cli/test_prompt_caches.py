"""Prompt caches in ``plan``, ``try`` and the bill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Command
from tests.support.commands import command as command
from tests.support.fake_api import FakeApi, FakeModel, in_thread, quality
from tests.support.studies import study_file

LONG = "Check each digit. " * 400  # 1,800 tokens
GOOD = {"good": f"{LONG}{{{{ a }}}}+1"}
LATE = {"late": f"{{{{ a }}}} is asked. {LONG}{{{{ a }}}}+1"}
WARNING = (
    "notice: prompt `late`: the field `a` stands before about 1,803 tokens of constant text, which "
    "the provider's prompt cache cannot hold there; write fields last, and calls after the first "
    "pay the price of cached tokens for it"
)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    model = FakeModel(cache_from=1024, context=100_000)
    with in_thread(FakeApi(quality({"m": 1.0}), models={"m": model}, key=None)) as server:
        yield server


def study(folder: Path, api: FakeApi, *prompts: dict[str, str], **options: Any) -> None:  # noqa: ANN401
    price = {"input": 1, "output": 5, "cached": 0.1, "cache_write": 1.25}
    path = study_file(
        folder,
        {"rows": [{"id": f"e{i}", "a": i, "answer": str(i + 1)} for i in range(20)]},
        models=["anthropic/m"],
        prompts=list(prompts),
        dataset={"path": "rows.jsonl", "target": "answer"},
        scorer="numeric",
        params={"max_tokens": 8},
        providers={"anthropic": {"base_url": api.url, "key": "none", "price": price, **options}},
    )
    path.rename(folder / "study.yaml")


def test_plan_says_what_caches_hold_and_the_bill_what_they_held(
    tmp_path: Path, command: Command, api: FakeApi
) -> None:
    study(tmp_path, api, GOOD)
    plan = command("plan")
    # 19 of 20 calls read 1,800 tokens at a tenth of the price; the first pays a quarter more
    assert (
        "Of the tokens expected, about 34,200 are read from prompt caches, at their lower price"
        in plan.out
    )
    told = json.loads(command("plan", "--json").out)
    assert told["cached_tokens"] == 34_200
    run = json.loads(command("select", "--json", "--quiet").out)
    assert run["cached_tokens"] == pytest.approx(34_200, rel=0.01)
    plain = 20 * len(LONG) // 4 / 1e6  # dollars without a cache
    assert run["spent"]["usd"] == pytest.approx(plain - 0.03033, rel=0.05)
    shown = command("show").out
    assert f"({run['cached_tokens']:,} read from prompt caches)" in shown


def test_a_field_before_a_long_constant_text_is_told_by_plan_try_and_select(
    tmp_path: Path, command: Command, api: FakeApi
) -> None:
    study(tmp_path, api, GOOD, LATE)
    plan, tried = command("plan"), command("try")
    assert WARNING in " ".join(plan.out.split())
    assert WARNING in tried.err
    assert WARNING in command("select").err
    study(tmp_path, api, LATE, {"later": f"{LATE['late']}{LONG}"})
    assert (
        "prompt `later`: the field `a` stands before about 3,603 tokens of constant text, which "
        "the provider's prompt cache cannot hold there (and likewise in 1 more prompt); write "
        in " ".join(command("plan").out.split())
    )
    study(tmp_path, api, LATE, cache_from=0)
    silent = command("plan").out
    assert "stands before" not in silent
    assert "prompt caches" not in silent


@pytest.mark.parametrize("value", [-1, "long"])
def test_a_length_that_is_none_is_named_before_any_call(
    tmp_path: Path, command: Command, api: FakeApi, value: object
) -> None:
    study(tmp_path, api, GOOD, cache_from=value)
    for verb in ("plan", "try", "select"):
        done = command(verb)
        assert done.code == 2
        assert "cache_from" in done.err
    assert not api.received
