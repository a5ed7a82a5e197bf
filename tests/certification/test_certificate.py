from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.certification.betting import Goal, Method
from bestarm_agent.certification.certificate import (
    Certificate,
    Screened,
    certify,
    certify_losses,
    plan_rounds,
    single_goal,
)
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.non_inferiority import Conclusion
from tests.support.rates import RateCheck

GOAL, TABLED = Goal(0.1, 0.1), Goal(0.2, 0.1)
DATA = Path(__file__).parents[3] / "shared" / "data"


def made_up(
    e_values: list[float], order: list[int], correction: str = "sequence", goal: Goal = GOAL
) -> tuple[Certificate, list[int]]:
    """Certify candidates of these e-values; return whose screening was asked for, too."""
    single, asked = single_goal(goal, len(order), correction), list[int]()

    def screening(candidate: int) -> Screened:
        asked.append(candidate)
        log_e = math.log(e_values[candidate])
        verdict = Conclusion.PASSED if log_e >= single.enough else Conclusion.UNDECIDED
        examples = tuple(range(candidate + 1))
        return Screened(candidate, verdict, examples, log_e, (log_e,), (), 0.05)

    return certify(order, screening, correction), asked


def test_a_sequence_chooses_the_last_before_the_first_failure() -> None:
    found, asked = made_up([11.0, 2.0, 50.0, 12.0], [3, 0, 1, 2])
    assert (found.chosen, found.certified) == (0, (3, 0))
    assert asked == [3, 0, 1]
    assert found.n_labels == 4
    assert [found.labels_to_certify(i) for i in (3, 0, 1, 2)] == [4, 4, None, None]


def test_bonferroni_looks_from_the_end_and_stops_at_the_first_good_one() -> None:
    found, asked = made_up([100.0, 31.0, 29.0], [0, 1, 2], "bonferroni")  # K / delta = 30
    assert (found.chosen, found.certified) == (1, (1,))
    assert asked == [2, 1]
    assert made_up([19.0, 19.0], [0, 1], "bonferroni")[0].chosen is None


def test_nobody_is_good_enough() -> None:
    found, _ = made_up([3.0], [0])
    assert (found.chosen, found.certified, found.n_labels) == (None, (), 1)
    assert made_up([], [], "bonferroni")[0].chosen is None


def test_an_unknown_correction_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean `bonferroni`"):
        made_up([1.0], [0], "bonferoni")


def e_values(seed: int, n_null: int, n_good: int) -> list[float]:
    """E-values that are 1/p for p uniform times 1/2 (null), and large ones (good)."""
    rng = np.random.default_rng(seed)
    null = 0.5 / np.sqrt(rng.random(n_null))  # mean 1
    return [*null.tolist(), *np.exp(rng.uniform(3.0, 8.0, n_good)).tolist()]


@pytest.mark.coverage
@pytest.mark.parametrize("correction", ["sequence", "bonferroni"])
def test_error_rates(correction: str, check_rate: RateCheck) -> None:
    # Level 1e-6 each. E-values of mean 1 with a heavy tail for the bad, in the worst order.
    wrong, runs = 0, 2000
    for seed in range(runs):
        values = e_values(seed, n_null=5, n_good=5)
        found, _ = made_up(values, list(range(10)), correction, Goal(0.1, 0.2))
        wrong += any(i < 5 for i in found.certified)
    check_rate(wrong, runs, 0.2)


def test_plans() -> None:
    rng = np.random.default_rng(0)
    rounds = plan_rounds(np.arange(10), np.arange(10, 35), rng)
    assert rounds.others.shape == (10, 2)
    assert sorted(rounds.labelled) == list(range(10))
    both = plan_rounds(np.arange(40), np.arange(0), rng)  # labelled ones serve as others
    assert both.others.shape == (10, 3)
    assert not set(both.labelled) & set(both.others.ravel())
    few = plan_rounds(np.arange(10), np.arange(10, 35), rng, max_labels=5)
    assert few.others.shape == (5, 5)
    with pytest.raises(ValueError, match="no example has a label"):
        plan_rounds(np.arange(0), np.arange(5), rng)
    with pytest.raises(ValueError, match="5 examples are too few for 9"):
        plan_rounds(np.arange(5), np.arange(0), rng, ratio=9)


