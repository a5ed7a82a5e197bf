"""The best row by people's scores: levels at the boundary, and each wrong way that breaks them.

Worlds: 200 examples, scores 0 or 1, the best row ahead by one success, a judge that favours another
by a quarter. The limit of a count of errors is that which chance passes with probability 1/1000 at
the level of .05; a wrong way must pass it, so the worlds would show it.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator
from scipy.stats import binom

from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.people import LabelledRows, race

WORLDS, SIZE, ALPHA = 1500, 200, 0.05
LIMIT = int(binom.ppf(0.999, WORLDS, ALPHA))


def judge(
    rng: Generator, people: FloatArray, right: float = 0.8, favoured: int = 1, by: float = 0.25
) -> FloatArray:
    """Score as people do with probability ``right``, and favour one row."""
    judged = np.where(rng.random(people.shape) < right, people, 1.0 - people)
    judged[:, favoured] = np.maximum(judged[:, favoured], rng.random((len(people), SIZE)) < 2 * by)
    return np.asarray(judged)


def worlds(
    rng: Generator, rows: int = 3, share: float = 0.5, correlated: float = 0.0
) -> FloatArray:
    """Return people's scores: row 0 is ahead of all others by one success of ``SIZE``."""
    common = rng.random((WORLDS, 1, SIZE))
    own = rng.random((WORLDS, rows, SIZE))
    rank = np.argsort(np.where(rng.random(own.shape) < correlated, common, own), axis=-1)
    ranks = np.argsort(rank, axis=-1)
    successes = int(share * SIZE) + (np.arange(rows) == 0)
    return np.asarray(ranks < successes[:, None], dtype=float)


def fresh_order(rng: Generator, n: int = WORLDS, size: int = SIZE) -> IntArray:
    return rng.permuted(np.tile(np.arange(size), (n, 1)), axis=1)


def run(
    race: LabelledRows,
    order: IntArray,
    low: FloatArray,
    high: FloatArray | None = None,
    leader: Callable[[LabelledRows], IntArray] | None = None,
) -> int:
    """Add all examples; return how often the best row (0) was ever ruled out."""
    at = np.arange(len(order))
    high = low if high is None else high
    for examples in order.T:
        fixed = None if leader is None else leader(race)
        race.add(examples, low[at, :, examples], high[at, :, examples], fixed)
    return int((~race.alive[:, 0]).sum())


@pytest.mark.parametrize("rows", [2, 6])
@pytest.mark.parametrize("right", [0.5, 0.95])
def test_the_best_row_is_seldom_ruled_out_whatever_the_judge(rows: int, right: float) -> None:
    rng = np.random.default_rng(rows)
    people = worlds(rng, rows, correlated=0.5)
    race = LabelledRows(judge(rng, people, right), ALPHA)

    assert run(race, fresh_order(rng), people) <= LIMIT


def test_a_good_judge_saves_labels_and_a_bad_one_costs_few() -> None:
    rng = np.random.default_rng(5)
    people = (rng.random((400, 2, SIZE)) < np.array([0.7, 0.5])[:, None]).astype(float)
    order = fresh_order(rng, 400)

    def labelled(judged: FloatArray) -> float:
        race, n = LabelledRows(judged, ALPHA), 0
        for examples in order.T:
            n += int((race.alive.sum(axis=1) > 1).sum())
            one = people[np.arange(400), :, examples]
            race.add(examples, one, one)
        return n / 400

    good, bad = judge(rng, people, 0.95, by=0.0), judge(rng, people, 0.5, by=0.0)
    alone = labelled(np.full_like(people, np.nan))

    assert labelled(good) < 0.8 * alone
    assert labelled(bad) < 1.25 * alone


def test_all_but_the_best_are_ruled_out_by_the_time_that_all_is_labelled() -> None:
    rng = np.random.default_rng(6)
    people = worlds(rng)
    people[:, 0, :] = np.maximum(people[:, 0], people[:, 1])  # ahead on every example, or level
    people[:, 0, 0], people[:, 1:, 0] = 1.0, 0.0
    race = LabelledRows(np.full_like(people, np.nan), ALPHA)

    run(race, fresh_order(rng), people)

    ahead = people.mean(axis=2)[:, [0]] > people.mean(axis=2) + 0.1
    assert (~race.alive)[ahead].mean() > 0.99


def test_an_order_that_chose_the_rows_is_not_their_order() -> None:
    # of 60 candidates row 0 is named by hand; the others are the best on the first places
    rng = np.random.default_rng(7)
    people = worlds(rng, rows=60)
    order = fresh_order(rng)
    seen = np.take_along_axis(people, order[:, None, :30], axis=2).mean(axis=2)
    seen[:, 0] = 2.0
    chosen = np.argsort(-seen, axis=1, kind="stable")[:, :3]
    people = np.take_along_axis(people, chosen[..., None], axis=1)
    judged = judge(rng, people)

    wrong = run(LabelledRows(judged, ALPHA), order, people)
    right = run(LabelledRows(judged, ALPHA), fresh_order(rng), people)

    assert right <= LIMIT < wrong


