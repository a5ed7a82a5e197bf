"""Providers by name, without importing what is not used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.registry import ADAPTERS, create_provider
from bestarm_agent.testing.provider_suite import ProviderSuite

# what an adapter cannot do without
NEEDED: dict[str, dict[str, Json]] = {"command": {"argv": ["true"]}, "replay": {"path": "r.jsonl"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "r.jsonl").write_text('{"candidate": "a", "example": "1", "text": ""}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("repaly", {}, "`repaly`; did you mean `replay`"),
        ("hf", {"max_bach": 3}, "provider `hf`: unknown option `max_bach`; did you mean"),
    ],
)
def test_unknown_names_and_options_are_refused_with_the_nearest(
    folder: Path, name: str, options: dict[str, Json], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        create_provider(name, options, folder)


def test_a_provider_may_have_another_name_than_its_adapter(folder: Path) -> None:
    assert create_provider("tape", {"path": "r.jsonl"}, folder, adapter="replay").name == "tape"


@pytest.mark.parametrize("name", ADAPTERS.names())
def test_the_catalogue_declares_what_adapters_understand(name: str, folder: Path) -> None:
    entry, needed = Catalog().shipped("providers", name).data, NEEDED.get(name, {})
    assert isinstance(entry["options"], dict)
    options = {**entry["options"], **needed}
    assert create_provider(name, options, folder, adapter=str(entry["adapter"])).name == name
    with pytest.raises(ConfigError, match=f"provider `{name}`: unknown option"):
        create_provider(name, {"no_such_option": 1, **needed}, folder)


@pytest.mark.slow
def test_building_a_provider_imports_no_sdk() -> None:
    program = (
        "import sys, pathlib\n"
        "from bestarm_agent.providers.registry import create_provider\n"
        "create_provider('hf', {}, pathlib.Path())\n"
        "print(sorted({'torch', 'transformers', 'openai', 'anthropic'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def suites() -> Iterator[type[ProviderSuite]]:
    """Yield the test classes of this folder that run the conformance suite."""
    here = Path(__file__).parent
    for path in sorted(here.rglob("test_*.py")):
        if "(ProviderSuite)" in path.read_text(encoding="utf-8"):
            parts = path.relative_to(here.parents[1]).with_suffix("").parts
            for found in vars(import_module(".".join(parts))).values():
                if isinstance(found, type) and issubclass(found, ProviderSuite):
                    yield found


def test_every_registered_provider_passes_the_conformance_suite() -> None:
    tried = {adapter for suite in suites() for adapter in getattr(suite, "adapters", ())}
    assert tried == set(ADAPTERS.built_in)