# of a table of losses


def tables(n: int = 600, n_labelled: int = 150, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Losses and guesses of four candidates of rising risks; the third is the last good one."""
    rng = np.random.default_rng(seed)
    true = rng.random((4, n)) < np.array([[0.02], [0.05], [0.1], [0.4]])
    guesses = true ^ (rng.random((4, n)) < 0.03)
    losses = true.astype(float)
    losses[:, rng.permutation(n)[n_labelled:]] = np.nan
    return losses, guesses.astype(float)


def test_the_last_good_candidate_is_chosen() -> None:
    losses, guesses = tables()
    found = certify_losses(losses, guesses, TABLED)
    assert found.chosen == 2
    assert [one.verdict for one in found.screened][-1] is Conclusion.FAILED
    assert found.n_labels < 150
    assert found.screened[0].mean_loss < 0.1
    used = [example for one in found.screened for example in one.examples]
    assert not np.isnan(losses[:, used]).any()


def test_a_good_autoevaluator_saves_labels() -> None:
    needed = {
        name: certify_losses(*tables(), Goal(0.15, 0.1), Method(name)).labels_to_certify(2) or 1000
        for name in ("r-eval", "r-autoeval+")
    }
    assert needed["r-autoeval+"] < needed["r-eval"]


@pytest.mark.parametrize(
    ("n", "n_labelled", "max_labels", "ratio", "used"),
    [
        (80, 80, None, None, 80),  # a label is worth more than a guess
        (80, 60, None, None, 60),
        (80, 60, 100, None, 60),  # more may be used than there are
        (80, 80, 40, None, 40),  # beside one unlabelled example each
        (400, 400, None, 3, 100),  # three others for each, used without their labels
    ],
)
def test_so_many_labels_are_used(
    n: int, n_labelled: int, max_labels: int | None, ratio: int | None, used: int
) -> None:
    found = certify_losses(
        *tables(n, n_labelled), Goal(0.05, 1e-30), max_labels=max_labels, ratio=ratio
    )
    assert found.screened[0].verdict is Conclusion.UNDECIDED
    assert (found.chosen, found.n_labels) == (None, used)


def test_an_order_and_a_correction_of_its_own() -> None:
    found = certify_losses(*tables(), TABLED, order=[1, 0, 3, 2], correction="bonferroni")
    assert [one.candidate for one in found.screened] == [2]
    assert found.certified == (2,)


@pytest.mark.parametrize(
    ("losses", "guesses", "message"),
    [
        ([[0.5, 1.5]], None, r"losses must be in \[0, 1\], got 1.5 at \(0, 1\)"),
        ([0.5], None, r"losses must be \(candidates, examples\)"),
        ([[0.5, np.nan]], [[0.5, np.nan]], r"guesses must be in \[0, 1\], got nan at \(0, 1\)"),
        ([[0.5, np.nan]], np.zeros((2, 2)), r"guesses are \(2, 2\), but the losses are \(1, 2\)"),
        ([[np.nan, np.nan]], None, "no example has a label"),
    ],
)
def test_bad_tables_are_named(losses: FloatArray, guesses: FloatArray | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certify_losses(losses, guesses, TABLED)


@pytest.mark.skipif(not DATA.is_dir(), reason="the score matrices are not here")
def test_real_table_of_quantised_models() -> None:
    with np.load(DATA / "rautoeval_triviaqa.npz") as file:
        losses, guesses = file["loss_true"].astype(float), file["loss_best"].astype(float)
    found = certify_losses(losses, guesses, Goal(0.1, 0.1), max_labels=200, ratio=3)
    assert found.chosen is not None
    assert losses[found.chosen].mean() <= 0.1
    assert found.chosen >= 28  # 6.6 bits or fewer; the last good row is 37
