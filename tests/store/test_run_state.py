from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from bestarm_agent.domain.events import (
    Attempted,
    CandidatesBarred,
    Event,
    Proposed,
    Resumed,
    Settled,
    Stopped,
    Told,
)
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import Outcome, Score
from bestarm_agent.errors import StoreError
from bestarm_agent.selectors.types import State
from bestarm_agent.stats.arrays import IntArray
from bestarm_agent.store.chunks import folded
from bestarm_agent.store.codec import Line, line_of
from bestarm_agent.store.run_state import Attempts, RunState, Session, fold
from bestarm_agent.store.store import Store
from tests.support.entered_files import python_calls
from tests.support.store_runs import (
    AT,
    asked,
    begin,
    failed,
    grid,
    small_run,
    started,
    told,
)


def test_a_small_run_by_hand() -> None:
    state = fold(small_run())
    asks = [replace(asked(seq, seq // 2), excluded=()) for seq in range(4)]
    assert state.n_events == 15
    assert (state.costs, state.prices) == ([0.25, None], ["study", None])
    assert state.started == started()
    assert [candidate.label for candidate in state.candidates] == ["model 0", "model 1"]
    assert (len(state.example_ids), state.example_ids[7]) == (1000, "example-7")
    assert state.example_digests[7] == f"{7:016x}"
    assert [state.ask(seq) for seq in range(4)] == asks
    assert state.order.tolist() == [1, 0, 2]
    np.testing.assert_equal(state.told["score"], [np.nan, 0.5, 0.0, np.nan])
    states = [State.VOID, State.DONE, State.FAILED, State.PENDING]
    assert state.told["state"].tolist() == states
    assert list(state.pending_asks()) == asks[3:]
    assert [state.told[name][3] for name in ("failure", "output", "event")] == [-1, -1, -1]
    assert state.budget == Budget(calls=200, seconds=60.5)
    one_call = Spend(answers=1, calls=1, tokens=12, usd_nanos=1500, gpu_seconds=0.125)
    assert state.spends() == [one_call + Spend(calls=3), Spend(calls=3)]
    assert state.spend == one_call + Spend(calls=6)
    assert state.spends(np.array([0, 0])) == [state.spend], "both are one group"
    assert state.judging == [Spend(calls=1, tokens=5, usd_nanos=700), Spend()]
    assert state.lost == [Spend(calls=1, usd_nanos=200), Spend()]
    assert [each.tolist() for each in state.latencies(50, 95)] == [[0.5, 1.5], [1.5, 1.5]]
    assert state.sessions == [
        Session(AT, "0.1.0", Stopped(AT, "interrupted", 2.5)),
        Session(AT, "0.1.1", Stopped(AT, "budget", 1.5)),
    ]
    assert state.seconds == 4.0
    assert state.cached_tokens == 4


def test_an_empty_log_is_an_empty_state() -> None:
    state = fold([])
    assert (state.n_events, state.candidates, state.budget) == (0, [], Budget())
    assert (state.name, state.end) == ("", None)


def test_who_is_barred_and_why() -> None:
    state = fold([*small_run(), CandidatesBarred((1,), "too dear")])
    assert state.barred == {1: "too dear"}


def test_name_and_end() -> None:
    states = [fold(small_run()[:n]) for n in (1, 9, 10, 15)]
    assert {state.name for state in states} == {"study"}
    assert [state.end for state in states] == [None, "interrupted", None, "budget"]


def test_who_could_not_be_called_when_the_last_session_ended() -> None:
    stopped: list[Event] = [started(), Stopped(AT, "failures", 1.0, broken={"model 0": "bad key"})]
    assert fold(stopped).broken == {"model 0": "bad key"}
    assert fold([*stopped, Resumed(AT, "0.2.0")]).broken == fold([]).broken == {}


async def test_a_stored_log_is_folded() -> None:
    store = Store.in_memory()
    await (await begin(store)).flush()
    assert (await folded(store, "latest")).started == started()


def test_a_killed_session_stays_open() -> None:
    state = fold([started(), Resumed(AT, "0.2.0")])
    assert state.sessions == [Session(AT, "0.1.0"), Session(AT, "0.2.0")]
    assert state.seconds == 0.0


def test_the_time_of_a_killed_session_counts_up_to_its_last_outcome() -> None:
    late = [replace(told(seq, 0.5), elapsed=after) for seq, after in ((0, 7.0), (1, 6.5))]
    killed = [started(), *grid(), asked(0), asked(1), *late]
    state = fold(killed)
    assert (state.seconds, state.elapsed) == (0.0, 7.0)
    resumed = [*killed, Resumed(AT, "0.2.0")]
    state = fold(resumed)
    assert (state.seconds, state.elapsed) == (7.0, 0.0)
    state = fold([*resumed, Stopped(AT, "budget", 2.5), Resumed(AT, "0.2.0")])
    assert (state.seconds, state.elapsed) == (9.5, 0.0)


def test_what_a_pending_pair_has_cost() -> None:
    call, judging = Spend(calls=1, tokens=5), Spend(calls=1)
    first, again = Attempted(0, "", Spend()), Attempted(0, "key", call)
    state = fold(after_grid(asked(0)))
    untold = Attempts(open=(first,), keys=frozenset({""}))
    assert state.attempts_of(0) == untold, "the ask stands for one"
    state.take([line_of(again)])
    assert state.attempts_of(0) == Attempts(open=(first, again), keys=frozenset({"", "key"}))
    state.take([line_of(Settled(0, "", call)), line_of(again)])
    state.take([line_of(Settled(0, "key", judging, judge=True))])
    known = state.attempts_of(0)
    assert (known.spend, known.judge_spend, known.open) == (call, judging, (again,))
    assert state.pending_spend == call + judging
    state.take([line_of(told(0))])
    assert state.attempts_of(0) == untold
    assert state.pending_spend == Spend()


def test_a_proposers_attempts_add_up_and_count_with_their_bounds_until_they_are_settled() -> None:
    begun = [Attempted(None, key, Spend(calls=3), priced=key != "b") for key in "aab"]
    state = fold([started(), *begun, Proposed(4)])
    assert state.proposer_spend == state.spend == Spend(calls=9)
    state.take([line_of(Settled(None, key, Spend(calls=2))) for key in "ab"])
    assert state.proposer_spend == Spend(calls=7)
    assert state.pending_spend == Spend()
    assert not state.attempts_of(None).priced
    assert state.rounds == 4


def after_grid(*events: Event) -> list[Event]:
    """Events 3, 4, ... of a run of two candidates and five examples."""
    return [started(), *grid(2, 5), *events]


IMPOSSIBLE = {
    "told without ask": (after_grid(told(0)), "event 3 .*ask 0, which was never asked"),
    "second end": (after_grid(asked(0), told(0), failed(0)), "event 5 .*ask 0, for the second"),
    "gap": (after_grid(asked(0), asked(2)), "event 4 .*ask 2 comes where ask 1 is due"),
    "same number": (after_grid(asked(0), asked(0, example=1)), "event 4 .*ask 0 comes where ask 1"),
    "no such row": (after_grid(asked(0, candidate=2)), r"event 3 .*pair \(2, 0\).* 2 x 5"),
    "no such column": (after_grid(asked(0, example=5)), r"event 3 .*pair \(0, 5\).* 2 x 5"),
    "negative row": (after_grid(asked(0, candidate=-1)), r"event 3 .*pair \(-1, 0\)"),
    "no start": (grid(), "event 0 .*'candidates-added'; Started comes first"),
    "second start": ([started(), started()], "event 1 .*Started comes first, and only then"),
}


@pytest.mark.parametrize(("log", "match"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_log_is_refused(log: list[Event], match: str) -> None:
    with pytest.raises(StoreError, match=match):
        fold(log)


def test_a_refused_event_changes_nothing() -> None:
    state = fold(after_grid(asked(0)))
    with pytest.raises(StoreError, match="never asked"):
        state.take([line_of(told(1))])
    assert (state.n_events, list(state.pending), state.n_told) == (4, [0], 0)
    assert flat(state.take([line_of(told(0))])) == [~0]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        (("told", "{"), r"event 4 of the log: .*damaged, or a newer version.*restore"),
        (("told", '{"seq":0,"outcome":{"failure":{}},"score":1.0}'), r"event 4 .*Field required"),
        (("told", '{"seq":0,"outcome":{},"score":1.0}'), r"event 4 .*a score or a failure"),
        (("asked", '{"seq":1}'), r"event 4 .*candidate: Field required"),
        (("teleported", "{}"), r"event 4 .*newer version wrote it"),
    ],
)
def test_damage_is_named_with_its_place(line: Line, match: str) -> None:
    log = [line_of(event) for event in after_grid(asked(0))]
    with pytest.raises(StoreError, match=match):
        RunState().take([*log, line, line_of(Resumed(AT, "0.2.0"))])


def test_what_changes_is_the_same_line_by_line_and_at_once() -> None:
    log = [line_of(event) for event in small_run()]
    slowly, at_once = RunState(), RunState()
    moves = flat(move for line in log for move in slowly.take([line]))
    assert moves == flat(at_once.take(log))
    assert [move for move in moves if isinstance(move, int)] == [0, 1, 2, ~1, ~0, ~2, 3]
    assert slowly.pending == at_once.pending
    assert (slowly.judging, slowly.lost) == (at_once.judging, at_once.lost)
    for name in at_once.told.dtype.names or ():
        np.testing.assert_equal(slowly.told[name], at_once.told[name])
    np.testing.assert_equal(slowly.asks, at_once.asks)


def flat(moves: Iterable[IntArray | Event]) -> list[int | Event]:
    """Return the events one by one."""
    return [
        one for move in moves for one in (move.tolist() if isinstance(move, np.ndarray) else [move])
    ]


def test_sums_agree_with_a_naive_count_on_a_random_run() -> None:
    rng = np.random.default_rng(7)
    events = after_grid()
    events[1:] = grid(6, 50)
    pairs = [divmod(int(pair), 50) for pair in rng.permutation(300)]
    in_flight: list[int] = []
    outcomes = {}
    for seq, (row, column) in enumerate(pairs):
        events.append(asked(seq, row, column))
        in_flight.append(seq)
        while in_flight and rng.random() < 0.6:
            ended = in_flight.pop(int(rng.integers(len(in_flight))))
            fails = rng.random() < 0.3
            outcomes[ended] = failed(ended) if fails else told(ended, float(rng.random()))
            events.append(outcomes[ended])
    state = fold(events)
    assert set(state.order.tolist()) == outcomes.keys()
    for seq, told_ in outcomes.items():
        expected = np.nan if told_.score is None else told_.score
        np.testing.assert_equal(state.told["score"][seq], expected)
    assert list(state.pending) == sorted(in_flight)
    assert state.spend.calls == sum(o.outcome.spend.calls for o in outcomes.values())
    for row in range(6):
        mine = [o for seq, o in outcomes.items() if pairs[seq][0] == row]
        assert state.spends()[row].tokens == sum(o.outcome.spend.tokens for o in mine)


PLAIN = Outcome(
    Score(1.0, "46"),
    spend=Spend(1, 1, 12, 1500),
    reply_key="key",
    usage=Usage(input=9, output=3),
    seconds=0.5,
)


def test_reading_a_log_takes_the_same_work_per_event_however_long_it_is() -> None:
    def lines(n_pairs: int) -> list[Line]:
        result = [line_of(event) for event in (started(), *grid(50, 1000))]
        for seq in range(n_pairs):
            result.append(line_of(asked(seq, seq % 50, seq // 50)))
            result.append(line_of(replace(told(seq), outcome=PLAIN)))
        return result

    def read(log: list[Line]) -> None:
        RunState().take(log)

    read(lines(1))  # imports and adapters
    logs = [lines(n_pairs) for n_pairs in (0, 1_024, 4_096)]  # whole pages
    empty, short, long = (python_calls(partial(read, log)) for log in logs)
    assert short - empty < 12 * 1_024, "a pair became numbers without becoming objects"
    assert long - empty < 4.1 * (short - empty)


N = 700  # more than there is room for at first


def test_asks_come_back() -> None:
    asks = [
        replace(
            asked(seq, candidate=seq % 7, example=seq // 7),
            reason=("floor", "duel")[seq % 2],
            excluded=(),
        )
        for seq in range(N)
    ]
    state = fold([started(), *grid(7, N), *asks])
    assert [state.ask(seq) for seq in range(N)] == asks
    assert state.asks["candidate"].tolist() == [ask.candidate for ask in asks]


async def test_outcomes_are_numbers_by_ask_and_texts_in_the_log() -> None:
    order = np.random.default_rng(1).permutation(N)[: N - 40].tolist()
    kinds = [told, failed, lambda seq: failed(seq, score=0.0)]
    outcomes = {seq: replace(kinds[seq % 3](seq), elapsed=float(seq)) for seq in order}
    asks = [asked(seq, 0, seq) for seq in range(N)]
    log = [started(), *grid(1, N), *asks, *outcomes.values()]
    store = Store.in_memory()
    run = await store.create("study")
    for event in log:
        run.append(event)
    state = fold(log)
    state, found = state, await store.told(run.run_id, state.told["event"][order].tolist())
    assert list(found) == list(outcomes.values()), "also what was not flushed yet"
    assert state.order.tolist() == order
    assert state.failed().tolist() == [seq for seq in order if seq % 3]
    assert state.told["at"][order].tolist() == order
    for seq, one in outcomes.items():
        told_, failure = state.told[seq], state.failure(seq)
        assert told_["calls"] == one.outcome.spend.calls
        assert told_["seconds"] == one.outcome.seconds
        assert failure == one.outcome.failure
        if failure is not None:
            assert (told_["output"], np.isnan(told_["price"])) == (-1, True)
        else:
            assert (told_["output"], told_["price"], told_["gold"]) == (3, 600, 0.5)
    assert len(state.failures) == 2, "alike ones are one"


def test_the_columns_of_measures() -> None:
    values = [(0.5, None), (1.0, 0.25)]
    scored = [Told(seq, Outcome(Score(1.0, measures=one)), 1.0) for seq, one in enumerate(values)]
    begun = replace(started(), measures=("brief", "polite"))
    state = fold([begun, *grid(1, 5), asked(0), asked(1), *scored])
    np.testing.assert_equal(state.told["measures"], [[0.5, np.nan], [1.0, 0.25]])
    assert state.told["output"].tolist() == [0, 0], "nobody counted their tokens"
