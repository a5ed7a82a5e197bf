from __future__ import annotations

import asyncio

from bestarm_agent.config.datasets.gold_labels import answer_digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.judges.human_scores import HumanScores
from tests.judges.test_audited import Said
from tests.support.no_calls import NoCalls

SCORES = {("e", answer_digest("46")): 0.25}


def test_people_come_first_and_the_judge_scores_the_rest() -> None:
    rule = Said("rule", 1.0)
    judge = HumanScores(rule, SCORES)

    def scored(example: str, text: str) -> Score:
        return asyncio.run(judge.score(Example(example, {}), Reply(text), NoCalls()))

    assert scored("e", "46") == Score(0.25)
    assert rule.seen == []
    assert scored("e", "47").value == scored("f", "46").value == 1.0


def test_the_digest_holds_the_scores() -> None:
    rule = Said("rule", 1.0)
    others = dict.fromkeys(SCORES, 0.5)
    digests = {HumanScores(rule, scores).digest for scores in (SCORES, others, {})}
    assert len(digests | {rule.digest}) == 4
