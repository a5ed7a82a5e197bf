"""A run's pairs with their texts: complete, by hand, page by page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Study
from bestarm_agent.domain.events import Event, ExamplesAdded
from bestarm_agent.domain.values import Example, Reply, Vote
from bestarm_agent.engine.results.pairs import PAGE, PairFilter, RunTexts
from bestarm_agent.errors import ConfigError
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.store.run_state import fold
from bestarm_agent.store.store import Store
from bestarm_agent.study import Archive
from tests.support.store_runs import asked, failed, grid, started, told
from tests.support.studies import ANSWERED, RECORDED, study_file, write_lines

QUESTIONS: list[dict[str, Any]] = [
    {"id": "fr", "country": "France", "answer": "Paris"},
    {"id": "it", "country": "Italy", "answer": ["Rome", "Roma"]},
]
REPLIES = {"a": {"fr": "Paris.", "it": "Roma"}, "b": {"fr": "Lyon", "it": "Rome"}}


def write_study(folder: Path, **changes: object) -> Path:
    rows: list[dict[str, Any]] = [
        {"candidate": name, "example": example, "text": text, "usd": 0.25}
        for name, texts in REPLIES.items()
        for example, text in texts.items()
    ]
    for name in REPLIES:
        for example in ("fr", "it"):
            why = f"{name} on {example}"
            said = json.dumps({"explanation": why, "verdict": "good" if name == "a" else "bad"})
            pair = {"candidate": "judge", "example": f"{name}/{example}", "text": said, "usd": 0.5}
            rows.append(pair)
    given: dict[str, object] = {"scorer": "exact", **changes}
    return study_file(
        folder,
        {"rows": QUESTIONS, "calls": rows},
        dataset=ANSWERED,
        providers=RECORDED,
        models=["replay/a", "replay/b"],
        prompts=[{"p": "Capital of {{ country }}?"}],
        **given,
    )


def run(path: Path) -> list[PairOutcome]:
    """Run a study; return its pairs as the study has them."""

    async def scene() -> list[PairOutcome]:
        async with Study.open(path) as study:
            await study.run()
            return [pair async for pair in study.outcomes()]

    return asyncio.run(scene())


def stored(folder: Path, only: PairFilter | None = None) -> list[PairOutcome]:
    async def read() -> list[PairOutcome]:
        archive = Archive(folder / "runs" / "runs.sqlite")
        return [pair async for pair in archive.outcomes(only=only)]

    return asyncio.run(read())


def named(pairs: Sequence[PairOutcome]) -> dict[tuple[str, str], PairOutcome]:
    return {(pair.candidate[0], pair.example): pair for pair in pairs}


def test_every_field_of_a_scored_pair(tmp_path: Path) -> None:
    live = run(write_study(tmp_path))
    assert stored(tmp_path) == live, "the store tells what the running study does"
    pair = named(live)["a", "it"]
    assert pair == PairOutcome(
        seq=pair.seq,
        candidate="a",
        example="it",
        state="done",
        score=1.0,
        reason="uniform",
        candidate_id=pair.candidate_id,
        provider="replay",
        model="a",
        calls=1,
        gpu_seconds=0.0,
        input_tokens=pair.input_tokens,
        output_tokens=pair.output_tokens,
        inputs={"id": "it", "country": "Italy"},
        prompt="Capital of Italy?",
        target="Rome\nRoma",
        reply="Roma",
        finish="stop",
        answer="roma",
        attempts=1,
        tokens=pair.tokens,
        usd=0.25,
        judge_usd=0.0,
        seconds=pair.seconds,
        cached=False,
    )
    assert pair.flat()["inputs"] == '{"id": "it", "country": "Italy"}'
    wrong = named(live)["b", "fr"]
    assert (wrong.reply, wrong.answer, wrong.target, wrong.score) == ("Lyon", "lyon", "Paris", 0.0)


def test_verdicts_of_a_judge_come_with_their_reasoning(tmp_path: Path) -> None:
    judge = {"name": "rubric", "model": "replay/judge", "scale": {"bad": 0, "good": 1}}
    pairs = named(run(write_study(tmp_path, scorer={**judge, "attempts": 1})))
    pair = pairs["b", "it"]
    assert (pair.score, pair.reply, pair.usd, pair.judge_usd) == (0.0, "Rome", 0.75, 0.5)
    [vote] = pair.votes
    assert (vote.said, vote.value, vote.why) == ("bad", 0.0, "b on it")
    assert pair.flat()["verdicts"] == f"{vote.by}: bad (0): b on it"


def test_conditions_must_all_be_met(tmp_path: Path) -> None:
    run(write_study(tmp_path))
    wrong = stored(tmp_path, PairFilter(wrong=True))
    assert [(pair.candidate, pair.example) for pair in wrong] == [("b", "fr")]
    assert not stored(tmp_path, PairFilter(candidate="a", wrong=True))
    assert not stored(tmp_path, PairFilter(failed=True))
    both = stored(tmp_path, PairFilter(candidate="b", example="it"))
    assert [(pair.candidate, pair.example) for pair in both] == [("b", "it")]
    with pytest.raises(ConfigError, match="no candidate 'c'"):
        stored(tmp_path, PairFilter(candidate="c"))
    with pytest.raises(ConfigError, match="no example 'de'"):
        stored(tmp_path, PairFilter(example="de"))


def test_a_dataset_that_is_gone_leaves_the_rest(tmp_path: Path) -> None:
    run(write_study(tmp_path))
    (tmp_path / "rows.jsonl").unlink()
    pair = named(stored(tmp_path))["b", "fr"]
    assert (pair.prompt, pair.target, pair.inputs) == (None, None, {})
    assert (pair.reply, pair.answer, pair.score) == ("Lyon", "lyon", 0.0)


def test_an_example_that_changed_is_not_shown_as_asked(tmp_path: Path) -> None:
    run(write_study(tmp_path))
    write_lines(tmp_path / "rows.jsonl", [{**QUESTIONS[0], "answer": "Nice"}, QUESTIONS[1]])
    pairs = named(stored(tmp_path))
    assert pairs["a", "fr"].target is None
    assert pairs["a", "it"].target == "Rome\nRoma"

    async def note() -> str:
        async with Archive(tmp_path / "runs" / "runs.sqlite").texts("latest") as texts:
            return texts.note

    assert asyncio.run(note()).startswith("1 of 2 examples are no longer in the dataset, or have")


async def texts_in(
    store: Store, events: Sequence[Event], examples: Sequence[Example] = ()
) -> RunTexts:
    log = await store.create("study")
    for event in events:
        log.append(event)
    return RunTexts(store, log.run_id, fold(events), examples)


def hand_made(events: Sequence[Event], examples: Sequence[Example] = ()) -> list[PairOutcome]:
    async def read() -> list[PairOutcome]:
        texts = await texts_in(Store.in_memory(), events, examples)
        return [pair async for pair in texts.outcomes()]

    return asyncio.run(read())


def test_failed_void_and_pending_pairs() -> None:
    asks = [asked(0), asked(1), asked(2)]
    refused, void, pending = hand_made(
        [started(), *grid(1, 3), *asks, failed(0, score=0.0), failed(1)]
    )
    assert (refused.state, refused.score, refused.failure) == ("failed", 0.0, "refused")
    assert (void.state, void.score, void.failure) == ("void", None, "timeout")
    assert (void.message, void.attempts, void.reply, void.cached) == ("no answer", 3, None, None)
    assert (pending.state, pending.score, pending.attempts, pending.usd) == ("pending", *[None] * 3)


def test_an_unknown_price_is_not_nothing() -> None:
    priced, unknown = hand_made(
        [started(), *grid(2, 1), asked(0, 0, 0), asked(1, 1, 0), failed(0), failed(1)]
    )
    assert (priced.usd, unknown.usd) == (0.0, None)


def test_chat_prompts_show_their_roles() -> None:
    example = Example("example-0", {"question": "1+1"}, "2")
    added, _ = grid(2, 0)
    examples = ExamplesAdded((example.id,), (example.digest,))
    [pair] = hand_made([started(), added, examples, asked(0, 1, 0), told(0)], [example])
    assert pair.prompt == "[user]\n1+1"
    assert pair.votes == (Vote("openai/m", 1.0, "7", "right"),)


class CountingStore(Store):
    """A store that counts the replies it was asked for."""

    n_read = 0

    async def get_reply(self, key: str) -> Reply | None:
        self.n_read += 1
        return Reply(f"reply to {key}")


async def test_two_thousand_pairs_are_read_page_by_page() -> None:
    n = 2000
    asks = [asked(seq, 0, seq) for seq in range(n)]
    events = [started(), *grid(1, n), *asks, *(told(seq) for seq in range(n))]
    store = CountingStore.in_memory()
    n_seen, ahead = 0, 0
    async for pair in (await texts_in(store, events)).outcomes():
        ahead = max(ahead, store.n_read - n_seen)
        assert pair.reply == f"reply to key-{n_seen}"
        n_seen += 1
    assert n_seen == n
    assert ahead == PAGE
