from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.screening import Verdict
from bestarm_agent.certification.tables.certify_table import Terms, alternatives, certify_table
from bestarm_agent.certification.tables.figures import draw_certificate
from bestarm_agent.certification.tables.loss_tables import LossTable, load_losses
from bestarm_agent.errors import ConfigError

TERMS = Terms(Goal(0.2, 0.1), order="cost")
DATA = Path(__file__).parents[4] / "shared" / "data"


def saved(path: Path, n: int = 600, n_labelled: int = 150, seed: int = 0) -> Path:
    """Four candidates whose risks rise as their costs fall; the third is the last good one."""
    rng = np.random.default_rng(seed)
    true = rng.random((4, n)) < np.array([[0.02], [0.05], [0.1], [0.4]])
    guesses = true ^ (rng.random((4, n)) < 0.03)
    losses = true.astype(float)
    losses[:, rng.permutation(n)[n_labelled:]] = np.nan
    np.savez(
        path,
        losses=losses,
        guesses=guesses.astype(float),
        candidates=np.array(["xl", "l", "m", "s"]),
        cost=np.array([8.0, 4.0, 2.0, 1.0]),
        size=np.array([3, 3, 1, 2]),
    )
    return path


@pytest.fixture
def table(tmp_path: Path) -> LossTable:
    return load_losses(saved(tmp_path / "losses.npz"))


def test_the_cheapest_good_candidate_is_chosen(table: LossTable) -> None:
    found = certify_table(table, TERMS)
    assert found.chosen is not None
    assert table.names[found.chosen] == "m"
    assert [one.verdict for one in found.screened][-1] is Verdict.REFUTED
    assert found.n_labels < 150
    assert found.screened[0].mean_loss < 0.1
    assert all(example in table.labelled for one in found.screened for example in one.examples)


def test_a_good_autoevaluator_saves_labels(table: LossTable) -> None:
    others = alternatives(table, replace(TERMS, goal=Goal(0.15, 0.1)))
    assert set(others) == {"r-eval", "r-autoeval", "r-autoeval+"}
    needed = {name: other.labels_to_certify(2) or 1000 for name, other in others.items()}
    assert needed["r-autoeval+"] < needed["r-eval"]


def test_a_fully_labelled_table_uses_all_its_labels(tmp_path: Path) -> None:
    table = load_losses(saved(tmp_path / "full.npz", n=80, n_labelled=80))
    goal = replace(TERMS, goal=Goal(0.2, 0.05))
    found = certify_table(table, goal)
    assert [len(one.examples) for one in found.screened][-1] <= 80
    hard = certify_table(table, replace(goal, goal=Goal(0.05, 1e-6)))
    assert hard.n_labels == 80
    assert hard.screened[0].verdict is Verdict.UNDECIDED
    capped = certify_table(table, replace(goal, goal=Goal(0.05, 1e-6), max_labels=40))
    assert capped.n_labels == 40  # beside one unlabelled example each
    few = load_losses(saved(tmp_path / "most.npz", n=80, n_labelled=60))
    assert certify_table(few, replace(goal, goal=Goal(0.05, 1e-6))).n_labels == 60


def test_a_missing_cost_is_refused(table: LossTable) -> None:
    broken = replace(table, columns={"cost": np.array([8.0, np.nan, 2.0, 1.0])})
    with pytest.raises(ConfigError, match="'cost' of 'l' is NaN"):
        certify_table(broken, TERMS)


@pytest.mark.parametrize("correction", ["bonferroni", "e-bh"])
def test_corrections(table: LossTable, correction: str) -> None:
    found = certify_table(table, replace(TERMS, correction=correction))
    assert found.chosen == 2
    assert 3 not in found.certified


def test_a_pool_is_known_once_all_of_it_is_labelled(tmp_path: Path) -> None:
    table = load_losses(saved(tmp_path / "losses.npz", n=80, n_labelled=80))
    risks = table.losses.mean(axis=1)
    for choose in (False, True):
        terms = replace(TERMS, goal=Goal(float(risks[2]), 1e-9), pool=True, choose=choose)
        found = certify_table(table, terms)
        assert found.chosen == 2  # its mean is exactly the target
        assert found.n_labels == 80


def test_choosing_labels_needs_them_all(table: LossTable) -> None:
    with pytest.raises(ConfigError, match=r"450 of losses\.npz have none"):
        certify_table(table, replace(TERMS, pool=True, choose=True))
    assert certify_table(table, replace(TERMS, pool=True)).chosen == 2


