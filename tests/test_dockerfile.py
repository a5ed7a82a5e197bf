"""The Dockerfile copies what the wheel is built from, and nothing that is not there."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    return [
        (line.split()[0], line.split(maxsplit=1)[1])
        for line in lines
        if line and not line.startswith("#")
    ]


def copied() -> set[str]:
    """Sources that are copied from the repository."""
    lines = [shlex.split(rest) for name, rest in instructions() if name == "COPY"]
    return {source for words in lines if words[0] != "--from=build" for source in words[:-1]}


def test_all_that_the_wheel_is_built_from_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        "pyproject.toml",
        project["project"]["readme"],
        *project["project"]["license-files"],
        *(path.split("/")[0] for path in wheel["packages"]),
        *wheel["force-include"],
    }
    assert copied() == needed
    assert all((ROOT / path).exists() for path in copied())


def test_what_is_copied_is_sent_to_the_daemon() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == copied()


def test_the_image_runs_the_command_of_the_wheel_and_not_as_root() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    said = dict(instructions())  # the last of each kind
    [command] = json.loads(said["ENTRYPOINT"])
    assert command in project["project"]["scripts"]
    assert said["USER"] == "bestarm"
    version = said["FROM"].split(":")[1].split("-")[0]
    assert f"Programming Language :: Python :: {version}" in project["project"]["classifiers"]
