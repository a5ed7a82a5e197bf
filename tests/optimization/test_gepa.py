"""GEPA's own reflection as a proposer; gepa itself is the real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bestarm_agent import Message, PromptTemplate
from bestarm_agent.domain.events import Asked, Attempted
from bestarm_agent.domain.values import Json
from bestarm_agent.optimization.gepa import split
from tests.optimization.test_rounds import write_study
from tests.support.commands import invoke
from tests.support.studies import events_of

pytest.importorskip("gepa", reason="needs the extra `gepa`")

# Stands for a model that reads GEPA's prompt, and writes down one operation that went wrong.
REFLECTING = r"""
import re

def reflect(task):
    assert "write a new instruction for the assistant" in task.prompt
    now = task.prompt.split("```")[1].strip()
    missing = re.findall(r"### op\n(\w+)", task.prompt)
    return f"Let me see.\n```\n{now} {missing[-1]} is known. {{{{ braces }}}}\n```"
"""
PROMPTS: list[Json] = [
    {"bare": "Calculate. plus is known.\n{{ a }} {{ op }} {{ b }}?"},
    {"empty": "{{ a }} {{ op }} {{ b }}?"},
]


def gepa_study(folder: Path, **changes: Json) -> Path:
    (folder / "reflecting.py").write_text(REFLECTING)
    return write_study(folder, **{"prompts": PROMPTS, **changes})


def test_reflection_proposes_and_the_rule_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = gepa_study(tmp_path)
    flags = ("--proposer", "gepa", "--proposer-model", "python/reflecting:reflect", "--rounds", "3")
    done = invoke(capsys, "optimize", path, *flags, "--out", "best.txt", "--json", folder=tmp_path)
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    n_asked = sum(isinstance(event, Attempted) and event.seq is None for event in events_of(path))
    assert {line["what"]: line["spend"]["calls"] for line in shown["costs"]}[
        "proposing prompts"
    ] == n_asked
    assert shown["spent"]["answers"] == sum(isinstance(e, Asked) for e in events_of(path)) <= 100
    best = (tmp_path / "best.txt").read_text()
    assert all(f"{op} is known" in best for op in ("plus", "minus", "times"))
    assert best.endswith("{{ a }} {{ op }} {{ b }}?\n")


TALK = (Message("conversation", "{{ talk }}"),)


@pytest.mark.parametrize(
    ("prompt", "instruction", "made"),
    [
        (PromptTemplate("p", "Add.\n{{ a }}"), "Add.", PromptTemplate("q", "New\n{{ a }}")),
        (PromptTemplate("p", "{{ a }}"), "", PromptTemplate("q", "New\n\n{{ a }}")),
        (
            PromptTemplate("p", "{% raw %}{{ x }}{% endraw %} {{ a }}"),
            "{{ x }}",
            PromptTemplate("q", "New {{ a }}"),
        ),
        (
            PromptTemplate("p", messages=(Message("system", "Add."), Message("user", "{{ a }}"))),
            "Add.",
            PromptTemplate("q", messages=(Message("system", "New"), Message("user", "{{ a }}"))),
        ),
        (
            PromptTemplate("p", messages=(Message("user", "{{ a }}"),)),
            "",
            PromptTemplate("q", messages=(Message("system", "New"), Message("user", "{{ a }}"))),
        ),
        (
            PromptTemplate("p", messages=TALK, tools=("{{ t }}",), tool_choice="auto"),
            "",
            PromptTemplate(
                "q",
                messages=(Message("system", "New"), *TALK),
                tools=("{{ t }}",),
                tool_choice="auto",
            ),
        ),
    ],
)
def test_the_instruction_of_a_prompt_is_replaced(
    prompt: PromptTemplate, instruction: str, made: PromptTemplate
) -> None:
    found, build = split(prompt)
    assert (found, build("q", "New")) == (instruction, made)
    again = build("q", "as {{ json }}")
    assert split(again)[0] == "as {{ json }}"
