"""Score a reply by a list of checks: those of the study, and those of each example's own row.

A check is a mapping whose one key that names a scorer of the catalogue says what is checked, and
by what: ``{contains: Paris}``, ``{rubric: Is it polite?}``. All other keys are options of that
scorer, besides those of ``CheckOptions``. The value is the right answer, or the option that the
scorer names in ``check_option`` (a pattern, a schema, a rubric). A name alone, ``exact``, checks
against the example's own target.

Any scorer is a check, ``checks`` itself among them, so that there is no second table of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from bestarm_agent.config.datasets import target_of
from bestarm_agent.config.fields import as_json
from bestarm_agent.config.file_errors import BrokenRule, OptionsError, keys_of, parse_options
from bestarm_agent.config.value_types import Name
from bestarm_agent.config.yaml import YamlProblem, parse_yaml
from bestarm_agent.domain.values import Example, Json, Reply, Score, Vote, canonical, digest
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError, nearest
from bestarm_agent.judges.base import (
    Calls,
    Judge,
    JudgeOptions,
    JudgeSetup,
    candidate_failed,
    refuse_declined,
)
from bestarm_agent.judges.groups import Group, Result
from bestarm_agent.judges.model import ModelName

_MOST_NAMES = 50  # each is a column of every answer
_WIDTH = 40  # characters of a value in a name


class CheckOptions(BaseModel):
    """Options of a check, beside its scorer and that scorer's options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # the name under which it is counted; default: its scorer's, after "not " for a negated check
    name: Name | None = None
    weight: float = Field(1.0, ge=0, allow_inf_nan=False)  # 0: measured, but no part of the score
    not_: bool = Field(False, alias="not")  # whether it passes where its scorer says 0
    # scores from here on are 1, and others 0; None: the score as it is
    at_least: float | None = Field(None, gt=0, le=1)


class ChecksOptions(JudgeOptions):
    """Options of ``checks``."""

    checks: tuple[JsonValue, ...] = ()  # of every example
    field: str | None = Field(None, min_length=1)  # the field of an example with its own checks
    all: bool = False  # whether the lowest score of a check counts, instead of the weighted mean
    model: ModelName | None = None  # of checks that ask a model and name none

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if not self.checks and self.field is None:
            raise ValueError("give `checks`, a `field` of the examples that holds checks, or both")
        return self


@dataclass(frozen=True, slots=True)
class Check:
    """A check that was read: its scorer, and what it compares with."""

    judge: Judge
    options: CheckOptions
    name: str
    written: str  # its value, for people
    reference: str | tuple[str, ...] | None  # None: that of the example

    def value(self, result: Result) -> float | None:
        """Return its score in [0, 1], or None where its judge failed.

        A reply in which the scorer finds nothing to read has not passed, so it has passed ``not``.
        """
        # `not` must not turn the failure of a judge into a pass: what was not judged has no value.
        if isinstance(result, JudgeError) and result.blame is Blame.JUDGE:
            return None
        score = result.value if isinstance(result, Score) else 0.0
        if self.options.at_least is not None:
            score = float(score >= self.options.at_least)
        return 1.0 - score if self.options.not_ else score

    def vote(self, result: Result, value: float) -> Vote:
        """Return the check's result as it is kept with the score, for people."""
        if isinstance(result, JudgeError):
            why = str(result)
        else:
            why = "; ".join(f"{vote.said} {vote.why}".strip() for vote in result.votes)
        verdict = "passed" if value == 1 else "failed" if value == 0 else f"{value:.2g}"
        return Vote(self.name, value, f"{verdict} {self.written}".strip(), why)


