"""The base of judges that ask a model: prompts, votes, retries of unreadable replies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from bestarm_agent.config.prompts.templates import CompiledPrompt
from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.errors import ConfigError, FailureKind
from bestarm_agent.judges.base import Calls, JudgeCall, JudgeModel
from bestarm_agent.judges.base_judge import BaseJudge
from bestarm_agent.judges.member_calls import gather_all
from bestarm_agent.judges.models.options import ModelJudgeOptions
from bestarm_agent.judges.models.untrusted_text import enclosed, shortened, visible
from bestarm_agent.judges.models.verdict_forms import read_in_form
from bestarm_agent.judges.models.verdicts import UnreadableError, Verdict, read_verdict
from bestarm_agent.judges.rules.base import (
    candidate_failed,
    judge_failed,
    references,
    refuse_declined,
)

_MAX_SAID = 100
_MAX_WHY = 500


@dataclass(frozen=True, slots=True)
class Judgement:
    """The score in [0, 1] that one reply of the judge's model gives."""

    value: float
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """One call of the judge's model; ``read`` scores the reply or raises UnreadableError."""

    call: JudgeCall
    read: Callable[[Reply], Judgement]

    def is_readable(self, reply: Reply) -> bool:
        """Return whether a reply holds a verdict."""
        try:
            self.read(reply)
        except UnreadableError:
            return False
        return True


OptionsT = TypeVar("OptionsT", bound=ModelJudgeOptions)


class ModelJudge(BaseJudge[OptionsT]):
    """Asks a model about every reply; all votes, and both orders of answers, weigh the same.

    A refused or filtered reply is the candidate's failure and is not judged. If a verdict cannot
    be read, the model is asked again; after the last attempt the judge has failed.
    """

    version = 2  # 2: verdicts that differ are void, and further forms of verdicts are read

    def __init__(self, name: str, options: OptionsT) -> None:
        super().__init__(name, options)
        provider, _, model = options.model.partition("/")
        self.model = JudgeModel(provider, model, options.model_options)
        self.models = (self.model,)
        system = (Message("system", options.system),) if options.system else ()
        messages = (*system, Message("user", options.template))
        self._prompt = CompiledPrompt(PromptTemplate(f"of judge {name}", messages=messages))

    def check(self, example: Example) -> None:
        """Raise ConfigError if a reference or a field is missing, or the template fails."""
        super().check(example)
        for field in self.options.fields or ():
            if field not in example.inputs:
                raise ConfigError(
                    f"example `{example.id}` has no field `{field}`, which judge `{self.name}` "
                    f"shows; it has {', '.join(f'`{name}`' for name in example.inputs)}"
                )
        self._queries(example, "answer", 0)

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Return the calls for all votes on an answer of ``max_answer_chars`` characters."""
        longest = "x" * self.options.max_answer_chars
        return [query.call for query in self._all_queries(example, longest)]

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Return the mean of the model's votes on a reply.

        Raises JudgeError with blame CANDIDATE if the reply was refused or is blank, with blame
        JUDGE if no verdict could be obtained or read.
        """
        refuse_declined(reply)
        if not reply.text.strip() and not self.options.judge_empty:
            raise candidate_failed("an empty reply", FailureKind.UNPARSABLE)
        queries = self._all_queries(example, reply.text)
        judgements = await gather_all([self._judgement(query, calls) for query in queries])
        votes = tuple(vote for judgement in judgements for vote in judgement.votes)
        return Score(fmean(judgement.value for judgement in judgements), votes=votes)

    @abstractmethod
    def _queries(self, example: Example, answer: str, vote: int) -> Sequence[Query]:
        """Return the calls for one vote."""

    def _all_queries(self, example: Example, answer: str) -> list[Query]:
        votes = range(self.options.votes)
        return [query for vote in votes for query in self._queries(example, answer, vote)]

    async def _judgement(self, query: Query, calls: Calls) -> Judgement:
        problem = ""
        for attempt in range(self.options.attempts):
            request = query.call.request
            request = replace(request, attempt=request.attempt + attempt)
            call = replace(query.call, request=request, is_readable=query.is_readable)
            reply = await calls.ask(call)
            try:
                return query.read(reply)
            except UnreadableError as error:
                problem = str(error)
        raise judge_failed(
            f"judge `{self.name}` gave no readable verdict in {self.options.attempts} attempts; "
            f"the last time: {visible(problem)}"
        )

    def _call(
        self,
        example: Example,
        texts: Mapping[str, str],
        *,
        vote: int,
        suffix: str = "",
        words: Mapping[str, Json] | None = None,
        schema: Mapping[str, Json] | None = None,
        top_logprobs: int | None = None,
    ) -> JudgeCall:
        """Render the prompt for one vote, counted from 0.

        ``texts`` are shown as data, by name, with the task and the reference; ``words`` are
        further variables of the template. ``suffix`` tells the calls about one answer apart.
        """
        marked = enclosed(
            {"task": self._task(example), "reference": _listed(references(example)), **texts},
            [self.digest, example.digest],
        )
        messages = self._prompt.render({**marked, **(words or {}), "inputs": example.inputs})
        if isinstance(messages, str):
            raise TypeError("a judge's prompt has messages")
        if self.options.votes > 1:
            suffix += f"/vote-{vote + 1}"
        request = Request(
            model=self.model.name,
            messages=messages,
            params=self.options.sampling(vote),
            example=f"{example.id}{suffix}",
            attempt=vote * self.options.attempts,
            response_schema=schema if self.options.verdict == "json" else None,
            top_logprobs=top_logprobs,
        )
        return JudgeCall(self.model, request)

    def _verdict(
        self, reply: Reply, keys: Sequence[str], evidence: str, labels: Collection[str]
    ) -> Verdict:
        """Return the verdict in the form asked for; raises UnreadableError."""
        form = self.options.verdict
        if form == "json":
            return read_verdict(reply, keys, evidence, labels)
        return read_in_form(reply, form, keys[0], evidence, labels)

    def _task(self, example: Example) -> str:
        names = self.options.fields or [name for name in example.inputs if name != "id"]
        shown = {name: example.inputs[name] for name in names}
        if len(shown) == 1:
            return str(next(iter(shown.values())))
        return "\n".join(f"{name}: {value}" for name, value in shown.items())

    def _shortened(self, answer: str) -> str:
        return shortened(answer, self.options.max_answer_chars)

    def _vote(self, value: float, said: object, why: object = "", *, about: str = "") -> Vote:
        return Vote(
            by=f"{self.model} ({about})" if about else str(self.model),
            value=value,
            said=visible(str(said))[:_MAX_SAID],
            why=shortened(visible(str(why)), _MAX_WHY),
        )


def verdict_schema(verdicts: Mapping[str, Json], *, explain: bool) -> dict[str, Json]:
    """Return the JSON schema of an object with an explanation, if wanted, and these verdicts."""
    why: dict[str, Json] = {"explanation": {"type": "string"}} if explain else {}
    properties = {**why, **verdicts}
    return {
        "title": "verdict",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _listed(texts: Sequence[str]) -> str | None:
    if not texts:
        return None
    return texts[0] if len(texts) == 1 else "\n".join(f"- {text}" for text in texts)
