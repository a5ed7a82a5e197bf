"""What a certification warns of before it spends anything."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bestarm_agent.certification.certificate import plan_rounds
from bestarm_agent.certification.mode import Certification, trial_order, warnings
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.goal_specs import CertifySpec
from bestarm_agent.config.load import load_study
from bestarm_agent.domain.values import Candidate, PromptTemplate
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.errors import ConfigError
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.study import open_mode
from tests.support.commands import Command
from tests.support.studies import write_study


@pytest.mark.parametrize(
    ("n_labels", "costs", "section", "texts"),
    [
        (
            3,
            (1.0, 2.0),
            {},
            [
                "3 labels cannot suffice",
                "reaches an e-value of 1.3, and 10 is needed; at least 21 labels are needed",
            ],
        ),
        (20, (1.0, 2.0), {}, ["20 labels cannot suffice"]),
        (1, (1.0, 2.0), {}, ["certify: 1 label cannot suffice"]),
        (21, (1.0, 2.0), {}, []),
        (40, (0.5, 0.5), {"order": "cost"}, ["all candidates cost the same"]),
        (40, (0.5, 0.6), {"order": "cost"}, []),
        (
            40,
            (1.0, 2.0),
            {"max_labels": 90},
            ["certify.max_labels is 90, and only 40 labels will be used"],
        ),
    ],
)
def test_what_is_warned_of(
    n_labels: int, costs: tuple[float, ...], section: dict[str, Any], texts: list[str]
) -> None:
    """Each label stands beside three other examples."""
    keys = {"risk": 0.2, "judge": "contains", "order": "given", **section}
    examples, rng = np.arange(4 * n_labels), KeyedRandom(0, "certify-order").at(0)
    plan = plan_rounds(examples[:n_labels], examples[n_labels:], rng, ratio=3)
    found = warnings(CertifySpec.model_validate(keys), plan, costs)
    assert len(found) == bool(texts)
    assert all(text in found[0] for text in texts)


def test_the_order_of_trials() -> None:
    prompts = [PromptTemplate("q", text=text) for text in ("q", "qqq", "qq")]
    candidates = [Candidate("p", f"m{i}", one, {}, f"c{i}") for i, one in enumerate(prompts)]
    assert trial_order("given", candidates, [None] * 3) == [0, 1, 2]
    assert trial_order("prompt", candidates, [None] * 3) == [1, 2, 0]
    assert trial_order("cost", candidates, [0.1, 0.1, 0.2]) == [2, 0, 1]
    assert trial_order("cost", candidates, [0.0, 0.1, 0.0]) == [1, 0, 2], "the free ones come last"
    shown = replace(candidates[0], prompt=replace(prompts[0], n_shots=3))  # as long as four
    assert trial_order("prompt", [shown, *candidates[1:]], [None] * 3) == [0, 1, 2]
    with pytest.raises(ConfigError, match="the price of candidate 'c1' is not a number"):
        trial_order("cost", candidates, [1.0, math.nan, 1.0])


def test_the_command_warns_before_it_spends(tmp_path: Path, command: Command) -> None:
    path = write_study(tmp_path, n_candidates=2, n_examples=40, usd=[0.001, 0.001])
    asked = ("certify", "-c", path, "--judge", "recorded", "--risk", "0.1", "--max-labels", "3")
    done = command(*asked)
    assert "3 labels cannot suffice" in done.err
    assert "all candidates cost the same" in done.err
    assert done.err.index("cannot suffice") < done.err.index("answers")


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