class ChecksJudge(Group[ChecksOptions]):
    """Scores a reply by checks: their weighted mean, or the lowest of them.

    A refused or empty reply is the candidate's failure. Where a check that counts asks a model
    which fails, the judge has failed. ``measures`` are the scores of the checks by name; of checks
    that have the same name in one example, their mean.

    The checks of an example are read, with their errors, when it is checked: before that, the
    models and the names that only stand in rows are not known.
    """

    adapter = "checks"
    options_type = ChecksOptions
    check_option = "checks"

    def __init__(self, name: str, options: ChecksOptions, setup: JudgeSetup) -> None:
        self.options, self._setup = options, setup
        self._named = cache(setup.named)
        self._judges: dict[str, Judge] = {}  # by name and options: rows share them
        # Rows with equal checks are read once; their judges are shared too, so that a rubric on a
        # thousand rows is one judge with one cache of replies.
        self._of_rows: dict[str, list[Check]] = {}  # by the field's value
        self._names: dict[str, None] = {}  # in the order in which they were met
        self._of_all = self._checks_in(list(options.checks), is_own=False)
        members = [*self._judges.values()]
        super().__init__(name, options, members, given=options.model_dump(mode="json"))

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], setup: JudgeSetup) -> Self:
        """Validate the options and build the study's checks; raises ConfigError."""
        return cls(name, setup.parse(ChecksOptions, options), setup)

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the checks that were read so far."""
        return tuple(self._names)

    def check(self, example: Example) -> None:
        """Read the checks of an example, and check them; raises ConfigError."""
        for number, (judge, own) in enumerate(self._asked(example), 1):
            try:
                judge.check(own)
            except ConfigError as error:
                raise ConfigError(f"check {number} of example `{example.id}`: {error}") from None

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Check one reply; every check is asked, so that all are known."""
        refuse_declined(reply)
        if not reply.said.strip() and not reply.tool_calls:
            raise candidate_failed("an empty reply", FailureKind.UNPARSABLE)
        checks = self._checks(example)
        results = await self._results(self._asked(example), reply, calls)
        votes, counted, weights = [], [], []
        by_name: dict[str, list[float]] = {}
        for check, result in zip(checks, results, strict=True):
            value, weight = check.value(result), check.options.weight
            # Only a check that counts may make the pair fail. One of weight 0 was asked for
            # people's eyes.
            if value is None:
                if weight and isinstance(result, JudgeError):
                    raise result
                continue
            votes.append(check.vote(result, value))
            by_name.setdefault(check.name, []).append(value)
            if weight:
                counted.append(value)
                weights.append(weight)
        # Rounding may put a weighted mean just above 1, and a score is at most 1.
        value = min(counted) if self.options.all else min(1.0, fmean(counted, weights))
        measures = [fmean(by_name[key]) if key in by_name else None for key in self._names]
        return Score(value, votes=tuple(votes), measures=tuple(measures))

    def _asked(self, example: Example) -> list[tuple[Judge, Example]]:
        inputs = {k: v for k, v in example.inputs.items() if k != self.options.field}
        return [
            (
                check.judge,
                replace(
                    example,
                    inputs=inputs,  # judges who ask a model show them all
                    reference=example.reference if check.reference is None else check.reference,
                ),
            )
            for check in self._checks(example)
        ]

    def _checks(self, example: Example) -> list[Check]:
        """Return the checks of an example, the study's first; raises ConfigError."""
        field, own = self.options.field, list[Check]()
        if field is not None:
            if field not in example.inputs:
                raise ConfigError(
                    f"example `{example.id}` has no field `{field}`, where `{self.name}` looks for "
                    f"its checks; {nearest(field, example.inputs)}; write `[]` where it has none"
                )
            key = canonical(example.inputs[field])
            if key not in self._of_rows:
                try:
                    read = self._checks_in(_listed(example.inputs[field]), is_own=True)
                except ConfigError as error:
                    raise ConfigError(f"example `{example.id}`, `{field}`: {error}") from None
                self._of_rows[key] = read
                # Judges are only ever appended, so those behind the known members are the ones of
                # this row.
                new = [*self._judges.values()][len(self.members) :]
                self.members = (*self.members, *new)
                # scores do not mix either where a scorer that only rows name has changed
                self.digest = digest([self.digest, *(judge.digest for judge in new)])
            own = self._of_rows[key]
        checks = [*self._of_all, *own]
        if not any(check.options.weight for check in checks):
            raise ConfigError(
                f"example `{example.id}` has no check that counts; give it one"
                + (f" in its field `{field}`, or one to all in `checks`" if field else "")
            )
        return checks

    def _checks_in(self, written: Sequence[Json], *, is_own: bool) -> list[Check]:
        """Read a list of checks; raises OptionsError with the number of the wrong one."""
        # Errors carry the index of the check, from which the study's reader finds the line. A row
        # has no lines of the study, so its error names no subject and the caller puts the example
        # before it.
        checks = []
        for i, entry in enumerate(written):
            try:
                checks.append(self._read_check(entry))
            except ConfigError as error:
                message = f"check {i + 1}: {error}"
                subject = "" if is_own else self._setup.subject
                raise OptionsError(subject, [BrokenRule(("checks", i), message)]) from None
        if not is_own:  # which of several rubrics failed is told by their names
            names = [check.name for check in checks]
            for i, check in enumerate(checks):
                if names.count(check.name) > 1 and check.options.name is None:
                    checks[i] = replace(check, name=f"{check.name} {check.written}".strip())
        self._names |= dict.fromkeys(check.name for check in checks)
        if len(self._names) > _MOST_NAMES:
            some = ", ".join([*self._names][:3])
            raise ConfigError(
                f"checks have more than {_MOST_NAMES} names ({some}, ...); "
                "give those that ask the same one `name`"
            )
        return checks

    def _read_check(self, written: Json) -> Check:
        given: dict[str, Any] = {written: None} if isinstance(written, str) else {}
        if isinstance(written, Mapping):
            given = dict(written)
        scorers = [key for key in given if key not in _KEYS and self._named(key) is not None]
        # a table of rows with unlike checks writes null where another row has a value
        if valued := [key for key in scorers if given[key] is not None]:
            given = {key: given[key] for key in given if key in valued or key not in scorers}
            scorers = valued
        if len(scorers) != 1:
            unknown = [key for key in given if key not in _KEYS and self._named(key) is None]
            if not scorers and unknown:
                self._setup.judge(unknown[0], {})  # says which names there are
            raise ConfigError(
                f"names {' and '.join(f'`{key}`' for key in scorers) or 'no scorer'}; a check has "
                f"one, with what it compares with: {{contains: Paris}}; got {as_json(written)}"
            )
        # What is left after the scorer and the keys of every check is options of the scorer, which
        # it checks itself. A value goes to the option that the scorer names for it, unless the
        # catalogue's entry has set that option already: then, and for scorers without one, it is
        # the right answer.
        scorer, value = scorers[0], given.pop(scorers[0])
        own = {key: given.pop(key) for key in _KEYS & given.keys() if given[key] is not None}
        options = parse_options(CheckOptions, own, subject=f"`{scorer}`")
        if named := self._named(scorer):
            adapter, preset = named
            if "model" in adapter.options_type.model_fields and self.options.model is not None:
                given.setdefault("model", self.options.model)
            option = adapter.check_option if adapter.check_option not in preset else ""
            if option and value is not None:
                given[option], reference = value, None
            else:
                reference = None if value is None else target_of(value, f"`{scorer}`")
        key = canonical([scorer, given])
        if key not in self._judges:
            self._judges[key] = self._setup.judge(scorer, given)
        name = options.name or ("not " if options.not_ else "") + scorer
        value_text = "" if value is None else as_json(value, width=_WIDTH)
        return Check(self._judges[key], options, name, value_text, reference)


_KEYS = frozenset(keys_of(CheckOptions))


def _listed(value: Json) -> list[Json]:
    """Return the checks in a field of a row; a table's cell holds them as YAML or JSON."""
    if isinstance(value, str):
        try:
            value = parse_yaml(value)[0]
        except YamlProblem as problem:
            raise ConfigError(f"malformed YAML: {problem}") from None
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
