"""The base of judges that grade an answer on a scale."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.judges.models.base import Judgement, ModelJudge, Query, verdict_schema
from bestarm_agent.judges.models.options import ModelJudgeOptions
from bestarm_agent.judges.models.scales import ScaleOption, make_scale
from bestarm_agent.judges.models.untrusted_text import clean
from bestarm_agent.judges.models.verdicts import Verdict


class GradingOptions(ModelJudgeOptions):
    """Options of judges that grade."""

    # ``[worst, best]``, or labels with their worth; the catalogue holds the default
    scale: ScaleOption
    whole: bool = True  # whether a verdict on a scale of numbers must be a whole number
    explain: bool = True  # whether the judge writes an explanation before its verdicts


OptionsT = TypeVar("OptionsT", bound=GradingOptions)


class GradingJudge(ModelJudge[OptionsT], Generic[OptionsT]):
    """Asks for one or several verdicts on a scale, in one call."""

    def __init__(self, name: str, options: OptionsT) -> None:
        self._scale = make_scale(options.scale, whole=options.whole)
        super().__init__(name, options)

    def _query(
        self,
        example: Example,
        answer: str,
        vote: int,
        keys: Sequence[str],
        words: Mapping[str, Json],
    ) -> Query:
        explain = self.options.explain
        call = self._call(
            example,
            {"answer": self._shortened(answer)},
            vote=vote,
            words={**words, "verdicts": self._scale.words, "explain": explain},
            schema=verdict_schema(dict.fromkeys(keys, self._scale.schema), explain=explain),
        )
        evidence = clean(answer)

        def read(reply: Reply) -> Judgement:
            return self._judgement_of(self._verdict(reply, keys, evidence, self._scale.labels))

        return Query(call, read)

    @abstractmethod
    def _judgement_of(self, verdict: Verdict) -> Judgement:
        """Return the score of a verdict; raises UnreadableError if it is not on the scale."""
