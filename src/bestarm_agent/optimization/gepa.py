"""GEPA (Agrawal et al. 2025) as the proposer `gepa` of ``bestarm-agent optimize``.

Its reflection writes new instructions, and the study's rule decides what is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from bestarm_agent.domain.values import Json, Message, PromptTemplate
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.groups import gather_all
from bestarm_agent.optimization.rounds import Feedback
from bestarm_agent.plugins import optional
from bestarm_agent.store.export import PairOutcome, verdicts

_MINIBATCH = 3  # answers that one reflection looks at: GEPA's default
# What stands before the first tag of a template, or between tags that say it is no template:
# "Add. " of "Add. {{ a }} + {{ b }}", and "Write {{x}}." of "{% raw %}Write {{x}}.{% endraw %}...",
# which is how an instruction of an earlier round is written that looks like a template itself.
_HEAD = re.compile(r"\{%-? raw -?%\}(?P<raw>.*?)\{%-? endraw -?%\}|(?:(?!\{[{%#]).)*", re.DOTALL)

Build: TypeAlias = Callable[[str, str], PromptTemplate]  # of a prompt's name and an instruction


async def propose(feedback: Feedback) -> list[PromptTemplate]:
    """Return prompts that GEPA's reflection writes, one for each three wrong answers."""
    signature = _signature()
    instruction, build = split(feedback.leader.candidate.prompt)
    batches = [
        feedback.wrong[i : i + _MINIBATCH] for i in range(0, len(feedback.wrong), _MINIBATCH)
    ]
    prompts = [
        signature.prompt_renderer(
            {
                "current_instruction_doc": instruction,
                "dataset_with_feedback": [*map(_record, batch)],
            }
        )
        for batch in batches
    ]
    replies = await gather_all([feedback.ask(prompt) for prompt in prompts])
    texts = [signature.output_extractor(reply.strip())["new_instruction"] for reply in replies]
    new = dict.fromkeys(text for text in texts if text.strip() and text != instruction)
    return [build(f"round{feedback.round}-{i}", text) for i, text in enumerate(new, start=1)]


def split(prompt: PromptTemplate) -> tuple[str, Build]:
    """Return the instruction of a prompt, and what makes a prompt of another instruction.

    It is the system message if that has no fields of an example, else the text before the first
    field; "" if there is none.

    Example:
        >>> instruction, build = split(PromptTemplate("p", "Add. {{ a }} + {{ b }} ="))
        >>> instruction, build("q", "Add up:").text
        ('Add.', 'Add up: {{ a }} + {{ b }} =')
    """
    messages = prompt.messages
    if prompt.text is not None:
        head, rest = _head(prompt.text)
        # a prompt without any instruction gets one as a paragraph of its own
        gap = rest[: len(rest) - len(rest.lstrip())] or "\n\n"
        body = gap + rest.lstrip()
        return head, lambda name, new: replace(prompt, name=name, text=_as_template(new) + body)
    others, instruction = messages, ""
    if messages[0].role == "system" and not (parts := _head(messages[0].text))[1]:
        instruction, others = parts[0], messages[1:]
    return instruction, lambda name, new: replace(
        prompt, name=name, messages=(Message("system", _as_template(new)), *others)
    )


def _record(pair: PairOutcome) -> dict[str, Json]:
    """Return an answer in the form that GEPA's reflection reads."""
    scored = f"The answer scores {pair.score:g} of 1." if pair.score is not None else "No score."
    right = f" Right would be: {pair.target}." if pair.target else ""
    why = verdicts(pair.votes) or pair.message
    return {
        "Inputs": dict(pair.inputs),
        "Generated Outputs": pair.reply or "",
        "Feedback": f"{scored}{right}{f' {why}' if why else ''}",
    }


def _head(text: str) -> tuple[str, str]:
    """Return the text before the first tag of a template, and the rest."""
    match = _HEAD.match(text)
    assert match is not None  # it may be empty
    head = match["raw"] if match["raw"] is not None else match[0]
    end = match.end() if match["raw"] is not None else len(head.rstrip())
    return head.rstrip(), text[end:]


def _as_template(text: str) -> str:
    """Return a template that renders as a text, also where that looks like a template."""
    if not re.search(r"\{[{%#]", text):
        return text
    if "endraw" in text:
        raise ConfigError("a proposed instruction holds `endraw`, which no template can")
    return "{% raw %}" + text + "{% endraw %}"


def _signature() -> Any:  # noqa: ANN401 - gepa is an extra
    """Return what makes GEPA's reflection prompts and reads their answers."""
    module = optional("gepa.strategies.instruction_proposal", "gepa", "the proposer gepa")
    return module.InstructionProposalSignature
