from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bestarm_agent.config.datasets import answer_digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall, JudgeModel, JudgeOptions
from bestarm_agent.judges.groups import AuditedJudge, MeasuredJudge
from tests.support.no_calls import NoCalls

PLAIN, LABELLED = Example("plain", {}), Example("labelled", {}, reference="guess")
REPLY = Reply("46")


class Said(Judge):
    """A judge that says the same of everything, or fails, and remembers what it was asked."""

    def __init__(self, name: str, said: float | Blame, calls: int = 0) -> None:
        super().__init__(name, JudgeOptions())
        self.digest = name
        self.models = tuple(JudgeModel("p", f"{name}{i}") for i in range(calls))
        self.seen: list[Example] = []
        self._said = said

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        return [JudgeCall(model, Request(model=model.name, text="?")) for model in self.models]

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        self.seen.append(example)
        if isinstance(self._said, Blame):
            raise JudgeError("no", kind=FailureKind.JUDGE_FAILED, blame=self._said)
        return Score(self._said, answer=self.name)


def audited(auto: Judge, trusted: Judge, floor: float = 0.0) -> AuditedJudge:
    label = replace(LABELLED, reference="label")
    return AuditedJudge(auto, trusted, {"labelled": label}, floor=floor)


def scored(judge: Judge, example: Example) -> Score:
    return asyncio.run(judge.score(example, REPLY, NoCalls()))


def test_labelled_examples_are_scored_twice_each_by_its_own_reference() -> None:
    auto, trusted = Said("auto", 0.25), Said("trusted", 1.0)
    judge = audited(auto, trusted)
    assert scored(judge, PLAIN) == Score(0.25, answer="auto")
    assert scored(judge, LABELLED) == Score(0.25, answer="auto", gold=1.0)
    assert [example.reference for example in auto.seen] == [None, "guess"]
    assert [example.reference for example in trusted.seen] == ["label"]


def test_a_reply_that_cannot_be_read_gets_the_floor() -> None:
    unread = Said("auto", Blame.CANDIDATE)
    assert scored(audited(unread, Said("trusted", 1.0), 0.1), LABELLED) == Score(0.1, gold=1.0)
    judge = audited(Said("auto", 0.5), Said("trusted", Blame.CANDIDATE), 0.1)
    assert scored(judge, LABELLED).gold == 0.1


def test_a_trusted_judge_that_fails_says_nothing_and_an_autoevaluator_voids_the_pair() -> None:
    assert scored(audited(Said("a", 0.5), Said("t", Blame.JUDGE)), LABELLED).gold is None
    with pytest.raises(JudgeError):
        scored(audited(Said("a", Blame.JUDGE), Said("t", 1.0)), LABELLED)


def test_calls_are_foreseen_for_both_judges_where_both_will_judge() -> None:
    judge = audited(Said("a", 0.5, calls=2), Said("t", 1.0, calls=1))
    assert len(judge.models) == 3
    assert len(judge.longest_calls(PLAIN)) == 2
    assert len(judge.longest_calls(LABELLED)) == 3


def test_people_have_the_last_word_on_the_replies_that_they_scored() -> None:
    auto, trusted = Said("auto", 0.5), Said("trusted", 1.0)
    label = {"labelled": replace(LABELLED, reference="label")}
    people = {("labelled", answer_digest("46")): 0.25, ("plain", answer_digest("46")): 0.25}
    judge = AuditedJudge(auto, trusted, label, people=people)
    assert scored(judge, LABELLED) == Score(0.5, answer="auto", gold=0.25)
    assert trusted.seen == []
    assert scored(judge, PLAIN).gold is None
    other = asyncio.run(judge.score(LABELLED, Reply("47"), NoCalls()))
    assert other.gold == 1.0


def test_the_digest_tells_audits_apart() -> None:
    auto, trusted = Said("a", 0.5), Said("t", 1.0)
    scores = [{("labelled", "x"): 0.5}, {("labelled", "x"): 1.0}]
    digests = {
        audited(auto, trusted).digest,
        audited(auto, trusted, 0.5).digest,
        audited(trusted, auto).digest,
        AuditedJudge(auto, trusted, {}).digest,
        *(AuditedJudge(auto, trusted, {}, people=given).digest for given in scores),
    }
    assert len(digests) == 6


def test_a_measure_that_fails_is_unknown_and_a_judge_that_fails_fails_the_pair() -> None:
    measures = {"short": Said("short", 1.0), "kind": Said("kind", Blame.JUDGE)}
    judge = MeasuredJudge(Said("auto", 0.5), measures)
    assert scored(judge, PLAIN) == Score(0.5, answer="auto", measures=(1.0, None))
    with pytest.raises(JudgeError):
        scored(MeasuredJudge(Said("auto", Blame.CANDIDATE), measures), PLAIN)
