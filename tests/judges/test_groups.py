"""Judges made of judges: ensembles, measures, audits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from bestarm_agent.config.labels import answer_digest
from bestarm_agent.domain.values import Example, Finish, Reply, Request, Score
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.base import Calls, Judge, JudgeCall, JudgeModel, JudgeOptions
from bestarm_agent.judges.groups import AuditedJudge, MeasuredJudge
from tests.support.judge_answers import EXAMPLE, NoCalls, Script, failure, make, score, verdict

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


def scored(judge: Judge, example: Example, reply: Reply = REPLY) -> Score:
    return asyncio.run(judge.score(example, reply, NoCalls()))


def test_labelled_examples_are_scored_twice_each_by_its_own_reference() -> None:
    auto, trusted = Said("auto", 0.25), Said("trusted", 1.0)
    judge = audited(auto, trusted)
    assert scored(judge, PLAIN) == Score(0.25, answer="auto")
    assert scored(judge, LABELLED) == Score(0.25, answer="auto", gold=1.0)
    assert [example.reference for example in auto.seen] == [None, "guess"]
    assert [example.reference for example in trusted.seen] == ["label"]


@pytest.mark.parametrize(
    ("auto", "trusted", "score"),
    [
        (Blame.CANDIDATE, 1.0, Score(0.1, gold=1.0)),  # the floor, where a reply cannot be read
        (0.5, Blame.CANDIDATE, Score(0.5, answer="auto", gold=0.1)),
        (0.5, Blame.JUDGE, Score(0.5, answer="auto")),  # a trusted judge that fails says nothing
        (Blame.JUDGE, 1.0, None),  # and an autoevaluator that fails voids the pair
    ],
)
def test_what_fails_in_an_audit(
    auto: float | Blame, trusted: float | Blame, score: Score | None
) -> None:
    judge = audited(Said("auto", auto), Said("trusted", trusted), 0.1)
    with nullcontext() if score else pytest.raises(JudgeError):
        assert scored(judge, LABELLED) == score


def test_calls_are_foreseen_for_both_judges_where_both_will_judge() -> None:
    judge = audited(Said("a", 0.5, calls=2), Said("t", 1.0, calls=1))
    counts = [len(judge.longest_calls(example)) for example in (PLAIN, LABELLED)]
    assert (len(judge.models), counts) == (3, [2, 3])


def test_people_have_the_last_word_on_the_replies_that_they_scored() -> None:
    auto, trusted = Said("auto", 0.5), Said("trusted", 1.0)
    label = {"labelled": replace(LABELLED, reference="label")}
    people = {("labelled", answer_digest("46")): 0.25, ("plain", answer_digest("46")): 0.25}
    judge = AuditedJudge(auto, trusted, label, people=people)
    assert scored(judge, LABELLED) == Score(0.5, answer="auto", gold=0.25)
    assert trusted.seen == []
    assert scored(judge, PLAIN).gold is None
    assert scored(judge, LABELLED, Reply("47")).gold == 1.0


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


THREE: list[dict[str, Any]] = [
    {"name": "rubric", "model": f"openai/{name}", "scale": [0, 10]} for name in "abc"
]


def by_model(**values: int | None) -> Script:
    def said(request: Request) -> str:
        value = values[request.model]
        return "?" if value is None else verdict(value)

    return Script(said)


@pytest.mark.parametrize(
    ("combine", "weights", "value"),
    [
        ("mean", (1, 1, 1), (2 + 6 + 10) / 30),
        ("mean", (2, 1, 1), (4 + 6 + 10) / 40),
        ("median", (1, 1, 1), 0.6),
        ("majority", (1, 1, 1), 1.0),
        ("majority", (2, 1, 1), 0.5),
        ("majority", (3, 1, 1), 0.0),
    ],
)
def test_votes_are_combined(combine: str, weights: tuple[int, ...], value: float) -> None:
    members = [member | {"weight": w} for member, w in zip(THREE, weights, strict=True)]
    script = by_model(a=2, b=6, c=10)
    found = score(make("ensemble", members=members, combine=combine), script)
    assert found.value == pytest.approx(value)
    assert [(v.by, v.value) for v in found.votes] == [
        ("openai/a", 0.2),
        ("openai/b", 0.6),
        ("openai/c", 1.0),
    ]
    assert sorted(r.example for r in script.requests) == [f"e1/judge-{i}" for i in (1, 2, 3)]


def test_rules_and_models_vote_together() -> None:
    judge = make("ensemble", members=[THREE[0], {"name": "exact"}])
    assert score(judge, by_model(a=5), "46").value == 0.75
    assert [str(model) for model in judge.models] == ["openai/a"]
    assert len(judge.longest_calls(EXAMPLE)) == 1
    assert judge.needs_reference


def test_a_failed_member_gives_no_vote() -> None:
    lenient = make("ensemble", members=THREE, quorum=2)
    assert score(lenient, by_model(a=None, b=6, c=10)).value == pytest.approx(0.8)
    error = failure(make("ensemble", members=THREE), by_model(a=None, b=6, c=10), Reply("46"))
    assert (error.kind, error.blame) == (FailureKind.JUDGE_FAILED, Blame.JUDGE)
    assert "2 of 3 judges of `ensemble` scored the reply, 3 must; judge `rubric`" in str(error)
    refused = failure(make("ensemble", members=THREE), Script([]), Reply("no", Finish.REFUSAL))
    assert refused.blame is Blame.CANDIDATE


def test_the_digest_depends_on_members_weights_and_rule() -> None:
    options: list[dict[str, Any]] = [
        {},
        {"members": THREE[:2]},
        {"members": [THREE[0] | {"weight": 2}, *THREE[1:]]},
        {"combine": "majority"},
        {"quorum": 1},
    ]
    assert len({make("ensemble", **{"members": THREE, **one}).digest for one in options}) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": THREE[:1]}, "members"),
        ({"members": THREE, "quorum": 4}, "but there are 3 members"),
        ({"members": [THREE[0] | {"weight": 2}, THREE[1]], "combine": "median"}, "no weights"),
        ({"members": [THREE[0], {"name": "rubrik"}]}, "did you mean `rubric`"),
        ({}, "`members` is missing"),
    ],
)
def test_bad_options_say_the_way_out(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make("ensemble", **options)
