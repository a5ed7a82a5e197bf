"""What all judges share that ask a model: prompt, votes, repeated reading, failures."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Any, ClassVar, Generic, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from bestarm_agent.config.values import Options, Params
from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.domain.digest import Json, digest
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.outcome import Score, Vote
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.base import Calls, JudgeCall, JudgeModel
from bestarm_agent.judges.quoting import quoted, shortened, visible
from bestarm_agent.judges.reading import UnreadableError
from bestarm_agent.judges.rule import check_reference, references, refuse_declined
from bestarm_agent.prompts.rendering import CompiledPrompt

_MOST_SAID = 100
_MOST_WHY = 500


def _check_model(model: str) -> str:
    provider, slash, name = model.partition("/")
    if not (slash and provider and name):
        raise ValueError("a judge's model is written `provider/model`")
    return model


ModelName: TypeAlias = Annotated[str, AfterValidator(_check_model)]


class AskingOptions(BaseModel):
    """How a judge's model is asked. Defaults stand in the root ``judges/`` catalogue.

    Attributes:
        model: ``provider/model``.
        model_options: provider options that differ from the study's.
        temperature: sampling temperature; None leaves it out, for models that take none.
        seed: seed of the first vote, each further one takes the next; None leaves it out.
        max_tokens: longest reply of the judge.
        params: further sampling parameters.
        votes: how often each reply is judged, >= 1; the score is the mean.
        attempts: how many replies may be asked for until one can be read, >= 1.
        judge_empty: whether an empty answer is judged; else it is the candidate's failure.
        max_answer_chars: of a longer answer only its beginning and end are shown.
        fields: input fields of the example that are shown as the task; None shows all but ``id``.
        system: Jinja text of the system message; "" for none.
        template: Jinja text of the prompt.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: ModelName
    model_options: Options
    temperature: float | None = Field(ge=0, allow_inf_nan=False)
    seed: int | None = Field(ge=0)
    max_tokens: int = Field(ge=1)
    params: Params
    votes: int = Field(ge=1, le=100)
    attempts: int = Field(ge=1, le=20)
    judge_empty: bool
    max_answer_chars: int = Field(ge=100, le=1_000_000)
    fields: tuple[str, ...] | None = Field(min_length=1)
    system: str
    template: str = Field(min_length=1)

    @model_validator(mode="after")
    def _check_votes(self) -> Self:
        if self.votes > 1 and not self.temperature and self.seed is None:
            raise ValueError(
                f"`votes: {self.votes}` without a temperature asks the same question "
                f"{self.votes} times; set `temperature` or `seed`"
            )
        return self

    def sampling(self, vote: int) -> dict[str, JsonValue]:
        """Sampling parameters of a vote, from 0."""
        wanted: dict[str, JsonValue] = {
            "temperature": self.temperature,
            "seed": None if self.seed is None else self.seed + vote,
            "max_tokens": self.max_tokens,
            **self.params,
        }
        return {name: value for name, value in wanted.items() if value is not None}


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
        **wanted: Any,  # noqa: ANN401 - fields of Request
    ) -> JudgeCall:
        """Render the prompt for one vote.

        Args:
            example: what was asked.
            texts: what is shown as data, by name; the task and the reference join them.
            vote: its number, from 0.
            tag: tells the call from others about the same answer.
            words: what else the template may use.
            **wanted: further fields of the request.
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
            **wanted,
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


T = TypeVar("T")


async def together(asked: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all at once; if some fail, raise the first one's error after all have ended.

    What is on its way is paid for: one failure does not cut the others off.
    """
    done: dict[int, T] = {}
    failed: dict[int, Exception] = {}

    async def end(i: int, one: Coroutine[Any, Any, T]) -> None:
        try:
            done[i] = await one
        except Exception as error:  # raised below, once all have ended
            failed[i] = error

    async with asyncio.TaskGroup() as group:
        for i, one in enumerate(asked):
            group.create_task(end(i, one))
    if failed:
        raise failed[min(failed)]
    return [done[i] for i in range(len(asked))]


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
