from __future__ import annotations

import re
from pathlib import Path

from bestarm_agent.config.load import load_study
from bestarm_agent.config.settings import Settings
from bestarm_agent.config.study import StudyConfig

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def section(heading: str) -> str:
    text = DOCUMENT.read_text(encoding="utf-8")
    parts = re.split(r"^#{2,3} (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[heading]


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
