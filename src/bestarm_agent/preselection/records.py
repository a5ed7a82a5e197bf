"""Read what a router learns from: prompts with their verdicts, its candidates, its settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from inspect import signature
from math import isnan, nan
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from bestarm_agent.config.yaml.documents import check_file, parse_row
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.preselection.cppl import Cppl
from bestarm_agent.preselection.features import arm_features
from bestarm_agent.preselection.linucb import LinUcb
from bestarm_agent.preselection.rule import FloatArray, PreselectionProblem, Preselector

_VERDICTS = ("winner", "ranking", "scores")
_RULES: dict[str, type[Preselector]] = {"linucb": LinUcb, "cppl": Cppl}

_Row = TypeVar("_Row", bound=BaseModel)


def _apart(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError(f"a candidate is named twice: {', '.join(names)}")
    return names


_Names = Annotated[tuple[Annotated[str, Field(strict=True)], ...], AfterValidator(_apart)]
_Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]


def _null_is_nan(values: Any) -> Any:  # noqa: ANN401 - outside text
    if not isinstance(values, list | tuple):
        return values
    return [nan if one is None else one for one in values]


def _not_infinite(values: tuple[float, ...]) -> tuple[float, ...]:
    if np.isinf(values).any():
        raise ValueError("numbers must be finite; write null for one that is missing")
    return values


# numbers that describe a prompt, if its text does not; NaN, in JSON null, where one is missing
_Features = Annotated[
    tuple[Annotated[float, Field(strict=True)], ...],
    BeforeValidator(_null_is_nan),
    AfterValidator(_not_infinite),
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Record(_Part):
    """One prompt and its verdict: a winner, a ranking or scores.

    In JSON the verdict is ``winner`` (a name; null if nobody won), ``ranking`` (names, best first)
    or ``scores`` (an object by name, or a list in the order of ``shown``).

    Example:
        >>> Record.model_validate({"prompt": "2+2", "shown": ["a", "b"], "winner": "b"}).ranking
        ('b',)
    """

    prompt: Annotated[str, Field(strict=True)] = ""
    # names of the candidates that were run
    shown: Annotated[_Names, Field(validation_alias=AliasChoices("shown", "candidates"))] = ()
    # the best of ``shown``, best first; a winner is a ranking of one. Empty with scores, or where
    # nobody won
    ranking: _Names = ()
    # in [0, 1], by name; empty where only a ranking is known
    scores: dict[str, _Number] = {}
    # dollars of each call; empty: the candidates' prices
    usd: dict[str, _Number] = {}
    features: _Features = ()

    @model_validator(mode="before")
    @classmethod
    def _one_verdict(cls, row: Any) -> Any:  # noqa: ANN401 - outside text
        if not isinstance(row, dict):
            return row
        given = [key for key in _VERDICTS if key in row]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of `winner`, `ranking` and `scores`, "
                f"got {', '.join(given) or 'none'}"
            )
        row = dict(row)
        if "winner" in row:
            winner = row.pop("winner")
            if not isinstance(winner, str | None):
                raise ValueError(f"`winner` must be a name, or null, got {winner!r}")
            row["ranking"] = [] if winner is None else [winner]
        shown = row.get("shown", row.get("candidates"))
        if isinstance(row.get("scores"), list):
            if not isinstance(shown, list | tuple) or len(row["scores"]) != len(shown):
                raise ValueError("a list of `scores` needs as many candidates in `shown`")
            row["scores"] = dict(zip(shown, row["scores"], strict=True))
        if shown is None and isinstance(row.get("scores"), dict):
            row["shown"] = list(row["scores"])
        return row

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if not self.shown:
            raise ValueError("`shown` must name the candidates that were run")
        for name in self.ranking:
            if name not in self.shown:
                raise ValueError(f"{name!r} won, but is not among `shown`")
        if self.scores and set(self.scores) != set(self.shown):
            raise ValueError("`scores` and `shown` name different candidates")
        for name, score in self.scores.items():
            if not 0 <= score <= 1:
                raise ValueError(
                    f"scores must be in [0, 1], higher is better, got {score:g} for {name!r}; "
                    f"rescale them"
                )
        return self

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON object that ``model_validate`` reads."""
        row = self.model_dump(mode="json")
        del row["ranking" if self.scores else "scores"]
        row["features"] = [None if isnan(one) else one for one in self.features]
        return row


class PromptRow(_Part):
    """A prompt to be routed."""

    prompt: Annotated[str, Field(strict=True)]
    k: Annotated[int, Field(strict=True)] | None = None
    features: _Features = ()
    candidates: _Names | None = None  # those that can be run; None if all can


