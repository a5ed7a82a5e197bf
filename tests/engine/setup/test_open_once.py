"""Opening a study enters few files; its rule is built once, each candidate prepared once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Candidate, Json
from bestarm_agent.engine.evaluate import ReadyCandidate
from bestarm_agent.engine.record import Size
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.parts import Options
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.stats.history import HistoryModel
from bestarm_agent.study import Study
from tests.support.entered_files import entered_files
from tests.support.studies import run_all, store_of, write_study


def test_opening_enters_few_files(tmp_path: Path) -> None:
    study = write_study(tmp_path / "study", n_candidates=2)
    run_all(write_study(tmp_path / "before", n_candidates=2), Budget(pulls=1))  # imports everything

    async def opened() -> set[str]:
        with entered_files() as files:
            async with Study.open(study):
                return set(files)

    files = asyncio.run(opened())
    assert len(files) <= 63, sorted(files)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the rules that are built and the candidates that are prepared, by label."""
    counts: Counter[str] = Counter()
    entry, pairs = ReadyCandidates.entry, Selection.pairs

    def counted_entry(self: ReadyCandidates, candidate: Candidate) -> ReadyCandidate:
        counts[candidate.label] += 1
        return entry(self, candidate)

    def counted_pairs(
        self: Selection,
        size: Size,
        candidates: Sequence[Candidate] = (),
        history: HistoryModel | None = None,
    ) -> Pairs:
        counts["rule"] += 1
        return pairs(self, size, candidates, history)

    monkeypatch.setattr(ReadyCandidates, "entry", counted_entry)
    monkeypatch.setattr(Selection, "pairs", counted_pairs)
    return counts


def test_everything_is_made_once(tmp_path: Path, made: Counter[str]) -> None:
    path = write_study(tmp_path, n_candidates=3, changes={"budget": {"pulls": 20}})
    run_all(path)
    assert made == {"rule": 1, "c0": 1, "c1": 1, "c2": 1}

    async def resumed() -> None:
        options = Options(store=store_of(path))
        async with Study.resume("latest", options=options) as study:
            await study.run(Budget(pulls=10))

    made.clear()
    asyncio.run(resumed())
    assert made == {"rule": 1, "c0": 1, "c1": 1, "c2": 1}


@pytest.mark.parametrize(
    "selector", [{"name": "no-such-rule"}, {"name": "ucb-e", "params": {"eta": -1.0}}]
)
def test_nothing_is_written_for_a_rule_that_cannot_be_built(
    tmp_path: Path, selector: Mapping[str, Json]
) -> None:
    path = write_study(tmp_path, changes={"selector": selector})
    with pytest.raises(ConfigError, match=r"study\.json"):
        run_all(path)
    assert not store_of(path).exists()
