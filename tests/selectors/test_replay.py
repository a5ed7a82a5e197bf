"""A log that is taken in many moves at a time, against one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bestarm_agent.selectors.auto.rule import Auto
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.pulse import Pulse
from bestarm_agent.selectors.rules.racing import Racing, Uniform
from bestarm_agent.selectors.rules.rounds import SuccessiveRejects
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Ask, Pair, Problem, State, Tell
from bestarm_agent.testing.selector_suite import World, WorldRun, moves_of

K, N = 6, 60


def common(problem: Problem) -> Rule:
    return UcbE(problem, common_examples=True)


def of_clusters(problem: Problem) -> Rule:
    return Auto(replace(problem, independent=tuple(range(0, N, 3))))


def of_draws(problem: Problem) -> Rule:
    return Auto(replace(problem, draws=3))


RULES = (Auto, Racing, Uniform, Pulse, SuccessiveRejects, UcbE, common, of_clusters, of_draws)


def one_by_one(events: list[Ask | Tell], pairs: Pairs) -> Pairs:
    for event in events:
        if isinstance(event, Ask):
            pairs.adopt([event])
        else:
            pairs.tell([event])
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("within", [None, 0.2])
def test_many_at_a_time_are_as_one_by_one(
    rule: Callable[[Problem], Rule], within: float | None
) -> None:
    """Bit by bit: the table, all that is said, and what comes next; in pages of any size."""
    for seed in range(2):
        rng = np.random.default_rng([seed, 74])
        budget = 250 if rule is SuccessiveRejects else None
        problem = Problem(K, N, seed=seed, budget=budget, within=within, open_ended=seed % 2 == 0)
        world = World.with_failures((K, N), seed)
        run = WorldRun(Pairs(rule(problem)), world, in_flight=1 + 24 * seed, seed=seed).go(250)
        events = [event for event in run.events if not isinstance(event, int)]
        plain, paged = one_by_one(events, Pairs(rule(problem))), Pairs(rule(problem))
        cuts = np.sort(rng.integers(0, len(events), size=int(rng.integers(0, 12)))).tolist()
        for start, stop in zip([0, *cuts], [*cuts, len(events)], strict=True):
            paged.replay(moves_of(events[start:stop]))
        for name in ("cells", "candidate", "example", "position", "state", "score", "total"):
            np.testing.assert_array_equal(getattr(paged.table, name), getattr(plain.table, name))
        for name in ("spent", "n_scored", "n_trials", "n_in_a_row", "n_scores", "n_unseen"):
            np.testing.assert_array_equal(getattr(paged.table, name), getattr(plain.table, name))
        for state in (State.PENDING, State.VOID):
            np.testing.assert_array_equal(paged.table.count(state), plain.table.count(state))
        assert [paged.table.row(i) for i in range(K)] == [plain.table.row(i) for i in range(K)]
        for one in (paged, plain):
            assert one.answer.is_level == run.selector.answer.is_level
            assert one.answer.is_within == run.selector.answer.is_within
            for left, right in zip(
                vars_of(one.answer.estimates()),
                vars_of(run.selector.answer.estimates()),
                strict=True,
            ):
                np.testing.assert_array_equal(left, right)
            assert one.answer.ranking() == run.selector.answer.ranking()
            assert one.stopped() == run.selector.stopped()
            assert one.answer.margin() == run.selector.answer.margin()
            leader = one.answer.ranking()[0]
            assert one.answer.tied(leader) == run.selector.answer.tied(leader)
        assert [paged.next_choice() for _ in range(2)] == [plain.next_choice() for _ in range(2)]


def vars_of(estimates: object) -> list[object]:
    return [getattr(estimates, name) for name in ("mean", "lower", "upper", "n")]


ASKED = (Ask(0, Pair(0, 3), ""), Ask(1, Pair(1, 3), ""))


@pytest.mark.parametrize(
    ("events", "message", "n_asked"),
    [
        ((*ASKED, Ask(2, Pair(0, 3), "")), "was asked before", 2),
        ((*ASKED, Ask(3, Pair(0, 4), "")), "expected 2, got 3", 2),
        ((*ASKED, Ask(2, Pair(2, 0), "")), "lies outside", 2),
        ((*ASKED, Tell(2, State.DONE, 1.0)), "nothing was asked under number 2", 2),
        ((Tell(0, State.DONE, 1.0), *ASKED), "nothing was asked under number 0", 0),
        ((*ASKED, *[Tell(0, State.DONE, 1.0)] * 2), "was told before", 2),
        ((*ASKED, Tell(0, State.DONE, 1.5)), r"score must be in \[0, 1\]", 2),
        ((*ASKED, Tell(0, State.DONE, 1.0, -1.0)), "cost must be finite", 2),
        ((*ASKED, Tell(0, State.DONE, 1.0, gold=2.0)), "gold must be", 2),
        ((*ASKED, Tell(0, State.PENDING, 1.0)), "a told state is", 2),
    ],
)
def test_what_cannot_be_is_refused_where_it_comes(
    events: tuple[Ask | Tell, ...], message: str, n_asked: int
) -> None:
    pairs = Pairs(Uniform(Problem(2, 9)))
    with pytest.raises(ValueError, match=message):
        pairs.replay(moves_of(events))
    assert pairs.table.n_asked == n_asked
