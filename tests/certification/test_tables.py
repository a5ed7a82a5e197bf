from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.certification.betting import Goal, Method
from bestarm_agent.certification.certificate import certify_losses
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.non_inferiority import Decision

GOAL = Goal(0.2, 0.1)
DATA = Path(__file__).parents[3] / "shared" / "data"


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
    found = certify_losses(losses, guesses, GOAL)
    assert found.chosen == 2
    assert [one.verdict for one in found.screened][-1] is Decision.FAILED
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
    assert found.screened[0].verdict is Decision.UNDECIDED
    assert (found.chosen, found.n_labels) == (None, used)


def test_an_order_and_a_correction_of_its_own() -> None:
    found = certify_losses(*tables(), GOAL, order=[1, 0, 3, 2], correction="bonferroni")
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
        certify_losses(losses, guesses, GOAL)


def test_too_few_examples_for_a_ratio() -> None:
    with pytest.raises(ValueError, match="too few for 700 unlabelled ones"):
        certify_losses(*tables(), GOAL, ratio=700)


@pytest.mark.skipif(not DATA.is_dir(), reason="the score matrices are not here")
def test_real_table_of_quantised_models() -> None:
    with np.load(DATA / "rautoeval_triviaqa.npz") as file:
        losses, guesses = file["loss_true"].astype(float), file["loss_best"].astype(float)
    found = certify_losses(losses, guesses, Goal(0.1, 0.1), max_labels=200, ratio=3)
    assert found.chosen is not None
    assert losses[found.chosen].mean() <= 0.1
    assert found.chosen >= 28  # 6.6 bits or fewer; the last good row is 37