def test_limits_on_labels(table: LossTable) -> None:
    found = certify_table(table, replace(TERMS, max_labels=5))
    assert (found.chosen, found.n_labels) == (None, 5)
    with pytest.raises(ConfigError, match="too few for 700 unlabelled ones"):
        certify_table(table, replace(TERMS, ratio=700))


def test_labelled_examples_serve_as_unlabelled_ones_if_there_are_no_others(tmp_path: Path) -> None:
    table = load_losses(saved(tmp_path / "losses.npz", n=400, n_labelled=400))
    found = certify_table(table, replace(TERMS, goal=Goal(0.2, 1e-30), ratio=3))
    assert found.screened[0].verdict is Verdict.UNDECIDED
    assert found.n_labels == 100  # three others for each


def test_orders(table: LossTable) -> None:
    assert table.order("given") == [0, 1, 2, 3]
    assert table.order("size") == [0, 1, 3, 2]  # equal sizes stay as they come
    with pytest.raises(ConfigError, match="did you mean `cost`"):
        table.order("costs")


def test_several_autoevaluators_in_one_array_or_in_several(tmp_path: Path) -> None:
    path = tmp_path / "losses.npz"
    rng = np.random.default_rng(0)
    one, two = rng.random((2, 3, 5))
    np.savez(path, losses=one, guesses=np.stack([one, two]), other=two)
    assert load_losses(path).guesses.shape == (2, 3, 5)
    assert load_losses(path, guesses=["other"]).guesses.shape == (1, 3, 5)
    assert load_losses(path, guesses=["other", "guesses"]).guesses.shape == (3, 3, 5)
    assert load_losses(path, guesses=[]).guesses.shape == (0, 3, 5)
    assert load_losses(path).names == ("row 0", "row 1", "row 2")


def test_bad_tables_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    with pytest.raises(ConfigError, match="there is no file"):
        load_losses(path)
    path.write_text("no archive", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"no \.npz file of plain arrays"):
        load_losses(path)
    np.savez(path, losses=np.array([[0.5, 1.5]]), guesses=np.array([[0.5, np.nan]]), name=["a"])
    with pytest.raises(
        ConfigError, match=r"'losses' must hold losses in \[0, 1\].*1.5 at \(0, 1\)"
    ):
        load_losses(path)
    with pytest.raises(ConfigError, match="holds no array 'loss'; did you mean `losses`"):
        load_losses(path, losses="loss")
    with pytest.raises(ConfigError, match="must hold numbers"):
        load_losses(path, losses="name")
    np.savez(path, losses=np.array([[0.5, np.nan]]), guesses=np.array([[0.5, np.nan]]), v=[1.0])
    with pytest.raises(ConfigError, match=r"'guesses' must hold losses in \[0, 1\].*nan"):
        load_losses(path)
    with pytest.raises(ConfigError, match="must be candidates x examples"):
        load_losses(path, losses="v")
    np.savez(path, losses=np.array([[0.5, np.nan]]), guesses=np.zeros((2, 2)))
    with pytest.raises(ConfigError, match=r"has shape \(2, 2\), but the true losses have \(1, 2\)"):
        load_losses(path)
    np.savez(path, losses=np.full((1, 2), np.nan))
    with pytest.raises(ConfigError, match=r"bad\.npz: no example has a label"):
        certify_table(load_losses(path), replace(TERMS, order="given"))


@pytest.mark.parametrize("method", ["r-eval", "r-autoeval+"])
def test_the_picture(table: LossTable, tmp_path: Path, method: str) -> None:
    terms = replace(TERMS, method=Method(method))
    found = certify_table(table, terms)
    path = tmp_path / "picture.svg"
    draw_certificate(path, found, table.names, terms.goal, terms.method.reliance(1))
    text = path.read_text(encoding="utf-8")
    for word in ("log10 of the e-value", ">xl<", ">s<", "weights, m"):
        assert word in text
    assert ("one reliance factor" in text) == (method == "r-eval")


@pytest.mark.skipif(not DATA.is_dir(), reason="the score matrices are not here")
def test_real_table_of_quantised_models() -> None:
    table = load_losses(DATA / "rautoeval_triviaqa.npz", losses="loss_true", guesses=["loss_best"])
    goal = Goal(0.1, 0.1)
    found = certify_table(table, Terms(goal, order="cost", max_labels=200, ratio=3))
    assert found.chosen is not None
    assert table.losses[found.chosen].mean() <= 0.1
    assert found.chosen >= 28  # 6.6 bits or fewer; the last good row is 37
