from __future__ import annotations

import asyncio

import pytest

from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import Blame, JudgeError
from bestarm_agent.judges.audit.side_by_side import SideBySide
from bestarm_agent.judges.base import Judge
from tests.judges.audit.test_audited import Said
from tests.support.no_calls import NoCalls


def scored(*judges: Judge, floor: float = 0.1) -> Score:
    judge = SideBySide(judges, floor)
    return asyncio.run(judge.score(Example("e", {}), Reply("46"), NoCalls()))


def test_each_keeps_its_opinion() -> None:
    votes = (Vote("a", 0.25, "a"), Vote("b", 0.75, "b"))
    expected = Score(0.5, votes=votes, guesses=(0.25, 0.75))
    assert scored(Said("a", 0.25), Said("b", 0.75)) == expected


def test_one_that_fails_leaves_the_others_and_one_that_cannot_read_gives_the_floor() -> None:
    found = scored(Said("a", Blame.JUDGE), Said("b", Blame.CANDIDATE), Said("c", 0.9))
    assert found.guesses == (None, 0.1, 0.9)
    assert found.value == pytest.approx(0.5)


def test_all_that_fail_void_the_pair() -> None:
    with pytest.raises(JudgeError, match="none of 2 autoevaluators") as caught:
        scored(Said("a", Blame.JUDGE), Said("b", Blame.JUDGE))
    assert caught.value.blame is Blame.JUDGE


def test_calls_are_told_apart() -> None:
    judge = SideBySide([Said("a", 0.5, calls=1), Said("a", 0.5, calls=1)])
    assert len(judge.models) == 1
    tags = [call.request.example for call in judge.longest_calls(Example("e", {}))]
    assert tags == ["/judge-1", "/judge-2"]


def test_the_digest_tells_them_apart() -> None:
    a, b = Said("a", 0.5), Said("b", 0.5)
    digests = {SideBySide([a, b]).digest, SideBySide([b, a]).digest, SideBySide([a, b], 1.0).digest}
    assert len(digests) == 3
