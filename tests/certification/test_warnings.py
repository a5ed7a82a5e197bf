"""What a certification warns of before it spends anything."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.certification.certificate import plan_rounds
from bestarm_agent.certification.mode import Certification, warnings
from bestarm_agent.certification.setup import trial_order
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import load_study
from bestarm_agent.config.study import CertifySpec
from bestarm_agent.domain.values import Candidate, PromptTemplate
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.study import open_mode
from tests.support.commands import invoke
from tests.support.studies import write_study


def warned(n_labels: int, *costs: float, **section: str | int) -> tuple[str, ...]:
    """What a certification of candidates with these costs warns of, each label beside three."""
    keys = {"risk": 0.2, "judge": "contains", "order": "given", **section}
    plan = plan_rounds(
        np.arange(n_labels),
        np.arange(n_labels, 4 * n_labels),
        KeyedRandom(0, "certify-order").at(0),
        ratio=3,
    )
    return warnings(CertifySpec.model_validate(keys), plan, costs)


def test_too_few_labels_are_told_with_what_is_needed() -> None:
    [text] = warned(3, 1.0, 2.0)
    assert "3 labels cannot suffice" in text
    assert "reaches an e-value of 1.3, and 10 is needed; at least 21 labels are needed" in text
    assert len(warned(20, 1.0, 2.0)) == 1
    assert warned(21, 1.0, 2.0) == ()


def test_an_order_by_equal_costs_is_arbitrary() -> None:
    [text] = warned(40, 0.5, 0.5, order="cost")
    assert "all candidates cost the same" in text
    assert warned(40, 0.5, 0.6, order="cost") == ()


def test_labels_that_the_examples_cannot_serve() -> None:
    [text] = warned(40, 1.0, 2.0, max_labels=90)
    assert "certify.max_labels is 90, and only 40 labels will be used" in text


def test_a_price_that_is_no_number_is_refused() -> None:
    prompt = PromptTemplate("q", text="q")
    candidates = [Candidate("p", f"m{i}", prompt, {}, f"c{i}") for i in range(2)]
    with pytest.raises(ConfigError, match="the price of candidate 'c1' is not a number"):
        trial_order("cost", candidates, [1.0, math.nan])


def test_the_command_warns_before_it_spends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=40, usd=[0.001, 0.001])
    asked = ("certify", "-c", path, "--judge", "recorded", "--risk", "0.1", "--max-labels", "3")
    done = invoke(capsys, *asked)
    assert "3 labels cannot suffice" in done.err
    assert "all candidates cost the same" in done.err
    assert done.err.index("cannot suffice") < done.err.index("pairs")


@pytest.mark.parametrize(("max_labels", "used"), [(None, 15), (15, 15), (30, 30), (50, 30)])
def test_as_many_labels_are_planned_as_allowed(
    tmp_path: Path, max_labels: int | None, used: int
) -> None:
    """60 labelled examples: each label takes at least one other example, which is guessed."""
    section = {"risk": 0.1, "judge": "recorded", "max_labels": max_labels}
    path = write_study(tmp_path, n_examples=60, changes={"certify": section})
    parts = assemble(load_study(path), Catalog(tmp_path, ()), open_mode)
    assert isinstance(parts.mode, Certification)
    assert len(parts.mode.plan.labelled) == used
