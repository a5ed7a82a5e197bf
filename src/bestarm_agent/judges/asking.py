"""What all judges share that ask a model: prompt, votes, repeated reading, failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar, Generic, TypeVar

from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.asking_options import AskingOptions
from bestarm_agent.judges.base import Calls, JudgeCall, JudgeModel
from bestarm_agent.judges.quoting import quoted, shortened, visible
from bestarm_agent.judges.reading import UnreadableError
from bestarm_agent.judges.rule import check_reference, references, refuse_declined
from bestarm_agent.judges.together import together
from bestarm_agent.prompts.rendering import CompiledPrompt

_MOST_SAID = 100
_MOST_WHY = 500


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one reply of a judge comes to.

    Attributes:
        value: in [0, 1].
        votes: the judgements in it.
    """

    value: float
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One request to a judge's model, and how its reply is read.

    Attributes:
        call: the request.
        read: turns the reply into an opinion; raises UnreadableError.
    """

    call: JudgeCall
    read: Callable[[Reply], Opinion]


OptionsT = TypeVar("OptionsT", bound=AskingOptions)


class AskingJudge(ABC, Generic[OptionsT]):
    """Asks a model about every reply; several votes, and orders of answers, count the same.

    A reply that was refused or filtered is the candidate's failure and not judged. A
    verdict that cannot be read is asked for again; if none can be read the judge has failed.

    Args:
        name: what users call it.
        options: the judge's settings.

    Raises:
        ConfigError: a template is malformed.

    Attributes:
        adapter: name of the kind of judge in catalogue files.
        version: raised whenever the same options may score some reply differently.
        options_type: the class of ``options``.
        needs_reference: whether every example must hold a reference answer.
    """

    adapter: ClassVar[str]
    version: ClassVar[int] = 1
    options_type: ClassVar[type[AskingOptions]]
    needs_reference: bool = False

    def __init__(self, name: str, options: OptionsT) -> None:
        self.name = name
        self.options = options
        provider, _, model = options.model.partition("/")
        self.model = JudgeModel(provider, model, options.model_options)
        self.models: tuple[JudgeModel, ...] = (self.model,)
        self.digest = digest(
            {
                "adapter": self.adapter,
                "version": self.version,
                "options": options.model_dump(mode="json"),
            }
        )
        system = (Message("system", options.system),) if options.system else ()
        template = PromptTemplate(
            f"of judge {name}", messages=(*system, Message("user", options.template))
        )
        self._prompt = CompiledPrompt(template)

    def check(self, example: Example) -> None:
        """Check, before any call is paid for, that replies to ``example`` can be judged.

        Raises:
            ConfigError: it lacks a reference or a field, or the template fails on it.
        """
        if self.needs_reference:
            check_reference(example, self.name)
        for field in self.options.fields or ():
            if field not in example.inputs:
                raise ConfigError(
                    f"example `{example.id}` has no field `{field}`, which judge `{self.name}` "
                    f"shows; it has {', '.join(f'`{name}`' for name in example.inputs)}"
                )
        self._questions(example, "answer", 0)

    def longest_calls(self, example: Example) -> Sequence[JudgeCall]:
        """Every vote on an answer of ``max_answer_chars`` characters."""
        longest = "x" * self.options.max_answer_chars
        return [question.call for question in self._all_questions(example, longest)]

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Ask the model about one reply and average its votes.

        Raises:
            JudgeError: blame CANDIDATE if the reply was refused or is blank; blame JUDGE if no
                verdict could be got or read.
        """
        refuse_declined(reply)
        if not reply.text.strip() and not self.options.judge_empty:
            raise JudgeError("an empty reply", kind=FailureKind.UNPARSABLE, blame=Blame.CANDIDATE)
        opinions = await together(
            [self._answer(q, calls) for q in self._all_questions(example, reply.text)]
        )
        votes = tuple(vote for opinion in opinions for vote in opinion.votes)
        return Score(fmean(opinion.value for opinion in opinions), votes=votes)

    @abstractmethod
    def _questions(self, example: Example, answer: str, vote: int) -> Sequence[Question]:
        """What is asked for one vote."""

    def _all_questions(self, example: Example, answer: str) -> list[Question]:
        votes = range(self.options.votes)
        return [question for vote in votes for question in self._questions(example, answer, vote)]

    async def _answer(self, question: Question, calls: Calls) -> Opinion:
        problem = ""
        for attempt in range(self.options.attempts):
            request = question.call.request
            again = replace(request, attempt=request.attempt + attempt)
            reply = await calls.ask(replace(question.call, request=again))
            try:
                return question.read(reply)
            except UnreadableError as error:
                problem = str(error)
        raise JudgeError(
            f"judge `{self.name}` gave no readable verdict in {self.options.attempts} attempts; "
            f"the last time: {visible(problem)}",
            kind=FailureKind.JUDGE_FAILED,
            blame=Blame.JUDGE,
        )

    def _call(
        self,
        example: Example,
        texts: Mapping[str, str],
        *,
        vote: int,
        tag: str = "",
        words: Mapping[str, Json] | None = None,
        schema: Mapping[str, Json] | None = None,
        top_logprobs: int | None = None,
    ) -> JudgeCall:
        """Render the prompt for one vote.

        Args:
            example: what was asked.
            texts: what is shown as data, by name; the task and the reference join them.
            vote: its number, from 0.
            tag: tells the call from others about the same answer.
            words: what else the template may use.
            schema: JSON schema that the reply is to follow.
            top_logprobs: how many likeliest tokens the reply is to tell for each place.
        """
        marked = quoted(
            {"task": self._task(example), "reference": _listed(references(example)), **texts},
            [self.digest, example.digest],
        )
        messages = self._prompt.render({**marked, **(words or {}), "inputs": example.inputs})
        if isinstance(messages, str):
            raise TypeError("a judge's prompt has messages")
        suffix = f"/vote-{vote + 1}" if self.options.votes > 1 else ""
        request = Request(
            model=self.model.name,
            messages=messages,
            params=self.options.sampling(vote),
            example=f"{example.id}{tag}{suffix}",
            attempt=vote * self.options.attempts,
            response_schema=schema,
            top_logprobs=top_logprobs,
        )
        return JudgeCall(self.model, request)

    def _task(self, example: Example) -> str:
        names = self.options.fields or [name for name in example.inputs if name != "id"]
        shown = {name: example.inputs[name] for name in names}
        if len(shown) == 1:
            return str(next(iter(shown.values())))
        return "\n".join(f"{name}: {value}" for name, value in shown.items())

    def _shown(self, answer: str) -> str:
        return shortened(answer, self.options.max_answer_chars)

    def _vote(self, value: float, said: object, why: object = "", *, about: str = "") -> Vote:
        return Vote(
            by=f"{self.model} ({about})" if about else str(self.model),
            value=value,
            said=visible(str(said))[:_MOST_SAID],
            why=shortened(visible(str(why)), _MOST_WHY),
        )


def schema_of(properties: Mapping[str, Json], *, title: str = "verdict") -> dict[str, Json]:
    """JSON schema of an object with exactly these properties, in this order."""
    return {
        "title": title,
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _listed(texts: Sequence[str]) -> str | None:
    """Several acceptable references, one under the other."""
    if not texts:
        return None
    return texts[0] if len(texts) == 1 else "\n".join(f"- {text}" for text in texts)
