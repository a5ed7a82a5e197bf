from __future__ import annotations

from collections.abc import Callable

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Reply, Score
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import create_judge
from tests.support.judge_answers import NoCalls


def score_at_once(judge: Judge, example: Example, reply: Reply) -> Score:
    """Run ``score`` to its end without an event loop: a rule never waits for anything."""
    coroutine = judge.score(example, reply, NoCalls())
    try:
        coroutine.send(None)
    except StopIteration as done:
        score = done.value
        assert isinstance(score, Score)
        return score
    pytest.fail("a rule must not wait")


@pytest.fixture(scope="session")
def score_now() -> Callable[[Judge, Example, Reply], Score]:
    return score_at_once


@pytest.fixture(scope="session")
def judged() -> Callable[..., float | str]:
    """Score a reply by a shipped judge: 1.0, 0.0 or the kind of the candidate's failure."""
    catalog = Catalog()

    def verdict(
        name: str,
        text: str,
        reference: str | tuple[str, ...] | None,
        *,
        inputs: dict[str, object] | None = None,
        finish: Finish = Finish.STOP,
        **options: object,
    ) -> float | str:
        judge = create_judge(name, options, catalog)  # type: ignore[arg-type]
        example = Example("e1", inputs or {}, reference)  # type: ignore[arg-type]
        try:
            return score_at_once(judge, example, Reply(text, finish)).value
        except JudgeError as caught:
            error = caught
        assert "\n" not in str(error)
        is_own = error.kind is not FailureKind.JUDGE_FAILED
        assert error.blame is (Blame.CANDIDATE if is_own else Blame.JUDGE)
        return error.kind.value

    return verdict
