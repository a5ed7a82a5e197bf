"""Score the similarity of an answer and a reference by their embeddings."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from pydantic import Field

from bestarm_agent.config.study.value_types import Options, Share
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.errors import FailureKind
from bestarm_agent.judges.base import Calls, JudgeCall, JudgeModel
from bestarm_agent.judges.base_judge import BaseJudge, JudgeOptions
from bestarm_agent.judges.member_calls import gather_all
from bestarm_agent.judges.models.options import ModelName
from bestarm_agent.judges.models.untrusted_text import shortened
from bestarm_agent.judges.rules.base import (
    candidate_failed,
    judge_failed,
    references,
    refuse_declined,
)


class SimilarOptions(JudgeOptions):
    """Options of ``similar``."""

    model: ModelName  # ``provider/model`` that makes embeddings
    # provider options that differ from the study's
    model_options: Options = Field(default_factory=dict)
    # least similarity that scores 1, all else 0; None: the similarity itself, at least 0
    threshold: Share | None = None
    # longer answers are shortened to beginning and end
    max_answer_chars: int = Field(12_000, ge=100, le=1_000_000)


class SimilarJudge(BaseJudge[SimilarOptions]):
    """Scores the cosine similarity of the embeddings of the answer and the nearest reference.

    Reimers & Gurevych 2019, "Sentence-BERT", section 3. The same text is asked for once: the reply
    cache holds the vectors of references.
    """

    adapter = "similar"
    options_type = SimilarOptions
    needs_reference = True

    def __init__(self, name: str, options: SimilarOptions) -> None:
        super().__init__(name, options)
        provider, _, model = options.model.partition("/")
        self.model = JudgeModel(provider, model, options.model_options)
        self.models = (self.model,)

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls for the references and an answer of ``max_answer_chars`` characters."""
        return self._calls(example, "x" * self.options.max_answer_chars)

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply; raises JudgeError as ``Judge`` says."""
        refuse_declined(reply)
        if not reply.text.strip():
            raise candidate_failed("an empty reply", FailureKind.UNPARSABLE)
        asked = self._calls(example, reply.text)
        answer, *others = map(_vector, await gather_all([calls.ask(call) for call in asked]))
        nearest = max(_cosine(answer, other) for other in others)
        least = self.options.threshold
        value = max(0.0, nearest) if least is None else float(nearest >= least)
        vote = Vote(by=str(self.model), value=value, said=f"{nearest:.4f}")
        return Score(value, votes=(vote,))

    def _calls(self, example: Example, answer: str) -> list[JudgeCall]:
        texts = [shortened(answer, self.options.max_answer_chars), *references(example)]
        return [
            JudgeCall(
                self.model,
                Request(self.model.name, text=text, example=f"{example.id}/text-{i}"),
            )
            for i, text in enumerate(texts)
        ]


def _vector(reply: Reply) -> list[float]:
    try:
        vector = json.loads(reply.text)
    except ValueError:
        vector = None
    if not isinstance(vector, list) or not all(map(_is_number, vector)):
        raise judge_failed(
            f"{reply.text[:60]!r} is no embedding; name a model that makes embeddings, or set its "
            "option `api: embeddings`"
        )
    return vector


def _is_number(found: object) -> bool:
    return isinstance(found, int | float) and math.isfinite(found)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors, in [-1, 1]; 0 for a vector of zeros."""
    if len(one) != len(other):
        raise judge_failed(f"embeddings of {len(one)} and {len(other)} numbers do not compare")
    length = math.hypot(*one) * math.hypot(*other)
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return max(-1.0, min(1.0, product / length)) if length else 0.0
