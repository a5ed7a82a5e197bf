"""What axe-core finds wrong with a page, for whoever cannot see it, or uses no mouse."""

from __future__ import annotations

from typing import Any

import pytest

SCREENS = [("light", 1280), ("dark", 380)]  # colours, and the width in pixels
_GRAVE = ("serious", "critical")


def axe_script() -> str:
    """Return axe-core, to be evaluated in a page; skip the test where it is not installed."""
    name = "axe_playwright_python.base"
    package = pytest.importorskip(name, reason="axe-playwright-python is not installed")
    script: str = package.AXE_SCRIPT
    return script


AXE_RUN = "axe.run(document, { resultTypes: ['violations'] })"


def grave(results: dict[str, Any]) -> list[str]:
    """Return what axe-core calls serious or critical: the rule, what it wants, and where."""
    return [
        f"{found['id']}: {found['help']}: {node['target']}"
        for found in results["violations"]
        if found["impact"] in _GRAVE
        for node in found["nodes"]
    ]
