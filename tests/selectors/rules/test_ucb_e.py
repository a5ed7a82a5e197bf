from __future__ import annotations

import numpy as np

from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import State, Tell
from tests.support.selector_suite import opened, play


def test_a_trace_by_hand() -> None:
    """Scores 1, 0, .6; eta = 1. B_0 = 1 + 1/sqrt(n_0), B_2 = .6 + 1/sqrt(n_2), B_1 = 0 + 1.

    After one pull of each: B = (2, 1, 1.6), so 0 (1.707), 0 (1.577 < 1.6), 2 (1.307), then 0 until
    1 + 1/sqrt(n_0) < 1.307, which is at n_0 = 11 (8 pulls), then 2 (.6 + 1/sqrt(3) = 1.177).
    """
    found = play(opened(UcbE, 3, 50), [1.0, 0.0, 0.6], 16)
    assert sorted(found[:3]) == [0, 1, 2]
    assert found[3:] == [0, 0, 2, *[0] * 8, 2, 0]


def test_common_examples_by_hand() -> None:
    """Scores along the common order: of 0 they are 1 0 1 1 0 0, of 1 they are 0 1 0 0; eta = 1.

    After one pull of each B = (2, 1). Then B_0 = 1.207, 1.244, 1.25, 1.047, .908 < 1, so 1 follows
    at the second place: B_1 = 1.207, .911, .75 < .908, and 0 goes on at the seventh.
    """
    selector = opened(UcbE, 2, 50, common_examples=True)
    place_of = {
        example: place for place, example in enumerate(selector.rule.order.examples.tolist())
    }
    scores, found = [[1, 0, 1, 1, 0, 0, 0], [0, 1, 0, 0]], []
    for _ in range(11):
        [ask] = selector.ask()
        candidate, place = ask.pair.candidate, place_of[ask.pair.example]
        found.append((candidate, place))
        selector.tell([Tell(ask.seq, State.DONE, scores[candidate][place])])
    assert sorted(found[:2]) == [(0, 0), (1, 0)]
    assert found[2:7] == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]
    assert found[7:] == [(1, 1), (1, 2), (1, 3), (0, 6)]


def test_eta_scales_the_width() -> None:
    """eta = 4 doubles the widths: B = (3, 2, 2.6), then 0 at 2.414 falls behind 2 at 2.6."""
    assert play(opened(UcbE, 3, 50, eta=4.0), [1.0, 0.0, 0.6], 6)[3:] == [0, 2, 0]


def test_a_batch_stays_with_its_candidate_until_that_has_no_more_examples() -> None:
    """Batches of 2; scores 1, 0, .6, widths 1/sqrt(2) after the first ones: B = 1.707, .707, 1.307.

    So 0 (n = 4: 1.5), 0 (n = 6: 1.408), 0 (n = 8: 1.354), 0 (n = 10: 1.316), 0 (n = 12: 1.289), 2.
    """
    found = play(opened(UcbE, 3, 50, batch=2), [1.0, 0.0, 0.6], 18)
    assert found[::2] == found[1::2]
    assert sorted(found[:6:2]) == [0, 1, 2]
    assert found[6::2] == [0, 0, 0, 0, 0, 2]
    assert sorted(play(opened(UcbE, 2, 3, batch=2), [1.0, 0.0])) == [0, 0, 0, 1, 1, 1]


def test_a_pull_in_flight_narrows_the_width_and_leaves_the_mean_alone() -> None:
    """Scores 1 and .5, one each: B = (2, 1.5). In flight B_0 = 1 + 1/sqrt(n): 1.71, 1.58, 1.5.

    So three pulls of 0 in a row (the third at 1.58), and at n_0 = 4 both stand at 1.5; a fourth
    pending pull of 0 at the latest brings it to 1.447, and 1 is next.
    """
    selector = opened(UcbE, 2, 50)
    play(selector, [1.0, 0.5], 2)
    found = [ask.pair.candidate for ask in selector.ask(5)]
    assert found[:3] == [0, 0, 0]
    assert sorted(found[3:]) == [0, 1]
    assert selector.answer.estimates().mean.tolist() == [1.0, 0.5]


def test_a_candidate_whose_pulls_are_all_void_draws_no_more_than_a_useless_one() -> None:
    selector = opened(UcbE, 2, 200)
    for _ in range(100):
        [ask] = selector.ask()
        state = State.VOID if ask.pair.candidate == 0 else State.DONE
        selector.tell([Tell(ask.seq, state, 0.8)])
    assert selector.table.n_trials[0] <= 2


def test_equal_candidates_and_the_unseen_examples_are_drawn_at_random() -> None:
    assert {opened(UcbE, 4, 5, seed=s).ask()[0].pair.candidate for s in range(40)} == {0, 1, 2, 3}
    order = np.array([ask.pair.example for ask in opened(UcbE, 1, 400).ask(400)])
    assert sorted(order) == list(range(400))
    assert abs(np.corrcoef(order, np.arange(400))[0, 1]) < 0.25  # five standard errors
