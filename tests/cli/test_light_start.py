"""Version, help and completion load none of the heavy packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("sqlalchemy", "numpy", "scipy", "jinja2", "openai", "anthropic", "asyncio")
PROGRAM = """
import json, sys
from bestarm_agent.cli.main import main
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
COMPLETION = {
    "_BESTARM_AGENT_COMPLETE": "bash_complete",
    "COMP_WORDS": "bestarm-agent select --bud",
    "COMP_CWORD": "2",
}


def loaded(*arguments: str, variables: dict[str, str] | None = None) -> tuple[str, set[str]]:
    """Run the command line in a process; return what it printed and the modules it loaded."""
    program = f"import sys; sys.argv[0] = 'bestarm-agent'{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **(variables or {})},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--version",),
        ("--help",),
        *((command, "--help") for command in ("select", "certify", "simulate", "export")),
        ("preselect", "run", "--help"),
    ],
)
def test_version_and_help_load_nothing_heavy(arguments: tuple[str, ...]) -> None:
    printed, modules = loaded(*arguments)
    assert "bestarm-agent" in printed
    assert not modules.intersection(HEAVY)
    assert "rich" not in modules, "panels would double the time"
    assert "pydantic" not in modules
    own = [name for name in modules if name.startswith("bestarm_agent.")]
    assert len(own) < 8, sorted(own)


def test_completion_loads_nothing_heavy() -> None:
    printed, modules = loaded(variables=COMPLETION)
    assert "--budget-usd" in printed
    assert not modules.intersection(HEAVY)
