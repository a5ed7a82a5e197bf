"""Blocks of code in the docs: commands that exist with their options, Python and YAML that parse.

Many blocks are run too, by the tests of their pages.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import click
import pytest
import yaml

from bestarm_agent.cli.main import app
from bestarm_agent.config.load import study_from
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.domain.values import Json
from tests.docs.pages import BLOCK, ROOT

PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "SKILL.md"]
MINIMAL: dict[str, Json] = {
    "models": ["openai/m"],
    "prompts": [{"p": "{{ q }}"}],
    "dataset": "questions.jsonl",
    "scorer": "exact",
}


def blocks(*languages: str) -> list[tuple[str, str]]:
    """Return (page, text) of every block in some languages."""
    return [
        (page.relative_to(ROOT).as_posix(), text)
        for page in PAGES
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        if language in languages
    ]


def page_id(value: str) -> str:
    return value if value.endswith(".md") else ""


def commands() -> Iterator[tuple[str, str]]:
    """Yield (page, line) of every command in a block."""
    for page, text in blocks("", "bash", "console", "text"):
        for line in text.replace("\\\n", " ").splitlines():
            found = re.match(r"(?:\$ )?(?:\S+/bin/)?(bestarm-agent .*)", line)
            if found and "..." not in line and "[" not in line:
                yield page, found[1]


def parse(line: str) -> None:
    """Parse a command line as the application does, without running it."""
    words = shlex.split(line, comments=True)[1:]
    stops = [n for n, word in enumerate(words) if word in ("|", "<", ">", "&&")]
    words = words[: min(stops, default=None)]
    command: click.Command = app
    context = click.Context(command, info_name="bestarm-agent")
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
        context = click.Context(command, parent=context)
    command.parse_args(context, words)


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_a_command_can_be_parsed(page: str, line: str) -> None:
    parse(line)


def test_a_wrong_option_is_found() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse("bestarm-agent select study.yaml --bugdet-usd 5")


@pytest.mark.parametrize(("page", "text"), blocks("python"), ids=page_id)
def test_python_parses(page: str, text: str) -> None:
    compile(text, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize(("page", "text"), blocks("yaml"), ids=page_id)
def test_yaml_is_a_part_of_a_study(page: str, text: str) -> None:
    found = yaml.safe_load(text)
    if isinstance(found, dict) and found.keys() <= StudyConfig.model_fields.keys():
        study_from({**MINIMAL, **found})
