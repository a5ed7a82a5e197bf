"""What N examples show about new ones: tests by hand, and error rates under choice and stopping."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, norm

from bestarm_agent.simulation.score_matrices import load_matrix
from bestarm_agent.stats.betting import Bets, Wealth, bet_grid, bounds_on_new, early_bets
from bestarm_agent.stats.new_examples import (
    Lead,
    Leads,
    chance_of_all,
    examples_needed,
    examples_to_prove,
    lead_of,
    resolution,
)
from bestarm_agent.stats.paired_sequences import PairedSequences, _Against
from tests.stats.test_best_row import Scores, in_step
from tests.support.rates import RateCheck

DATA = Path(__file__).parents[2] / "../shared/data"


def drawn(rng: np.random.Generator, means: tuple[float, ...], n: int) -> Scores:
    """Independent draws of a population; rows share how hard an example is."""
    hard = rng.random(n)
    return np.array([((hard + rng.random(n)) % 1.0 < mean) * 1.0 for mean in means])


def test_the_bets_on_new_examples_do_not_know_how_many_are_left() -> None:
    scores = np.array([np.full(30, 0.9), np.full(30, 0.5)])
    pairs = PairedSequences(2, 40, alpha=0.05)
    in_step(pairs, scores)
    assert pairs.rejected().tolist() == [False, True]
    wealth, squares = np.ones(2), 0.0
    for n in range(30):  # y = .4 each time, and its mean square as if ten of .15 had been seen
        kelly = math.sqrt(2 * math.log(1e6) / (40 * (squares + 10 * 0.15) / (n + 10)))
        wealth *= 1 + 0.4 * np.minimum([kelly, 3 * kelly], 0.98)
        squares += 0.4**2
    now = 0.85 * wealth[0] + 0.15 * wealth[1]
    assert pairs.rejected_on_new(0, 1e-6).tolist() == [False, now >= 1e6]
    progress = pairs.progress_on_new(1e-6, np.array([True, True]))
    assert progress[1] == pytest.approx(min(1.0, math.log(now) / math.log(1e6)))
    assert pairs.lag_on_new(0, 1, 0.05) == 0.0
    assert pairs.lag_on_new(1, 0, 0.05) == 1.0, "it never led"


def test_a_bound_on_new_examples_is_the_least_gap_that_is_refuted() -> None:
    pairs, step = PairedSequences(2, 40, alpha=0.05, independent=range(40)), 2.0**-11
    in_step(pairs, np.array([np.full(30, 0.9), np.full(30, 0.5)]))

    def highest(gap: float) -> float:  # of the wealth against "the first is so much better"
        mean, squares, wealth, best = (1 - gap) / 2, 0.0, np.ones(2), 1.0
        for n in range(30):  # y = -.4 each time, of which the bets see (1 + y) / 2
            stake = math.sqrt(4 * math.log(20) / 40 / ((squares + 10 * 0.15) / (n + 10)))
            wealth *= 1 + np.minimum(np.array([1, 3]) * stake * mean**0.5, 0.98) * (0.3 / mean - 1)
            squares += 0.4**2
            best = max(best, 0.85 * wealth[0] + 0.15 * wealth[1])
        return best

    gap = pairs.lag_on_new(1, 0, 0.05)
    assert 0.4 < gap < 0.8
    assert highest(gap) >= 20 > highest(gap - step)
    assert pairs.lag_on_new(0, 1, 0.05) == 0.0
    assert pairs.rejected_on_new(0, 0.05).tolist() == [False, True]


def test_all_examples_seen_are_certain_for_themselves_and_little_for_new_ones() -> None:
    scores = drawn(np.random.default_rng(1), (0.7, 0.65), 60)
    pairs = PairedSequences(2, 60, alpha=0.05)
    in_step(pairs, scores)
    gap = float(np.diff(scores.mean(axis=1))[0])
    assert pairs.difference(1, 0, 0.05) == pytest.approx((gap, gap))
    lower, upper = pairs.difference(1, 0, 0.05, on_new=True)
    assert lower < gap - 0.1 < gap + 0.1 < upper


def test_a_lead_by_hand() -> None:
    known = np.array([1.0, 1.0, -1.0, 0.0])
    found = lead_of(known, known)
    assert found == Lead(0.25, 4, (3 + 1.5) / 14)
    se = math.sqrt(found.differing / 4)
    near, far = (norm.pdf(0.25, 0, math.hypot(se, spread)) for spread in (0.1, 0.3))
    below = [norm.cdf(0.25 / se / math.hypot(1, se / spread)) for spread in (0.1, 0.3)]
    assert found.chance == pytest.approx((near * below[0] + far * below[1]) / (near + far))
    weight = 0.01 / (0.01 + found.differing / 4)  # of the lead, beside a spread of .1
    deviation = math.sqrt(weight * found.differing / 4)
    assert found.most(0.9) == pytest.approx(weight * 0.25 + 1.281552 * deviation)
    within = float(Leads.of([found]).chances(0.05)[0])  # behind
    below = [
        norm.cdf(
            (0.25 * spread**2 / (spread**2 + se**2) + 0.05) / (se / math.hypot(1, se / spread))
        )
        for spread in (0.1, 0.3)
    ]
    assert within == pytest.approx((near * below[0] + far * below[1]) / (near + far), abs=1e-6)
    hidden = lead_of(np.array([0.0, -1.0]), np.array([1.0, 1.0]))  # two voids
    assert (hidden.mean, hidden.n) == (0.25, 2)
    assert lead_of(np.empty(0), np.empty(0)).chance == 0.5
    assert by_means((0.9, 0), (0.5, 9)).chance == 0.5
    apart = by_means((0.9, 100), (0.5, 50))
    assert apart.mean == pytest.approx(0.4)
    assert apart.n == 50
    assert apart.differing == pytest.approx((50 * (0.09 / 2 + 0.25) + 1.5) / 60)
    assert by_means((0.5, 1), (0.5, 1)).differing == pytest.approx((0.25 + 0.25 + 1.5) / 11)


def test_one_example_says_as_much_as_one_does() -> None:
    lead = Lead(1.0, 1, 0.25)  # its variance is .25
    weight = 0.01 / (0.01 + 0.25)
    assert lead.most(0.9) == pytest.approx(weight + 1.281552 * math.sqrt(weight * 0.25))
    near, far = (norm.pdf(1.0, 0, math.sqrt(0.25 + spread**2)) for spread in (0.1, 0.3))
    below = [norm.cdf(spread / math.sqrt(0.25 * (0.25 + spread**2))) for spread in (0.1, 0.3)]
    chance = (near * below[0] + far * below[1]) / (near + far)
    assert lead.chance == pytest.approx(chance, abs=1e-6)


def test_the_spread_of_candidates_by_hand() -> None:
    """Of leads of .03, .06 and .09 over 100 each, of which a tenth differs; nine are too few."""
    leads = Leads.by_sums(
        np.array([3.0, 6.0, 9.0, 9.0]), np.array([9.5, 9.5, 9.5, 9.0]), np.array([100] * 3 + [9])
    )
    assert leads.differing[:3] == pytest.approx([0.1] * 3)
    variance = 2 * (0.0045 / 3 - 0.1 / 100 / 2)  # of 0, .03, .06 and .09, less that of noise
    assert leads.spread == pytest.approx(math.sqrt((3 * variance + 0.05**2) / 4))


def test_sixty_candidates_far_behind_are_no_chance_together() -> None:
    """Each was asked 17 times, and got 5 right where the winner got 15."""
    hopeless = Leads.of([Lead(10 / 17, 17, 0.5)] * 60)
    assert hopeless.chances().prod() > 0.7  # shrunk as rivals, each .976: .24
    assert chance_of_all(hopeless.chances().tolist()) > 0.8
    rival = Lead(0.06, 150, 0.15)
    as_rival = norm.cdf(0.06 / math.sqrt(0.001) / math.hypot(1, math.sqrt(0.001) / 0.1))
    assert rival.chance == pytest.approx(as_rival, abs=0.005)


@pytest.mark.parametrize("k", [2, 3, 5, 10, 20])
def test_each_of_k_candidates_that_look_the_same_is_the_best_in_one_of_k(k: int) -> None:
    """As independent chances, ten of them had one in 512 each."""
    assert chance_of_all([0.5] * (k - 1)) == pytest.approx(1 / k, rel=0.01)


def test_the_chance_of_all_is_that_of_means_drawn_together() -> None:
    rng, lead = np.random.default_rng(6), np.array([0.0, 0.5, 1.0, 2.5])
    own, others = rng.standard_normal(200_000), rng.standard_normal((200_000, 4))
    is_first = (math.sqrt(2.0) * lead + own[:, None] > others).all(axis=1)
    # 200,000 draws: five standard errors of a share are at most .006
    found = chance_of_all(norm.cdf(lead).tolist())
    assert found == pytest.approx(is_first.mean(), abs=0.006)
    assert found > norm.cdf(lead).prod()


def leads_by(gaps: list[Scores]) -> Leads:
    total, squares = np.array([[gap.sum(), (gap**2).sum()] for gap in gaps]).T
    return Leads.by_sums(total, squares, np.array([len(gap) for gap in gaps]))


def by_means(one: tuple[float, int], other: tuple[float, int]) -> Lead:
    return Leads.by_means(one, np.array([other[0]]), np.array([other[1]])).each()[0]


@pytest.mark.parametrize(
    ("mean", "n", "is_level"),
    [
        (0.0, 29, False),  # too few to say
        (0.0, 100, True),
        (0.07, 100, False),  # .07 + 1.96 sqrt(.15 / 100 - .15 / 300) > .0755
        (0.07, 300, True),
        (-0.07, 300, True),
        (0.08, 300, False),
    ],
)
def test_candidates_are_level_within_what_all_examples_show(
    mean: float, n: int, *, is_level: bool
) -> None:
    assert Lead(mean, n, 0.15).is_level(300, 0.04) is is_level


def test_the_examples_needed_undo_the_resolution() -> None:
    for n in (50, 300, 5000):
        assert examples_needed(resolution(0.2, n, 0.04), 0.2, 0.04) == pytest.approx(n, abs=1)
    assert resolution(0.9, 1, 0.04) == 1.0
    for difference in (0.0, -0.1, 1e-200, math.nan):
        with pytest.raises(ValueError, match="no number of examples shows a difference"):
            examples_needed(difference, 0.2, 0.04)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize("n", [100, 1000])
def test_a_difference_of_the_resolution_is_shown_four_times_in_five(n: int) -> None:
    # 200 worlds, .8 +- .1 (three and a half standard errors of the share).
    rng, level, q = np.random.default_rng([2, n]), 0.04, 0.15
    gap, shown = resolution(q, n, level), 0
    chances = [(q - gap) / 2, 1 - q, (q + gap) / 2]
    for _ in range(200):
        halves = rng.choice([0.0, 0.5, 1.0], size=(1, n), p=chances)
        bets, odds = PairedSequences(2, n, level)._bets(_Against(0, level, None))
        wealth = Wealth(1, 0.5, bets, None, odds)
        wealth.extend(halves)
        shown += wealth.highest[0] >= 1 / level
    assert 0.7 < shown / 200 < 0.95


@pytest.mark.parametrize("q", [0.05, 0.15, 0.4])
@pytest.mark.parametrize("n", [60, 250])
def test_no_row_is_rejected_more_often_than_the_level_says(
    n: int, q: float, check_rate: RateCheck
) -> None:
    # 4,000 rows exactly as good as their opponent, every draw looked at: at most 5 % ever reach
    # 1 / .05. More than 270 of 4,000 have a probability below 1e-6 at that rate.
    rng, level = np.random.default_rng([8, n, int(100 * q)]), 0.05
    bets, odds = PairedSequences(2, n, level)._bets(_Against(0, level, None))
    wealth = Wealth(4000, 0.5, bets, None, odds)
    for size in (1, n // 3, n - n // 3 - 1):
        wealth.extend(rng.choice([0.0, 0.5, 1.0], size=(4000, size), p=[q / 2, 1 - q, q / 2]))
    check_rate(int((wealth.highest >= 1 / level).sum()), 4000, level)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(("n_rows", "most"), [(2, 2.0), (6, 1.2)])
def test_equal_candidates_are_shown_to_differ_at_most_as_often_as_is_said(
    n_rows: int, most: float, check_rate: RateCheck
) -> None:
    # 150 runs at alpha = .1. All but one of m equal ones are rejected with probability at most
    # alpha m / (m - 1); measured in 1,000 runs at .04: 4.2 % of two, none of six.
    rng, shown = np.random.default_rng([3, n_rows]), 0
    for _ in range(150):
        pairs = PairedSequences(n_rows, 100, 0.1)
        in_step(pairs, drawn(rng, (0.85,) * n_rows, 100))
        shown += int(pairs.rejected_on_new(0, 0.1).sum()) == n_rows - 1
    check_rate(shown, 150, 0.1 * most)


@pytest.mark.slow
@pytest.mark.coverage
def test_every_interval_that_may_be_printed_holds_at_every_look(check_rate: RateCheck) -> None:
    # 100 runs of three rows at alpha = .2: the lead of whoever leads over any other, cut off by how
    # far the leader may be behind the best, and its mean; looked at every tenth example.
    rng, wrong, alpha, means = np.random.default_rng(4), np.zeros(2, int), 0.2, (0.7, 0.68, 0.6)
    for _ in range(100):
        scores, pairs = drawn(rng, means, 80), PairedSequences(3, 80, alpha)
        missed = np.full(2, False)
        for place in range(0, 80, 10):
            in_step(pairs, scores[:, place : place + 10], place)
            leader = int(scores[:, : place + 10].mean(axis=1).argmax())
            others = [row for row in range(3) if row != leader]
            behind = max(pairs.lag_on_new(leader, row, 0.8 * alpha) for row in others)
            for row in others:
                lower, upper = pairs.difference(leader, row, 0.2 * alpha / 3, on_new=True)
                gap = means[leader] - means[row]
                missed[0] |= not max(lower, -behind) - 1e-9 <= gap <= upper + 1e-9
            seen = scores[leader, : place + 10]
            lower, upper = bounds_on_new(seen, seen, alpha / 3, early_bets(80, alpha / 6))
            missed[1] |= not lower <= means[leader] <= upper
        wrong += missed
    for count in wrong.tolist():
        check_rate(count, 100, alpha)


@pytest.mark.slow
@pytest.mark.coverage
@pytest.mark.parametrize(
    "name", ["zeroeval_gsm8k", "bfcl_2024-08-11", "psnirt_12x41871", "rautoeval_coqa"]
)
def test_who_acts_on_a_probability_is_right_as_often(name: str) -> None:
    # The two best of five rows on 300 of all examples, at the first look that says 90 % and at the
    # end: right as often as is said, and in at least 90 %, less three standard errors of 60 runs.
    if not DATA.is_dir():
        pytest.skip("the shared score matrices are not here")
    whole = load_matrix(str(DATA / f"{name}.npz")).scores
    whole = whole[:, ~np.isnan(whole).any(axis=0)]
    whole = whole[np.argsort(-whole.mean(axis=1))][:12]
    means, rng, first = whole.mean(axis=1), np.random.default_rng(5), []
    expected, variance, right = 0.0, 0.0, 0
    for _ in range(60):
        rows = rng.permutation(len(whole))[:5]
        scores: Scores = whole[rows][:, rng.permutation(whole.shape[1])[:300]].astype(np.float64)
        for n in range(40, 301, 20):
            leader = int(scores[:, :n].mean(axis=1).argmax())
            gaps = [scores[leader, :n] - scores[row, :n] for row in range(5) if row != leader]
            chance = chance_of_all(leads_by(gaps).chances().tolist())
            is_best = bool(means[rows[leader]] >= means[rows].max())
            if chance >= 0.9:
                first.append(is_best)
                break
        expected, right = expected + chance, right + is_best
        variance += chance * (1.0 - chance)
    assert right > expected - 3 * math.sqrt(variance)
    if len(first) >= 20:
        assert sum(first) / len(first) > 0.9 - 3 * math.sqrt(0.09 / len(first))


def test_bounds_on_new_are_those_of_bets_with_replacement() -> None:
    ones = np.ones(20)
    lower, upper = bounds_on_new(ones, ones, 0.1, early_bets(40, 0.05))
    assert 0.7 < lower < 1.0 == upper
    assert bounds_on_new(np.empty(0), np.empty(0), 0.1, early_bets(40, 0.05)) == (0.0, 1.0)
    wealth = Wealth(1, lower, Bets(*bet_grid(40, 0.05)), None)
    assert wealth.extend(ones[None])[0, -1] > 1.0


def test_a_forecast_by_hand() -> None:
    """Without doubt about the lead, it is the formula for a difference that is named."""
    sure = Lead(0.2, 100_000, 0.15)
    assert examples_to_prove([sure], 0.025) == 100_000 + 1, "they are enough already"
    assert examples_to_prove([], 0.025) is None
    assert examples_to_prove([Lead(0.01, 40, 0.15)], 0.025) is None, "nobody can say"
    near, far = Lead(0.08, 200, 0.15), Lead(0.2, 200, 0.15)
    alone = examples_to_prove([near], 0.025)
    assert alone is not None
    assert alone > 200
    assert examples_to_prove([near, far], 0.025) == alone, "the least probable lead counts"

    weight = 0.01 / (0.01 + 0.15 / 200)

    def shown(n: int) -> float:  # the probability that n examples show a nearer one
        new, least = n - 200, math.sqrt(2 * math.log(40) * 0.15 / n)
        expected = (200 * 0.06 + new * weight * 0.06) / n
        error = math.sqrt(new**2 * weight * 0.15 / 200 + new * 0.15) / n
        return float(norm.cdf((expected - least) / error))

    needed = examples_to_prove([Lead(0.06, 200, 0.15)], 0.025)
    assert needed is not None
    assert shown(needed) >= 0.8 > shown(needed - 1)


@pytest.mark.coverage
@pytest.mark.parametrize(("low", "high"), [(0.45, 0.9), (0.55, 0.85)])
def test_forecasts_for_chosen_winners_come_true_in_50_to_90_percent(
    low: float, high: float
) -> None:
    """Draw a world, choose, add as many examples as were said, ask again."""
    rng, n, level = np.random.default_rng(5), 100, 0.025
    made = true = 0
    for _ in range(200):
        means = tuple(rng.uniform(low, high, 4).tolist())
        first = drawn(rng, means, n)
        leader = int(first.mean(axis=1).argmax())
        gaps = [first[leader] - first[row] for row in range(4) if row != leader]
        needed = examples_to_prove(leads_by(gaps), level)
        if needed is None or needed <= n:
            continue
        scores = np.concatenate([first, drawn(rng, means, needed - n)], axis=1)
        pairs = PairedSequences(4, needed, alpha=0.05)
        in_step(pairs, scores)
        gone = pairs.rejected_on_new(0, level)
        made += 1
        true += bool(gone[[row for row in range(4) if row != leader]].all() and not gone[leader])
    assert made >= 20, made
    # Binomial(made, .5) and (made, .9): two-sided at 1e-3 each
    fewest, most = binom.ppf(0.001, made, 0.5), binom.ppf(0.999, made, 0.9)
    assert fewest <= true <= most, (true, made)


def test_leads_side_by_side_are_those_one_by_one() -> None:
    rng = np.random.default_rng(3)
    pairs = PairedSequences(5, 60, 0.05, draws=2)
    lows = [rng.integers(0, 2, n).astype(float) for n in (40, 40, 25, 0, 7)]
    ranges = [(low * 0.5, np.minimum(1.0, low + 0.25)) for low in lows]
    for row, (low, high) in enumerate(ranges):
        pairs.extend(row, np.arange(len(low)), low, high)
    others = np.array([4, 2, 3, 1])
    leads = Leads.by_sums(*pairs.common_sums(0, others))
    for lead, other in zip(leads.each(), others.tolist(), strict=True):
        n = min(len(lows[other]), 30)  # examples, each drawn twice
        (low, high), (its_low, its_high) = ranges[0], ranges[other]
        alone = lead_of((low[:n] - its_high[:n]), (high[:n] - its_low[:n]))
        assert lead.n == alone.n
        assert (lead.mean, lead.differing) == pytest.approx((alone.mean, alone.differing))
    assert leads.n.tolist() == [7, 25, 0, 30], "of two draws of one example, the first"


@pytest.mark.parametrize("n", [0, 1, 35])
def test_the_largest_of_many_gaps_is_that_of_the_one_furthest_ahead(n: int) -> None:
    rng = np.random.default_rng(n)
    pairs = PairedSequences(6, 60, 0.2)
    for row in range(6):
        values = (rng.random(n) < 0.9 - 0.15 * row).astype(float)
        pairs.extend(row, np.arange(n), values, values)
    others = np.arange(1, 6)
    for bound in (pairs.lag, pairs.shortfall):
        each = [bound(0, int(other)) for other in others]
        assert bound(0, others) == pytest.approx(max(each), abs=2.0**-10)
        assert bound(0, others, 0.0, np.full(5, 0.125)) <= 0.125
        assert bound(0, others, 1.0) == 1.0
    assert pairs.lag(0, np.array([], dtype=np.int64), 0.25) == 0.25


@pytest.mark.parametrize(
    ("spread", "least", "most"), [(0.0, 0.0, 0.03), (0.05, 0.03, 0.08), (0.3, 0.1, 0.1)]
)
def test_leads_shrink_by_the_spread_of_the_candidates_themselves(
    spread: float, least: float, most: float
) -> None:
    """Of 16 candidates with 250 answers; the mean of 40 worlds."""
    rng, found = np.random.default_rng(7), []
    for _ in range(40):
        # two means that are this far apart on average differ by sqrt(2) as much as each does
        means = np.clip(0.7 + spread / math.sqrt(2.0) * rng.standard_normal(16), 0.02, 0.98)
        scores = drawn(rng, tuple(means.tolist()), 250)
        leader = int(scores.mean(axis=1).argmax())
        found.append(leads_by([scores[leader] - one for one in np.delete(scores, leader, 0)]))
    assert least <= float(np.mean([leads.spread for leads in found])) <= most
    assert found[0][np.arange(2)].spread == found[0].spread, "some of the same ones"
    assert Leads.of([Lead(0.1, 50, 0.1)] * 9).spread == leads_by([np.ones(50)] * 2).spread == 0.1


@pytest.mark.coverage
@pytest.mark.parametrize("spread", [0.01, 0.03, 0.1])
def test_a_bound_on_how_much_worse_holds_9_times_in_10(spread: float) -> None:
    """Whoever leads 12 candidates by 120 answers, and the runner-up: 300 worlds."""
    rng, held = np.random.default_rng(8), 0
    for _ in range(300):
        means = np.clip(0.75 + spread * rng.standard_normal(12), 0.02, 0.98)
        scores = drawn(rng, tuple(means.tolist()), 120)
        first, second, *_ = np.argsort(-scores.mean(axis=1)).tolist()
        others = [row for row in range(12) if row != first]
        leads = leads_by([scores[first] - scores[row] for row in others])
        worse = max(0.0, float(leads.most(0.9)[others.index(second)]))
        held += bool(means[first] - means[second] <= worse)
    # Binomial(300, .85) and (300, .97): two-sided at 1e-3 each
    assert binom.ppf(0.001, 300, 0.85) <= held <= binom.ppf(0.999, 300, 0.97), held
