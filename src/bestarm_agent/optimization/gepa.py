"""GEPA (Agrawal et al. 2025): it proposes prompts for a study, or evaluates its own by one.

``propose`` is the proposer `gepa` of ``bestarm-agent optimize``: GEPA's reflection writes new
instructions, and the study's rule decides what is evaluated. ``Adapter`` is the other way round:
GEPA decides, with the calls, limits, budget, cache and records of a study.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.engine.call import BudgetEndedError
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.pairs import PairFilter, PairOutcome, verdicts
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.groups import gather_all
from bestarm_agent.optimization.rounds import Feedback
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import BoolArray, Choice, Pair, State, Stop
from bestarm_agent.study import Study

COMPONENT = "instruction"  # the part of a prompt that GEPA rewrites
_MINIBATCH = 3  # answers that one reflection looks at: GEPA's default
# what stands before the first tag of a template, or between tags that say it is no template
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
                "dataset_with_feedback": [*map(reflective_record, batch)],
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
        gap = rest[: len(rest) - len(rest.lstrip())] or "\n\n"
        body = gap + rest.lstrip()
        return head, lambda name, new: PromptTemplate(name, _as_template(new) + body)
    others, instruction = messages, ""
    if messages[0].role == "system" and not (found := _head(messages[0].content))[1]:
        instruction, others = found[0], messages[1:]
    return instruction, lambda name, new: PromptTemplate(
        name, messages=(Message("system", _as_template(new)), *others)
    )


def reflective_record(pair: PairOutcome) -> dict[str, Json]:
    """Return an answer as GEPA's reflection is shown it."""
    said = f"The answer scores {pair.score:g} of 1." if pair.score is not None else "No score."
    right = f" Right would be: {pair.target}." if pair.target else ""
    why = verdicts(pair.votes) or pair.message
    return {
        "Inputs": dict(pair.inputs),
        "Generated Outputs": pair.reply or "",
        "Feedback": f"{said}{right}{f' {why}' if why else ''}",
    }


