"""How a judge's model is asked."""

from __future__ import annotations

from typing import Annotated, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from bestarm_agent.config.values import Options, Params


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
