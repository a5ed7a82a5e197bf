"""Several judges vote."""

from __future__ import annotations

from typing import Any

import pytest

from bestarm_agent.domain.request_reply import Finish, Reply, Request
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from tests.support.judge_answers import EXAMPLE, Script, failure, make, score, verdict

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


def test_what_the_candidate_did_is_its_own_failure() -> None:
    error = failure(make("ensemble", members=THREE), Script([]), Reply("no", Finish.REFUSAL))
    assert error.blame is Blame.CANDIDATE


def test_the_digest_depends_on_members_weights_and_rule() -> None:
    heavier = [THREE[0] | {"weight": 2}, *THREE[1:]]
    judges = [
        make("ensemble", members=THREE),
        make("ensemble", members=THREE[:2]),
        make("ensemble", members=heavier),
        make("ensemble", members=THREE, combine="majority"),
        make("ensemble", members=THREE, quorum=1),
    ]
    assert len({judge.digest for judge in judges}) == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": THREE[:1]}, "members"),
        ({"members": THREE, "quorum": 4}, "but there are 3 members"),
        ({"members": [THREE[0] | {"weight": 2}, THREE[1]], "combine": "median"}, "no weights"),
        ({"members": [THREE[0], {"name": "rubrik"}]}, "did you mean `rubric`"),
        ({}, "`members` is required"),
    ],
)
def test_bad_options_say_the_way_out(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make("ensemble", **options)
