"""Make plug-ins for tests: a folder on the path that looks like an installed distribution."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import invalidate_caches
from pathlib import Path
from textwrap import dedent

import pytest


def install(
    site: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    *,
    entry_points: Mapping[str, Mapping[str, str]],
    files: Mapping[str, str],
    version: str = "1.2",
) -> None:
    """Put a distribution on the path.

    Args:
        site: folder for its files; one folder may hold several distributions.
        monkeypatch: takes the folder off the path again.
        name: of the distribution.
        entry_points: "module:attribute" by name, by group without ``bestarm_agent.``.
        files: content by path.
        version: of the distribution.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, found in entry_points.items()
        for line in (f"[bestarm_agent.{group}]", *(f"{key} = {found[key]}" for key in found))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (info / "top_level.txt").write_text("\n".join({path.split(".")[0] for path in files}))
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(dedent(content))
    monkeypatch.syspath_prepend(site)
    invalidate_caches()
