"""Opening a study and running a pair enter few files; what can be made once is made once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from bestarm_agent.config import datasets
from bestarm_agent.config.catalog import CatalogEntry
from bestarm_agent.config.load import load_study
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Candidate, Json
from bestarm_agent.engine.evaluate import ReadyCandidate
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.record import Size
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.stats.history import HistoryModel
from bestarm_agent.study import Study
from tests.support.entered_files import entered_files, python_calls
from tests.support.studies import each_turn, resume_all, run_all, store_of, write_lines, write_study


async def test_one_pair_enters_few_files(tmp_path: Path) -> None:
    """From the selector's ask to the standing that it changes."""
    study = write_study(tmp_path, n_candidates=2, changes={"limits": {"in_flight": 1}})
    found: list[set[str]] = []
    async with Study.open(study) as opened:
        loop, counting = opened._run.loop, ExitStack()

        def look() -> None:
            if found:
                counting.close()
            elif loop.record.state.n_told == 2:  # by then all is imported and made
                found.append(counting.enter_context(entered_files()))

        each_turn(loop, look)
        await opened.run(Budget(answers=4))
    [files] = found
    assert {"selectors/pairs.py", "providers/replay.py", "store/run_state.py"} <= files
    assert len(files) <= 40, sorted(files)


async def test_opening_a_study_and_the_end_of_a_session_enter_few_files(tmp_path: Path) -> None:
    study = write_study(tmp_path, n_candidates=2)
    async with Study.open(study):
        pass  # imports what is imported once
    with entered_files() as opening:
        async with Study.open(study):
            pass
    entered = {*opening}  # the threads begun there note what they do later, too
    async with Study.open(study) as opened:
        await opened.run(Budget(answers=1))  # makes what is made once
        with entered_files() as second_pair:
            standing = await opened.run(Budget(answers=1))
    assert standing.spent.answers == 2
    assert {"config/load.py", "config/datasets.py", "engine/run.py"} <= entered
    assert len(entered) <= 66, sorted(entered)  # 49 of them on the event loop and in the store
    assert len(second_pair) <= 58, sorted(second_pair)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is made: rules, candidates by label, entries of the catalogue by file."""
    counts: Counter[str] = Counter()
    entry, pairs, parse = ReadyCandidates.entry, Selection.pairs, CatalogEntry.parse

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

    def counted_parse(self: CatalogEntry, model: type) -> object:
        if model.__name__ == "ProviderEntry":
            counts[self.path.name] += 1
        return parse(self, model)

    monkeypatch.setattr(ReadyCandidates, "entry", counted_entry)
    monkeypatch.setattr(Selection, "pairs", counted_pairs)
    monkeypatch.setattr(CatalogEntry, "parse", counted_parse)
    return counts


def test_everything_is_made_once(tmp_path: Path, made: Counter[str]) -> None:
    path = write_study(tmp_path, n_candidates=3, changes={"budget": {"answers": 20}})
    once = {"rule": 1, "c0": 1, "c1": 1, "c2": 1, "replay.yaml": 1}
    run_all(path)
    assert made == once
    made.clear()
    resume_all(path, Budget(answers=10))
    assert made == once


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


def test_a_row_of_a_dataset_touches_no_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    write_lines(path, [{"id": f"e{i}", "q": f"{i}"} for i in range(50)])
    monkeypatch.setattr(datasets, "shown_path", lambda _: pytest.fail("nothing is wrong"))
    assert len([*datasets.read_jsonl(path)]) == 50


def work_to_start(folder: Path, n_candidates: int) -> int:
    """Count the calls of Python functions from a study's file to its first two scores."""
    changes = {"selector": {"name": "auto"}, "limits": {"in_flight": 1}}
    path = write_study(folder, n_candidates=n_candidates, n_examples=1, changes=changes)

    def work() -> None:
        assert run_all(path, Budget(answers=2)).told == 2

    return python_calls(work)


def test_a_run_of_many_candidates_starts_with_the_same_work_for_each(tmp_path: Path) -> None:
    """64,000 candidates on one example begin within seconds, not after what grows with squares."""
    work_to_start(tmp_path / "first", 10)  # imports
    small, middle, large = (work_to_start(tmp_path / f"{n}", n) for n in (10, 150, 600))
    each = (large - middle) / 450
    assert each < 1.25 * (middle - small) / 140
    assert each < 1_500


def test_who_can_be_paid_is_one_comparison_however_many_candidates_there_are(
    tmp_path: Path,
) -> None:
    """Near the cap every turn of the loop asks: 64,000 candidates must not be looked at singly."""

    async def work_to_look(n_candidates: int) -> int:
        path = write_study(tmp_path / f"{n_candidates}", n_candidates=n_candidates, n_examples=1)
        async with Study.open(path) as study:
            pool, ledger = study._run.loop.pool, Ledger(Budget(calls=1))
            ledger.charge(Spend(calls=1))

            def look() -> None:
                affordable = pool.affordable(ledger)
                assert affordable is not None
                assert not affordable.any()
                assert pool.payable(ledger, 5, affordable) == 5  # of nobody, nothing is too much

            return python_calls(look)

    few, many = (asyncio.run(work_to_look(n)) for n in (3, 60))
    assert many == few


def test_what_is_asked_for_each_model_is_gathered_once(tmp_path: Path) -> None:
    """The names of all parameters, and all labels: gathered again for each, they are squares."""
    config = load_study(write_study(tmp_path)).config
    assert config.param_names is config.param_names
    assert config.model_labels is config.model_labels