def of_population(rng: Generator, rows: int = 3) -> FloatArray:
    """Return people's scores of examples of which all rows are equally good in the population."""
    return (rng.random((WORLDS, rows, SIZE)) < 0.5).astype(float)


class TestNewExamples:
    """Nothing that decides may have seen an example before its place."""

    def test_labels_alone_and_a_leader_of_spent_examples_hold_the_level(self) -> None:
        rng = np.random.default_rng(8)
        people = of_population(rng)
        race = LabelledRows(judge(rng, people), ALPHA, on_new=True)

        assert run(race, fresh_order(rng), people) <= LIMIT

    def test_statements_about_these_examples_are_none_about_new_ones(self) -> None:
        rng = np.random.default_rng(8)
        people = of_population(rng, rows=2)
        race = LabelledRows(judge(rng, people, 0.99, by=0.0), ALPHA)  # m is of all N examples

        assert run(race, fresh_order(rng), people) > LIMIT

    def test_the_mean_of_the_judge_over_these_examples_may_not_be_in_the_bets(self) -> None:
        """Odds of new examples and a leader of spent ones, but m is known over all N."""
        rng = np.random.default_rng(11)
        people = of_population(rng, rows=2)
        judged = judge(rng, people, 0.97, by=0.0)
        order = fresh_order(rng)

        class KnowsMean(LabelledRows):
            def __init__(self, judged: FloatArray) -> None:
                super().__init__(judged, ALPHA)
                self._on_new = True

        def of_spent(race: LabelledRows) -> IntArray:
            return np.asarray(np.where(race.alive, race._low, -1.0).argmax(axis=1))

        alone = LabelledRows(judged, ALPHA, on_new=True)
        assert run(alone, order, people, leader=of_spent) <= LIMIT
        assert run(KnowsMean(judged), order, people, leader=of_spent) > LIMIT

    def test_the_judge_on_unlabelled_examples_may_not_name_the_leader(self) -> None:
        rng = np.random.default_rng(9)
        people = of_population(rng, rows=6)
        judged = judge(rng, people, 1.0, by=0.0)
        spent = LabelledRows(judged, ALPHA, on_new=True)
        ahead = LabelledRows(judged, ALPHA, on_new=True)
        best = judged.mean(axis=2)

        def by_all(race: LabelledRows) -> IntArray:
            return np.asarray(np.where(race.alive, best, -1.0).argmax(axis=1))

        order = fresh_order(rng)
        assert run(spent, order, people) <= LIMIT
        assert run(ahead, order, people, leader=by_all) > LIMIT

    def test_rows_chosen_on_the_same_examples_are_ruled_out_too_often(self) -> None:
        rng = np.random.default_rng(10)
        people = of_population(rng, rows=60)
        judged = judge(rng, people, 0.9, by=0.0)
        means = judged.mean(axis=2)
        means[:, 0] = 2.0  # named by hand
        chosen = np.argsort(-means, axis=1)[:, :6]
        same = np.take_along_axis(people, chosen[..., None], axis=1)
        other = of_population(rng, rows=6)  # of the same rows, kept back
        order = fresh_order(rng)

        wrong = run(LabelledRows(same, ALPHA, on_new=True), order, same)
        right = run(LabelledRows(other, ALPHA, on_new=True), order, other)

        assert right <= LIMIT < wrong


class TestPassedOver:
    """People pass over the examples on which another row than the best fails."""

    def _worlds(self) -> tuple[Generator, FloatArray, BoolArray, IntArray]:
        rng = np.random.default_rng(11)
        people = worlds(rng, rows=2)
        passed = (people[:, 0] > people[:, 1]) & (rng.random((WORLDS, SIZE)) < 0.5)
        return rng, people, passed, fresh_order(rng)

    def test_at_their_worst_they_break_no_level(self) -> None:
        rng, people, passed, order = self._worlds()
        low = np.where(passed[:, None], 0.0, people)
        high = np.where(passed[:, None], 1.0, people)

        assert run(LabelledRows(judge(rng, people), ALPHA), order, low, high) <= LIMIT

    @pytest.mark.parametrize("how", ["left out", "called a tie"])
    def test_left_out_or_called_ties_they_do(self, how: str) -> None:
        rng, people, passed, order = self._worlds()
        if how == "called a tie":
            scores = np.where(passed[:, None], 0.5, people)
        else:  # others of the same place, as if the passed ones had never been drawn
            scores = people.copy()
            kept = [np.flatnonzero(~one) for one in passed]
            for world, columns in enumerate(kept):
                drawn = rng.choice(columns, SIZE)
                scores[world] = people[world][:, drawn]

        assert run(LabelledRows(judge(rng, people), ALPHA), order, scores) > LIMIT

    def test_once_scored_they_count_as_what_they_are(self) -> None:
        _, people, passed, order = self._worlds()
        judged = np.full_like(people, np.nan)
        waiting, answered = LabelledRows(judged, ALPHA), LabelledRows(judged, ALPHA)
        low = np.where(passed[:, None], 0.0, people)
        high = np.where(passed[:, None], 1.0, people)
        at = np.arange(WORLDS)
        for examples in order[:, :120].T:
            leader = waiting.leader
            waiting.add(examples, low[at, :, examples], high[at, :, examples], leader)
            scores = people[at, :, examples]
            answered.add(examples, scores, scores, leader)

            both = answered.alive.all(axis=1)
            assert (waiting.wealth <= answered.wealth * (1 + 1e-9))[both].all()


