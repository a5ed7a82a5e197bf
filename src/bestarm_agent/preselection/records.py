"""Read what a router learns from: prompts with their verdicts, its candidates, its settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from bestarm_agent.config.fields import unique_keys
from bestarm_agent.config.file_errors import parse_row
from bestarm_agent.config.files import check_file
from bestarm_agent.errors import ConfigError
from bestarm_agent.preselection.cppl import Cppl
from bestarm_agent.preselection.linucb import LinUcb
from bestarm_agent.preselection.rule import Preselector

_VERDICTS = ("winner", "ranking", "scores")

_Row = TypeVar("_Row", bound=BaseModel)


def _apart(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError(f"a candidate is named twice: {', '.join(names)}")
    return names


_Text = Annotated[str, Field(min_length=1, strict=True)]
_Names = Annotated[tuple[Annotated[str, Field(strict=True)], ...], AfterValidator(_apart)]
_Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Record(_Part):
    """One prompt and its verdict: a winner, a ranking or scores.

    In JSON the verdict is ``winner`` (a name; null if nobody won), ``ranking`` (names, best first)
    or ``scores`` (an object by name).

    Example:
        >>> Record.model_validate({"prompt": "2+2", "shown": ["a", "b"], "winner": "b"}).ranking
        ('b',)
    """

    prompt: _Text
    shown: _Names = ()  # names of the candidates that were run; with scores, those of the scores
    # the best of ``shown``, best first; a winner is a ranking of one. Empty with scores, or where
    # nobody won
    ranking: _Names = ()
    # in [0, 1], by name; empty where only a ranking is known
    scores: dict[str, _Number] = {}
    usd: dict[str, _Number] = {}  # dollars of each call; empty: the candidates' prices

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
        if row.get("shown") is None and isinstance(row.get("scores"), dict):
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


class PromptRow(_Part):
    """A prompt to be routed."""

    prompt: _Text


class RoutedCandidate(_Part):
    """A candidate, and what is known of it before it has answered anything."""

    name: Annotated[str, Field(min_length=1)]  # what users call it; unique
    usd: Annotated[_Number, Field(ge=0)] | None = None  # dollars of one call


class RouterSettings(_Part):
    """Settings of a router, fixed when it is made."""

    rule: Literal["linucb", "cppl"] = "linucb"
    n_components: Annotated[int, Field(ge=1)] = 16  # features made of text, at most
    # prompts after which features are made; until then choices are random
    collect: Annotated[int, Field(ge=2)] = 50
    # quality that one dollar outweighs: utility is score - cost_weight * dollars. Where only a
    # winner or a ranking is known, the winner's quality is 1, that of the last 0, and of those
    # between evenly spaced by place
    cost_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    seed: Annotated[int, Field(ge=0)] = 0  # of all random choices

    def make_rule(self, n_arms: int, n_features: int, seed: int) -> Preselector:
        """Make the rule for prompts of so many features; all candidates begin equal."""
        sizes = n_arms, n_arms * n_features, seed
        return LinUcb(*sizes) if self.rule == "linucb" else Cppl(*sizes, spread=0.0)


def parse_settings(texts: Sequence[str]) -> RouterSettings:
    """Read settings written ``key=value``; raise ConfigError.

    Example:
        >>> parse_settings(["rule=cppl", "seed=3"]).seed
        3
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"a setting is written key=value, got {text!r}")
        values[key] = value
    return parse_row(RouterSettings, values, "settings of the router")


def read_rows(model: type[_Row], lines: Iterable[str], source: str) -> Iterator[_Row]:
    """Read lines of JSON; a ConfigError says which line of ``source`` is wrong."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            row = json.loads(line, object_pairs_hook=unique_keys)
        except ValueError as error:
            raise ConfigError(f"{where}: not a line of JSON ({error})") from None
        if not isinstance(row, dict):
            raise ConfigError(f"{where}: a JSON object is needed, got {line.strip()}")
        yield parse_row(model, row, where)


def read_candidates(path: Path) -> tuple[RoutedCandidate, ...]:
    """Read candidates from a JSON file: names, or objects with ``name`` and ``usd``.

    Raises ConfigError.
    """
    check_file(path, "candidates file")
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = json.loads(text, object_pairs_hook=unique_keys)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the candidates {path} cannot be read: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, str | dict) for row in rows):
        raise ConfigError(f"{path}: a list of names, or of objects with a `name`, is needed")
    objects = [{"name": row} if isinstance(row, str) else row for row in rows]
    return tuple(parse_row(RoutedCandidate, row, str(path)) for row in objects)


def read_history(path: Path) -> Iterator[Record]:
    """Read records from lines of JSON; raise ConfigError if the file or a line cannot be used."""
    check_file(path, "history")
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from read_rows(Record, file, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
