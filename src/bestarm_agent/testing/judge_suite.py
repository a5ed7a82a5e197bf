"""Conformance suite of judges: a pytest class to inherit.

::

    from bestarm_agent.testing import JudgeCase, JudgeSuite

    class TestMyJudge(JudgeSuite):
        @pytest.fixture
        def case(self) -> JudgeCase:
            return JudgeCase(build=lambda: MyJudge(...), example=..., scored=[...])
"""
# ruff: noqa: D102 - what a test checks is its name

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.values import Example, Reply, Score
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.base import Judge, JudgeCall


@dataclass(frozen=True, slots=True)
class JudgeCase:
    """A judge, and what to try it with."""

    build: Callable[[], Judge]  # makes the judge, each time the same
    example: Example  # one whose replies it can score
    scored: Sequence[tuple[Reply, float]]  # scores in [0, 1], at least two that differ
    failing: Sequence[Reply] = ()  # on which the candidate itself failed (blank, refused)
    unusable: Sequence[Example] = ()  # to be refused before any call is paid for
    answer: Callable[[JudgeCall], Reply] | None = None  # answers calls; alike for the same call


@dataclass(slots=True)
class _Calls:
    answer: Callable[[JudgeCall], Reply] | None
    made: list[JudgeCall] = field(default_factory=list)

    async def ask(self, call: JudgeCall) -> Reply:
        self.made.append(call)
        # As a real call does, it lets others run: a judge that is not safe against that must fail
        # here.
        await asyncio.sleep(0)
        assert self.answer is not None, f"the case has no `answer`, and {call.model} was called"
        return self.answer(call)


def _failing(call: JudgeCall) -> Reply:
    raise JudgeError("no answer", kind=FailureKind.JUDGE_FAILED, blame=Blame.JUDGE)


class JudgeSuite:
    """Conformance tests of ``Judge``; a subclass in a test module gives the fixture ``case``."""

    @pytest.fixture
    def case(self) -> JudgeCase:
        """The judge under test."""
        raise NotImplementedError("a subclass of JudgeSuite must define the fixture `case`")

    def test_has_a_name_and_a_stable_digest(self, case: JudgeCase) -> None:
        first, second = case.build(), case.build()
        assert first.name
        assert first.digest
        assert first.digest == second.digest

    def test_scores_as_expected(self, case: JudgeCase) -> None:
        judge = case.build()
        assert len({expected for _, expected in case.scored}) >= 2, "give scores that differ"
        for reply, expected in case.scored:
            score = _score(case, judge, reply)
            assert score.value == pytest.approx(expected), reply
            assert all(0 <= value <= 1 for value in (score.value, *(v.value for v in score.votes)))

    def test_a_score_depends_on_the_reply_alone(self, case: JudgeCase) -> None:
        judge = case.build()
        replies = [reply for reply, _ in case.scored]
        apart = [_score(case, judge, reply) for reply in replies]
        calls = _Calls(case.answer)
        # At once and repeatedly: a judge that keeps something from one reply to the next would
        # differ.
        scores = together(judge.score(case.example, reply, calls) for reply in replies * 3)
        assert asyncio.run(scores) == apart * 3

    def test_a_failure_of_the_candidate_is_blamed_on_it(self, case: JudgeCase) -> None:
        for reply in case.failing:
            with pytest.raises(JudgeError) as caught:
                _score(case, case.build(), reply)
            assert caught.value.blame is Blame.CANDIDATE
            assert str(caught.value).strip()

    def test_unusable_examples_are_refused_by_name(self, case: JudgeCase) -> None:
        judge = case.build()
        judge.check(case.example)
        lacking = [replace(case.example, reference=None)] if judge.needs_reference else []
        for example in (*case.unusable, *lacking):
            with pytest.raises(ConfigError) as caught:
                judge.check(example)
            assert example.id in str(caught.value)

    def test_calls_are_announced_before_they_are_made(self, case: JudgeCase) -> None:
        judge = case.build()
        announced = judge.longest_calls(case.example)
        models = {model.key for model in judge.models}
        assert {call.model.key for call in announced} == models, "every model has a longest call"
        # Budgets reserve the announced calls, so one that was not announced could pass a cap.
        known = {(call.model.key, call.request.example) for call in announced}
        for reply, _ in case.scored:
            calls = _Calls(case.answer)
            asyncio.run(judge.score(case.example, reply, calls))
            assert {(call.model.key, call.request.example) for call in calls.made} <= known

    def test_a_call_that_fails_is_the_judges_failure(self, case: JudgeCase) -> None:
        judge = case.build()
        for reply, _ in case.scored if judge.models else ():
            with pytest.raises(JudgeError) as caught:
                asyncio.run(judge.score(case.example, reply, _Calls(_failing)))
            assert caught.value.blame is Blame.JUDGE


def _score(case: JudgeCase, judge: Judge, reply: Reply) -> Score:
    return asyncio.run(judge.score(case.example, reply, _Calls(case.answer)))