class TestSeveralRaters:
    """Two people who err by chance; the statement is about the labels of those fixed beforehand."""

    def _raters(self) -> tuple[Generator, FloatArray, FloatArray]:
        rng = np.random.default_rng(12)
        truth = worlds(rng, rows=2)
        one = np.where(rng.random(truth.shape) < 0.8, truth, 1.0 - truth)
        two = np.where(rng.random(truth.shape) < 0.8, truth, 1.0 - truth)
        return rng, one, two

    def test_the_mean_of_raters_fixed_beforehand_holds_the_level(self) -> None:
        rng, one, two = self._raters()
        twice = fresh_order(rng) < SIZE // 2  # of each world, examples that both are asked
        labels = np.where(twice[:, None], (one + two) / 2, one)
        best = labels.sum(axis=2).argmax(axis=1)
        labels = np.take_along_axis(labels, np.stack([best, 1 - best], axis=1)[..., None], axis=1)

        assert run(LabelledRows(judge(rng, labels), ALPHA), fresh_order(rng), labels) <= LIMIT

    def test_a_second_rater_where_the_leader_lost_breaks_it(self) -> None:
        rng, one, two = self._raters()
        judged = judge(rng, one)
        race, at = LabelledRows(judged, ALPHA), np.arange(WORLDS)
        for examples in fresh_order(rng).T:
            first, second = one[at, :, examples], two[at, :, examples]
            leader = race.leader
            lost = first[at, leader] < first[at, 1 - leader]
            scores = np.where(lost[:, None], (first + second) / 2, first)
            race.add(examples, scores, scores)

        assert (~race.alive[:, 0]).sum() > LIMIT


def test_equal_texts_are_a_draw_that_costs_no_label() -> None:
    rng = np.random.default_rng(13)
    people = worlds(rng)
    equal = rng.random((WORLDS, SIZE)) < 0.4
    people = np.where(equal[:, None], 0.5, people)
    best = people.sum(axis=2).argmax(axis=1)
    people[np.arange(WORLDS)[:, None], [0], :], people[np.arange(WORLDS), best] = (
        people[np.arange(WORLDS), best][:, None],
        people[:, 0].copy(),
    )

    assert run(LabelledRows(judge(rng, people), ALPHA), fresh_order(rng), people) <= LIMIT


def test_where_the_judge_is_missing_no_reliance_is_placed_on_it() -> None:
    rng = np.random.default_rng(14)
    people = worlds(rng, rows=2)[:50]
    judged = people.copy()
    judged[:, 1, 17] = np.nan
    order = np.concatenate([np.delete(np.arange(SIZE), 17), [17]])
    some, none = LabelledRows(judged, ALPHA), LabelledRows(np.full_like(people, np.nan), ALPHA)

    for example in order[:60]:
        one = people[:, :, example]
        leader = np.zeros(50, dtype=int)
        some.add(np.full(50, example), one, one, leader)
        none.add(np.full(50, example), one, one, leader)

    assert np.allclose(some.wealth, none.wealth)


def test_intervals_hold_and_a_foretold_number_is_seldom_too_low() -> None:
    rng = np.random.default_rng(15)
    held, enough, n = [], [], 24
    for _ in range(60):
        people = (rng.random((3, SIZE)) < np.array([[0.75], [0.6], [0.45]])).astype(float)
        judged = judge(rng, people[None], 0.85, by=0.1)[0]
        order = rng.permutation(SIZE)

        def scores(place: int, _: BoolArray) -> tuple[FloatArray, FloatArray]:
            return people[:, order[place]], people[:, order[place]]  # noqa: B023 - used at once

        whole = race(judged, order.tolist(), scores, ALPHA)
        some = race(judged, order.tolist(), lambda t, _: scores(t, _) if t < n else None, ALPHA)
        means = people.mean(axis=1)
        held.append(all(a <= m <= b for m, (_, a, b) in zip(means, some.means, strict=True)))
        needed = max((place for place in whole.ruled_out if place), default=SIZE)
        if len(some.alive) > 1 and len(whole.alive) == 1 and some.more is not None:
            enough.append(needed - n <= some.more)

    assert sum(held) >= binom.ppf(0.001, 60, 1 - ALPHA)
    assert np.mean(enough) > 0.4  # a number that is too low would be promised