class RoutedCandidate(_Part):
    """A candidate, and what is known of it before it has answered anything; a name will do."""

    name: Annotated[str, Field(min_length=1)]  # what users call it; unique
    usd: Annotated[_Number, Field(ge=0)] | None = None  # dollars of one call
    size: Annotated[_Number, Field(gt=0)] | None = None  # billions of parameters
    # models of one family are likely to be good at the same prompts; "" if not known
    family: str = ""

    @model_validator(mode="before")
    @classmethod
    def _of_name(cls, row: Any) -> Any:  # noqa: ANN401 - outside text
        return {"name": row} if isinstance(row, str) else row


class RouterSettings(_Part):
    """Settings of a router, fixed when it is made."""

    rule: Literal["linucb", "cppl"] = "linucb"
    params: dict[str, float] = {}  # the rule's own parameters
    # "text" makes features of the prompts' text, "given" takes those that come with every prompt
    source: Literal["text", "given"] = "text"
    n_components: Annotated[int, Field(ge=1)] = 16  # features made of text, at most
    # how candidates share what is learnt: "own" learns each apart, "shared" through price, size and
    # family alone, "both" learns both
    arms: Literal["own", "shared", "both"] = "both"
    # prompts after which features are made; until then choices are random
    collect: Annotated[int, Field(ge=2)] = 50
    # quality that one dollar outweighs: utility is score - cost_weight * dollars. Where only a
    # winner or a ranking is known, the winner's quality is 1, that of the last 0, and of those
    # between evenly spaced by place
    cost_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=0)] = 0  # of all random choices

    @model_validator(mode="after")
    def _params_fit(self) -> Self:
        known = list(signature(_RULES[self.rule]).parameters)[1:]  # the first is the problem
        for key in self.params:
            if key not in known:
                raise ValueError(
                    f"the rule {self.rule!r} takes no such parameter: {key}; {nearest(key, known)}"
                )
        self.make_rule(PreselectionProblem(2, 1, self.seed))  # it refuses values
        return self

    def make_rule(self, problem: PreselectionProblem) -> Preselector:
        """Make the rule; where it learns a theta, all candidates begin equal."""
        start = {"spread": 0.0} if self.rule == "cppl" else {}
        return _RULES[self.rule](problem, **{**start, **self.params})

    def arm_features(self, candidates: Sequence[RoutedCandidate]) -> FloatArray:
        """Return (n, q) features of the candidates."""
        if self.arms == "own":
            return np.eye(len(candidates))
        # prices and sizes span orders of magnitude: their logarithms are compared
        facts = np.array([[one.usd or nan, one.size or nan] for one in candidates])
        families = [one.family for one in candidates]
        return arm_features(np.log(facts), families, identity=self.arms == "both")


def parse_settings(texts: Sequence[str]) -> RouterSettings:
    """Read settings written ``key=value``; a key that is no setting is the rule's parameter.

    Example:
        >>> parse_settings(["rule=cppl", "omega=0.2", "seed=3"]).params
        {'omega': 0.2}
    """
    values: dict[str, Any] = {}
    params: dict[str, float] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"a setting is written key=value, got {text!r}")
        if key in RouterSettings.model_fields and key != "params":
            values[key] = value
            continue
        try:
            params[key] = float(value)
        except ValueError:
            close = nearest(key, RouterSettings.model_fields)
            raise ConfigError(f"setting {key!r} cannot be {value!r}; {close}") from None
    return parse_row(RouterSettings, {**values, "params": params}, "settings of the router")


def parse_line(model: type[_Row], line: str, where: str) -> _Row:
    """Read a line of JSON; the message of a ConfigError begins with ``where``."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not a line of JSON ({error})") from None
    if not isinstance(row, dict):
        raise ConfigError(f"{where}: a JSON object is needed, got {line.strip()}")
    return parse_row(model, row, where)


def parse_candidates(rows: object, where: str) -> tuple[RoutedCandidate, ...]:
    """Read candidates from JSON: names, or objects with ``name``, ``usd``, ``size``, ``family``.

    Example:
        >>> parse_candidates(["small", {"name": "large", "usd": 0.01}], "here")[1].usd
        0.01
    """
    if not isinstance(rows, list) or not all(isinstance(row, str | dict) for row in rows):
        raise ConfigError(f"{where}: a list of names, or of objects with a `name`, is needed")
    return tuple(
        parse_row(RoutedCandidate, {"name": row} if isinstance(row, str) else row, where)
        for row in rows
    )


def read_history(path: Path) -> Iterator[Record]:
    """Read records from lines of JSON; raise ConfigError if the file or a line cannot be used."""
    check_file(path, "history")
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield parse_line(Record, line, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
