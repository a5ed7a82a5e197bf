"""Runs that keep examples back for the winner: what is asked, what it costs, what a stop leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Asked, Event, Told
from bestarm_agent.domain.spend import Budget, usd
from bestarm_agent.engine.confirmed_pairs import CONFIRM, CONFIRM_BASELINE, ConfirmedPairs
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run.event_log import initial_size, replay
from bestarm_agent.errors import ConfigError
from bestarm_agent.runs import Archive, recorded_mode
from bestarm_agent.store.run_state import fold
from bestarm_agent.study import Study
from tests.support.studies import events_of, run_all, stopped_and_resumed, store_of, write_study

HELD = 20  # of 100 examples


def confirming(folder: Path, **changes: Json) -> Path:
    return write_study(
        folder,
        n_candidates=4,
        n_examples=100,
        usd=(0.001, 0.001, 0.001, 0.004),
        changes={
            "confirm": {"share": "20%"},
            "selector": {"name": "auto"},
            "budget": {"pulls": 150},
            **changes,
        },
    )


def split(events: list[Event]) -> tuple[list[Asked], list[Asked]]:
    """The asks of the selection, and those that confirm."""
    asks = [event for event in events if isinstance(event, Asked)]
    late = [ask for ask in asks if ask.reason in (CONFIRM, CONFIRM_BASELINE)]
    return [ask for ask in asks if ask not in late], late


def test_the_winner_alone_answers_what_was_kept_back_and_the_cap_holds(tmp_path: Path) -> None:
    path = confirming(tmp_path)
    standing = run_all(path)
    first, late = split(events_of(path))
    assert standing.winner is not None
    assert standing.confirmation is not None
    assert standing.confirmation.winner is not None
    assert len(first) + len(late) == standing.spent.pulls == 150
    assert {ask.candidate for ask in late} == {standing.winner.index}
    held = {ask.example for ask in late}
    assert len(held) == HELD == standing.confirmation.winner.n
    assert held.isdisjoint(ask.example for ask in first)
    assert max(ask.seq for ask in first) < min(ask.seq for ask in late)
    assert (standing.n_examples, standing.grid) == (80, 400)


def test_the_rule_plans_for_the_pairs_that_are_left_to_it(tmp_path: Path) -> None:
    path = confirming(tmp_path, selector={"name": "uniform", "stop_when_separated": False})
    run_all(path)
    first, _ = split(events_of(path))
    assert len(first) == 130
    assert {ask.candidate for ask in first} == {0, 1, 2, 3}


def test_the_baseline_answers_the_same_examples(tmp_path: Path) -> None:
    path = confirming(tmp_path, confirm={"share": 0.2, "baseline": "c0"})
    standing = run_all(path)
    _, late = split(events_of(path))
    found = standing.confirmation
    assert found is not None
    assert found.winner is not None
    assert found.baseline is not None
    assert found.difference is not None
    by_row = {row: {ask.example for ask in late if ask.candidate == row} for row in (0, 3)}
    assert found.winner.label == "c3"
    assert by_row[0] == by_row[3]
    gap = found.winner.mean.value - found.baseline.mean.value
    assert found.difference.value == pytest.approx(gap)
    assert found.difference.lower < gap < found.difference.upper


def test_dollars_are_kept_back_for_the_winner_s_price(tmp_path: Path) -> None:
    path = confirming(tmp_path, budget={"usd": 0.3})
    standing = run_all(path)
    assert standing.confirmation is not None
    assert standing.confirmation.winner is not None
    assert standing.confirmation.winner.label == "c3"
    assert standing.confirmation.is_complete  # 20 calls at $.004
    assert usd(standing.spent.usd_nanos) <= 0.3


def test_a_budget_too_small_leaves_half_to_choose_by(tmp_path: Path) -> None:
    path = confirming(tmp_path, budget={"pulls": 30})
    standing = run_all(path)
    first, late = split(events_of(path))
    assert (len(first), len(late)) == (15, 15)
    assert standing.confirmation is not None
    assert not standing.confirmation.is_complete


def test_a_winner_that_is_established_is_confirmed_and_the_run_says_so(tmp_path: Path) -> None:
    standing = run_all(confirming(tmp_path, budget={}))
    assert standing.end == "separated"
    assert standing.confirmation is not None
    assert standing.confirmation.is_complete


@pytest.mark.slow
def test_a_run_that_is_stopped_again_and_again_confirms_the_same(tmp_path: Path) -> None:
    limits = {"in_flight": 1}
    whole = run_all(confirming(tmp_path / "whole", limits=limits))
    path = confirming(tmp_path / "parts", limits=limits)
    parts = asyncio.run(stopped_and_resumed(path, 11))
    assert parts.confirmation == whole.confirmation
    assert parts.asked == whole.asked == 150


@pytest.mark.slow
def test_the_log_tells_what_is_confirmed_at_any_moment(tmp_path: Path) -> None:
    path = confirming(tmp_path, confirm={"share": 0.2, "baseline": "c1"})
    standing = run_all(path)
    events = events_of(path)
    asks = [i for i, event in enumerate(events) if isinstance(event, Asked)]
    for cut in (asks[5], asks[-21], asks[-7], len(events)):  # as if killed there
        some = events[:cut]
        state = fold(some)
        assert state.started is not None
        mode = recorded_mode(state.started, some, Path())
        pairs = mode.pairs(initial_size(some), state.candidates)
        assert isinstance(pairs, ConfirmedPairs)
        replay(some, pairs)
        assert len(pairs.table.row(3)) == sum(ask.candidate == 3 for ask in state.asks)
        due = {HELD - n for n in (confirmed(some, 3), confirmed(some, 1))}
        assert {pairs.n_due(3), pairs.n_due(1)} == due
        assert (pairs.unfinished is not None) == (cut in (asks[-21], asks[-7]))
    stored = asyncio.run(Archive(store_of(path)).record("latest")).standing
    assert stored.confirmation == standing.confirmation


def confirmed(events: list[Event], row: int) -> int:
    return sum(ask.candidate == row for ask in split(events)[1])


def test_more_budget_goes_on_with_the_selection_and_keeps_what_was_confirmed(
    tmp_path: Path,
) -> None:
    path = confirming(tmp_path)

    async def scene() -> tuple[Standing, Standing]:
        async with Study.open(path) as study:
            first = await study.run()
            study.raise_budget(Budget(pulls=60))
            return first, await study.run()

    first, second = asyncio.run(scene())
    assert second.asked > first.asked
    assert second.confirmation == first.confirmation
    _, late = split(events_of(path))
    assert len(late) == HELD


def test_an_unknown_baseline_is_refused_with_the_nearest_label(tmp_path: Path) -> None:
    path = confirming(tmp_path, confirm={"baseline": "c9"})
    with pytest.raises(ConfigError, match=r"confirm.baseline: there is no candidate 'c9'"):
        run_all(path)


@pytest.mark.parametrize("share", [0, 0.6, "70%", 1])
def test_more_than_half_cannot_be_kept_back(tmp_path: Path, share: Json) -> None:
    with pytest.raises(ConfigError, match=r"confirm\.share"):
        run_all(confirming(tmp_path, confirm={"share": share}))


def test_few_are_in_flight_while_it_chooses_and_all_at_once_when_it_confirms(
    tmp_path: Path,
) -> None:
    path = confirming(
        tmp_path, confirm={"share": "50%"}, limits={"in_flight": 64}, budget={"pulls": 100}
    )
    run_all(path)
    most, in_flight = {False: 0, True: 0}, 0
    for event in events_of(path):
        in_flight += isinstance(event, Asked)
        in_flight -= isinstance(event, Told)
        if isinstance(event, Asked):
            confirms = event.reason == CONFIRM
            most[confirms] = max(most[confirms], in_flight)
    assert most == {False: 16, True: 50}