class Adapter:
    """Evaluates GEPA's candidates by a study: its first candidate, with other instructions.

    Every answer is scored by the study's scorer and recorded in its run. What the budget does not
    pay for scores 0, and ``is_spent`` stops GEPA then.

    Args:
        source: as ``Study.open``; its section ``confirm`` is not heeded.
        model: the model that reflects, `provider/model`; None: the candidate's own.
        overrides: as ``Study.open``.

    Example:
        With gepa::

            with Adapter("study.yaml", model="openai/gpt-5.6-sol") as adapter:
                result = gepa.optimize(
                    adapter.seed, adapter.examples, adapter=adapter, reflection_lm=adapter.ask,
                    max_metric_calls=300, stop_callbacks=adapter.is_spent,
                )
                print(adapter.standing())
    """

    propose_new_texts = None  # of GEPA's protocol: it reflects itself

    def __init__(
        self,
        source: str | Path | Mapping[str, Json],
        *,
        model: str | None = None,
        overrides: Mapping[str, Json] | None = None,
    ) -> None:
        self._source, self._model = source, model
        self._overrides = {"confirm": None, "stop": {}, **(overrides or {})}
        self._wanted: deque[Pair] = deque()
        self._asked: Counter[str] = Counter()
        self._lock = Lock()
        self._is_spent = False
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        from anyio.from_thread import start_blocking_portal

        self._portal = self._stack.enter_context(start_blocking_portal())
        opening = Study.open(
            self._source, overrides=self._overrides, selector=_asking(self._wanted)
        )
        self._study = self._stack.enter_context(self._portal.wrap_async_context_manager(opening))
        self._base = self._study.parts.candidates[0]
        instruction, self._build = split(self._base.prompt)
        self.seed = {COMPONENT: instruction}
        self.examples: list[Example] = list(self._study.parts.examples)
        self._places = {example.id: place for place, example in enumerate(self.examples)}
        self._known = {instruction: (0, self._base.id)}  # row and id by instruction
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def evaluate(
        self, batch: Sequence[Example], candidate: Mapping[str, str], capture_traces: bool = False
    ) -> Any:  # noqa: ANN401 - gepa's EvaluationBatch
        """Answer examples with an instruction, and score the answers."""
        from gepa.core.adapter import EvaluationBatch

        found = self._portal.call(self._evaluated, batch, candidate[COMPONENT])
        pairs = [found.get(example.id) for example in batch]
        return EvaluationBatch(
            outputs=[pair.reply if pair else None for pair in pairs],
            scores=[(pair.score if pair else None) or 0.0 for pair in pairs],
            trajectories=pairs if capture_traces else None,
        )

    def make_reflective_dataset(
        self,
        candidate: Mapping[str, str],
        eval_batch: Any,  # noqa: ANN401 - gepa's EvaluationBatch
        components_to_update: Sequence[str],
    ) -> dict[str, list[dict[str, Json]]]:
        """Return what GEPA's reflection is shown."""
        shown = [reflective_record(pair) for pair in eval_batch.trajectories if pair is not None]
        return dict.fromkeys(components_to_update, shown)

    def prompt(self, candidate: Mapping[str, str]) -> PromptTemplate:
        """Return the prompt of a candidate, such as ``best_candidate`` of GEPA's result."""
        return self._build("gepa", candidate[COMPONENT])

    def ask(self, prompt: str) -> str:
        """Ask the model that reflects, for ``reflection_lm``; "" where the budget has ended.

        The n-th of equal prompts is asked again; in another run it comes from the cache.
        """
        base = self._base
        model = self._model or f"{base.provider}/{base.model}"
        with self._lock:  # GEPA and DSPy ask from threads
            attempt = self._asked[prompt]
            self._asked[prompt] += 1
        ask = partial(self._study.proposer.ask, model, prompt, attempt=attempt)
        try:
            return self._portal.call(ask)
        except BudgetEndedError:
            self._is_spent = True
            return ""

    def is_spent(self, state: object = None) -> bool:
        """Return whether the study's budget has ended; for ``stop_callbacks``."""
        return self._is_spent or self.standing().end == End.BUDGET

    def standing(self) -> Standing:
        """Return where the study's run stands: every instruction with its mean so far."""
        return self._portal.call(self._study.standing)

    async def _evaluated(self, batch: Sequence[Example], text: str) -> dict[str, PairOutcome]:
        if text not in self._known:
            row = len(self._study.standing().rows)
            prompt = self._build(f"gepa-{row}", text)
            made = replace(self._base, prompt=prompt, label=prompt.name)
            self._study.add_candidates([made])
            self._known[text] = (row, made.id)
        row, name = self._known[text]
        self._wanted.extend(Pair(row, self._places[example.id]) for example in batch)
        await self._study.run()
        self._wanted.clear()
        only = PairFilter(candidate=name)
        return {pair.example: pair async for pair in self._study.outcomes(only=only)}


def _asking(wanted: deque[Pair]) -> type[Rule]:
    """Return a plan that asks what is wanted, in order."""

    class Wanted(Rule):
        name: ClassVar[str] = "gepa"
        exogenous: ClassVar[bool] = False
        seeks_best: ClassVar[bool] = False

        def choose(self, allowed: BoolArray, rng: np.random.Generator) -> Choice | Stop | None:
            while wanted and self.table.cells[wanted[0]] != State.UNSEEN:
                wanted.popleft()
            if not wanted:
                return Stop.EXHAUSTED
            return Choice(wanted[0], "gepa") if allowed[wanted[0].candidate] else None

    return Wanted


def _head(text: str) -> tuple[str, str]:
    """Return the text before the first tag of a template, and the rest."""
    found = _HEAD.match(text)
    assert found is not None  # it may be empty
    head = found["raw"] if found["raw"] is not None else found[0]
    end = found.end() if found["raw"] is not None else len(head.rstrip())
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
    try:
        from gepa.strategies.instruction_proposal import InstructionProposalSignature
    except ImportError:
        raise ConfigError("GEPA is not installed: pip install 'bestarm-agent[gepa]'") from None
    return InstructionProposalSignature
