"""The rule that compares the calls of tools in a reply with those that are right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import Field, JsonValue
from scipy.optimize import linear_sum_assignment

from bestarm_agent.config.conversations import FunctionCall, numbered
from bestarm_agent.config.file_errors import parse_row
from bestarm_agent.config.input_specs import ScorerSpec
from bestarm_agent.config.value_types import tidy
from bestarm_agent.domain.values import (
    Example,
    Json,
    Reply,
    Score,
    arguments_of,
    calls_text,
    canonical,
)
from bestarm_agent.errors import Blame, ConfigError, JudgeError
from bestarm_agent.judges.base import (
    Calls,
    Judge,
    JudgeOptions,
    JudgeSetup,
    excerpt,
    references,
    refuse_declined,
)
from bestarm_agent.judges.rule import RuleJudge

_NONE = "none"  # the target where no call is right


class ToolCallOptions(JudgeOptions):
    """Options of ``tool-call``."""

    arguments: Literal["exact", "subset"] = "exact"  # subset: there may be more than the target's
    ordered: bool = False  # whether several calls must come in the target's order
    fields: dict[str, ScorerSpec] = Field(default_factory=dict)  # rules for single arguments


class ToolCallJudge(Judge[ToolCallOptions]):
    """Scores 1 if a reply calls the tools that the target calls, and no others.

    A target is a call, ``{"name": ..., "arguments": {...}}``, a list of calls, or ``none``. With
    rules that give less than 1 the worst argument counts. Whatever text stands beside the calls is
    not read, and a call that is written as text is none.
    """

    adapter = "tool-call"
    options_type = ToolCallOptions
    needs_reference = True

    def __init__(
        self, name: str, options: ToolCallOptions, rules: Mapping[str, RuleJudge[Any, Any]]
    ) -> None:
        super().__init__(name, options)
        self._rules = rules
        digests = {field: rule.digest for field, rule in rules.items()}
        self.digest = self._digest(options=[options.arguments, options.ordered], fields=digests)

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], setup: JudgeSetup) -> Self:
        """Validate the options and build the rules; raises ConfigError."""
        parsed = setup.parse(ToolCallOptions, options)
        rules: dict[str, Any] = {}
        for field, spec in parsed.fields.items():
            rules[field] = setup.judge(spec.name, spec.options)
            if not isinstance(rules[field], RuleJudge):
                raise ConfigError(f"{setup.subject}: `fields.{field}` must be a rule")
        return cls(name, parsed, rules)

    def check(self, example: Example) -> None:
        """Raise ConfigError if a target is no call, or a rule cannot compare with an argument."""
        super().check(example)
        for reference in references(example):
            try:
                calls = _calls_in(reference)
            except (ConfigError, ValueError) as error:
                raise ConfigError(
                    f"example `{example.id}`: judge `{self.name}` cannot read the target "
                    f'{excerpt(reference)!r}: {error}; write {{"name": ..., "arguments": {{...}}}},'
                    f" a list of these, or `{_NONE}` where no call is right"
                ) from None
            for name, wanted in (pair for call in calls for pair in call.arguments.items()):
                if name in self._rules:
                    self._rules[name].check(_about(example, wanted))

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score the calls of one reply; raises JudgeError, blame CANDIDATE, if it was refused."""
        refuse_declined(reply)
        made: list[Any] = [call["function"] for call in reply.tool_calls]
        targets = map(_calls_in, references(example))
        value = max(self._agreement(example, target, made) for target in targets)
        return Score(value, answer=excerpt(calls_text(reply.tool_calls) or _NONE))

    def _agreement(
        self, example: Example, target: Sequence[FunctionCall], made: Sequence[Mapping[str, Any]]
    ) -> float:
        if len(target) != len(made):
            return 0.0
        # Calls in any order: each target is paired with one call so that the sum of likenesses is
        # greatest (the assignment problem), and then the worst pair counts.
        values = [[self._likeness(example, right, call) for call in made] for right in target]
        order: Iterable[int] = range(len(target))
        if not self.options.ordered and values:
            order = linear_sum_assignment(values, maximize=True)[1].tolist()
        return min((row[j] for row, j in zip(values, order, strict=True)), default=1.0)

    def _likeness(self, example: Example, right: FunctionCall, made: Mapping[str, Any]) -> float:
        wanted, given = right.arguments, made["arguments"]
        if right.name != made["name"] or not isinstance(given, dict):
            return 0.0
        further = given.keys() - wanted.keys()
        if wanted.keys() - given.keys() or (further and self.options.arguments == "exact"):
            return 0.0
        return min(
            (self._worth(example, name, wanted[name], given[name]) for name in wanted), default=1.0
        )

    def _worth(self, example: Example, name: str, wanted: JsonValue, given: JsonValue) -> float:
        if name not in self._rules:
            return float(canonical(tidy(wanted)) == canonical(tidy(given)))
        try:
            return self._rules[name].scored(_about(example, wanted), Reply(_text(given))).value
        except JudgeError as error:
            if error.blame is Blame.CANDIDATE:
                return 0.0
            raise


def _calls_in(target: str) -> list[FunctionCall]:
    """Return the calls of a target; raises ValueError or ConfigError if it holds none."""
    given = [] if target.strip() == _NONE else arguments_of(target)
    calls = numbered(given if isinstance(given, list) else [given])
    return [parse_row(FunctionCall, call.get("function", call), f"call {n}") for n, call in calls]


def _about(example: Example, wanted: JsonValue) -> Example:
    """Return an example whose reference is an argument; of a list, any is right."""
    # Rules compare texts. An argument that is a list means alternatives, as a list of targets does.
    texts = tuple(map(_text, wanted)) if isinstance(wanted, list) else _text(wanted)
    return replace(example, reference=texts)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical(value)
