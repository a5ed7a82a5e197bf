from __future__ import annotations

from collections.abc import Callable

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Finish, Reply
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import create_judge

ScoreNow = Callable[[Judge, Example, Reply], Score]


@pytest.mark.parametrize("score", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("finish", list(Finish))
def test_the_recorded_score_passes_through(
    score_now: ScoreNow, score: float, finish: Finish
) -> None:
    judge = create_judge("recorded", {}, Catalog())
    assert score_now(judge, Example("e1", {}), Reply("", finish, score=score)).value == score
    assert not judge.longest_calls(Example("e1", {}))
    assert not judge.needs_reference


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (None, "no score is recorded for example `e1`"),
        (1.5, r"must be in \[0, 1\], got 1\.5"),
        (-0.1, r"must be in \[0, 1\], got -0\.1"),
        (float("nan"), r"must be in \[0, 1\], got nan"),
    ],
)
def test_a_missing_or_impossible_score_is_the_judges_failure(
    score_now: ScoreNow, score: float | None, message: str
) -> None:
    judge = create_judge("recorded", {}, Catalog())
    with pytest.raises(JudgeError, match=message) as caught:
        score_now(judge, Example("e1", {}), Reply("46", score=score))
    assert (caught.value.kind, caught.value.blame) == (FailureKind.JUDGE_FAILED, Blame.JUDGE)
