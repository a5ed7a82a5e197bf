"""Score 1 if a reply passes the assertions of its own test, as promptfoo combines them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Self

from pydantic import Field, JsonValue, ValidationError

from bestarm_agent.config.user_functions import load_program
from bestarm_agent.domain.digest import Json, canonical
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import RIGHT, Score, Vote
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import Blame, ConfigError, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall
from bestarm_agent.judges.base_judge import BaseJudge, JudgeOptions, JudgeSetup, check_example
from bestarm_agent.judges.ensemble import MemberOptions
from bestarm_agent.judges.member_calls import longest_calls_of, models_of, score_all
from bestarm_agent.judges.rules.assertion_checks import CHECKS, check_value, json_objects
from bestarm_agent.judges.rules.assertion_grades import Assertion, Grade, metric_votes
from bestarm_agent.judges.rules.base import judge_failed, references
from bestarm_agent.judges.rules.python import call_program

_KNOWN = frozenset({*CHECKS, "cost", "latency", "python"})
_SHOWN = 200


class AssertionsOptions(JudgeOptions):
    """Options of ``assertions``."""

    # judges that assertions name; each scores a reply with the assertion's value as the reference
    members: dict[str, MemberOptions] = Field(default_factory=dict)
    # ``module:function`` of ``python`` assertions, called with the reply's text and
    # {"vars": the example's fields}
    functions: tuple[str, ...] = ()


class _Against:
    """Scores replies by a judge, with a reference of its own."""

    def __init__(self, judge: Judge, reference: JsonValue) -> None:
        self._judge = judge
        self._reference = (
            tuple(map(str, reference)) if isinstance(reference, list) else str(reference)
        )
        self.name, self.digest, self.models = judge.name, judge.digest, judge.models
        self.needs_reference = False

    def _own(self, example: Example) -> Example:
        return Example(example.id, example.inputs, self._reference)

    def check(self, example: Example) -> None:
        check_example(self._judge, self._own(example))

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        return self._judge.longest_calls(self._own(example))

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        return await self._judge.score(self._own(example), reply, calls)


class AssertionsJudge(BaseJudge[AssertionsOptions]):
    """Scores 1 if the reply passes the test that the example's reference holds, as JSON, else 0.

    A refused or blank reply is checked like any other. Where a member blames the candidate, or a
    function raises, the assertion fails.
    """

    adapter = "assertions"
    options_type = AssertionsOptions
    needs_reference = True

    def __init__(self, name: str, options: AssertionsOptions, setup: JudgeSetup) -> None:
        super().__init__(name, options)
        self._members = {
            key: setup.judge(one.name, one.options) for key, one in options.members.items()
        }
        self._kinds = {key: one.name for key, one in options.members.items()}
        self._programs = {each: load_program(each, setup.base_dir) for each in options.functions}
        self._schema_judge = lru_cache(maxsize=None)(
            lambda schema: setup.judge(
                "json-schema", {"json_schema": json.loads(schema), "fences": False}
            )
        )
        self._parsed = lru_cache(maxsize=None)(Assertion.model_validate_json)
        self.models = models_of(list(self._members.values()))
        self.digest = self._digest(
            members={key: judge.digest for key, judge in self._members.items()},
            functions={key: program.digest for key, program in self._programs.items()},
        )

    @classmethod
    def create(cls, name: str, options: Mapping[str, Json], setup: JudgeSetup) -> Self:
        """Validate the options, build the members and import the functions; raises ConfigError."""
        return cls(name, setup.parse(AssertionsOptions, options), setup)

    def check(self, example: Example) -> None:
        """Check that the reference is a test that can be run; raises ConfigError."""
        super().check(example)
        where = f"example `{example.id}`: judge `{self.name}`"
        try:
            for one in self._test(example).leaves:
                self._check_assertion(one)
        except ValidationError as error:
            first = error.errors()[0]
            wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            raise ConfigError(f"{where} needs a test as the reference: {wrong}") from None
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        for judge in self._judges(example):
            judge.check(example)

    def _check_assertion(self, one: Assertion) -> None:
        if one.judge is not None:
            if one.judge not in self._members:
                raise ConfigError(f"there is no member {one.judge!r}; name it in `members`")
        elif one.check not in _KNOWN:
            raise ConfigError(f"there is no assertion {one.type!r}")
        elif one.check == "python" and str(one.value) not in self._programs:
            raise ConfigError(f"there is no function {one.value!r}; name it in `functions`")
        elif _has_schema(one):
            self._schema_judge(canonical(one.value))
        else:
            check_value(one.check, one.value)

    def reads_cost(self, example: Example) -> bool:
        """Return whether the example has an assertion `cost`."""
        return any(one.check == "cost" for one in self._test(example).leaves)

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls of the example's assertions, and one of every member without any.

        So the cost that a plan states, by one example, is an upper bound.
        """
        named = {one.judge for one in self._test(example).leaves}
        reference = references(example)[0]
        others = [_Against(m, reference) for key, m in self._members.items() if key not in named]
        return longest_calls_of([*self._judges(example), *others], example)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Return 1 or 0; every assertion is a vote, then every metric with its weighted mean."""
        test = self._test(example)
        judged = iter(await score_all(self._judges(example), example, reply, calls))
        grades = []
        for one in test.leaves:
            if one.judge is not None:
                grades.append(one.grade(_score_of(next(judged), self._kinds[one.judge])))
            elif one.check == "python":
                grades.append(await self._by_function(one, example, reply))
            elif _has_schema(one):
                grades.append(one.grade(await self._follows_schema(one, example, reply, calls)))
            else:
                grades.append(one.grade(_found(one, reply)))
        votes = [_vote(one, *grade) for one, grade in zip(test.leaves, grades, strict=True)]
        whole = test.combined(iter(grades))
        return Score(float(whole.passes), votes=(*votes, *metric_votes(whole)))

    def _test(self, example: Example) -> Assertion:
        return self._parsed(references(example)[0])

    def _judges(self, example: Example) -> list[_Against]:
        leaves = self._test(example).leaves
        return [_Against(self._members[one.judge], one.value) for one in leaves if one.judge]

    async def _follows_schema(
        self, one: Assertion, example: Example, reply: Reply, calls: Calls
    ) -> bool:
        """Return whether the reply, or an object in it, is JSON that follows a schema."""
        texts = [reply.text]
        if one.check == "contains-json":
            texts = [canonical(found) for found in json_objects(reply.text)]
        judge = self._schema_judge(canonical(one.value))
        results = [await score_all([judge], example, Reply(text), calls) for text in texts]
        return any(isinstance(result, Score) and result.value for (result,) in results)

    async def _by_function(self, one: Assertion, example: Example, reply: Reply) -> Grade:
        program = self._programs[str(one.value)]
        try:
            found = await call_program(program, reply.text, {"vars": dict(example.inputs)})
        except JudgeError:  # as in promptfoo, where a function may raise to say no
            return one.grade(None)
        return _graded(one, found)


def _has_schema(one: Assertion) -> bool:
    return one.check in ("is-json", "contains-json") and isinstance(one.value, dict)


def _score_of(result: Score | JudgeError, judge: str) -> float | Grade | None:
    """Return what a member found; None if it blames the candidate."""
    if isinstance(result, Score):
        if judge != "llm-rubric":
            return result.value
        passes, score = (vote.value for vote in result.votes)  # in the order of its criteria
        return score, passes >= RIGHT
    if result.blame is Blame.CANDIDATE:
        return None
    raise result


def _found(one: Assertion, reply: Reply) -> bool:
    """Return whether a check that needs no other judge finds what it looks for."""
    most = math.inf if one.threshold is None else one.threshold
    if one.check == "latency":
        return reply.seconds * 1000 <= most
    if one.check == "cost":
        if reply.usd_nanos is None:
            raise judge_failed("assertion `cost`: the model has no known price; set its `price`")
        return reply.usd_nanos / 1e9 <= most
    return CHECKS[one.check](reply.text, one.value)


def _graded(one: Assertion, found: Any) -> Grade:  # noqa: ANN401 - a function may return anything
    """Read what a function returns: a bool, a number, or a mapping with `pass` and `score`.

    A number passes if it is positive, or at least the threshold (promptfoo's
    `normalizeScriptResult`).
    """
    if isinstance(found, bool):
        return one.grade(found)
    score, passes = found, True
    if isinstance(found, Mapping):
        score, passes = found.get("score"), bool(found.get("pass", found.get("pass_")))
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise judge_failed(
            f"function `{one.value}` must return a bool, a number or a mapping with `pass` and "
            f"`score`, got {found!r:.60}"
        )
    if one.threshold is not None:
        passes = passes and score >= one.threshold
    elif found is score:
        passes = score > 0
    return float(score), one.grade(passes)[1]


def _vote(one: Assertion, score: float, passes: bool) -> Vote:
    shown = one.value if isinstance(one.value, str) else canonical(one.value)
    return Vote(
        by=one.type,
        value=min(1.0, max(0.0, score)),
        said="pass" if passes else "fail",
        why="" if one.value is None else shown[:_SHOWN],
    )
