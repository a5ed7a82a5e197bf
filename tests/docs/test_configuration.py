from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from bestarm_agent.config.environment_settings import Settings
from bestarm_agent.config.study.certify import CertifySpec
from bestarm_agent.config.study.confirm import ConfirmSpec
from bestarm_agent.config.study.dataset_and_scorer import DatasetSpec, HuggingFaceSpec, ScorerSpec
from bestarm_agent.config.study.gate import GateSpec
from bestarm_agent.config.study.load import load_study
from bestarm_agent.config.study.models_and_prompts import (
    CandidateSpec,
    MessageSpec,
    ModelSpec,
    PromptSpec,
)
from bestarm_agent.config.study.objective import ObjectiveSpec
from bestarm_agent.config.study.optimize import OptimizeSpec
from bestarm_agent.config.study.rate_limits import RateSpec
from bestarm_agent.config.study.run_options import (
    BudgetSpec,
    LimitsSpec,
    ProviderLimits,
    SelectorSpec,
    StopSpec,
)
from bestarm_agent.config.study.schema import SlicesSpec, StudyConfig

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"

# Which heading describes which mapping.
SECTIONS: list[tuple[str, type[BaseModel]]] = [
    ("Keys", StudyConfig),
    ("Models", ModelSpec),
    ("Prompts", PromptSpec),
    ("Prompts", MessageSpec),
    ("Explicit candidates", CandidateSpec),
    ("Dataset", DatasetSpec),
    ("Dataset", HuggingFaceSpec),
    ("Scorer", ScorerSpec),
    ("Budget", BudgetSpec),
    ("Objective", ObjectiveSpec),
    ("Selector", SelectorSpec),
    ("Confirm", ConfirmSpec),
    ("Stop", StopSpec),
    ("Certify", CertifySpec),
    ("Optimize", OptimizeSpec),
    ("Gate", GateSpec),
    ("Slices", SlicesSpec),
    ("Limits", LimitsSpec),
    ("Limits", ProviderLimits),
    ("Limits", RateSpec),
]


def section(heading: str) -> str:
    text = DOCUMENT.read_text(encoding="utf-8")
    parts = re.split(r"^#{2,3} (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


@pytest.mark.parametrize(("heading", "model"), SECTIONS)
def test_every_key_is_documented(heading: str, model: type[BaseModel]) -> None:
    text = section(heading)
    quoted = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))
    assert set(model.model_fields) - quoted == set()


def test_every_mapping_of_a_study_is_documented() -> None:
    documented = {model.__name__ for _, model in SECTIONS}
    definitions = StudyConfig.model_json_schema()["$defs"]
    assert set(definitions) - {"JsonValue"} <= documented


def test_every_variable_is_documented() -> None:
    text = section("Who has the last word")
    names = {f"BESTARM_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_the_complete_example_is_valid_and_complete(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", section("A complete example"), re.DOTALL)
    assert example is not None
    path = tmp_path / "study.yaml"
    path.write_text(example[1], encoding="utf-8")
    config = load_study(path, environ={"OPENAI_BASE_URL": "http://localhost"}).config
    assert config.model_fields_set == set(StudyConfig.model_fields)
