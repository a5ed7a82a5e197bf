"""The candidates of a router, and the settings of its learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, nan
from typing import Any, Literal

import numpy as np

from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.preselection.rules.joint_features import arm_features
from bestarm_agent.preselection.rules.registry import make_preselector
from bestarm_agent.preselection.rules.types import FloatArray, PreselectionProblem

Source = Literal["text", "given", "embedding"]
Arms = Literal["own", "shared", "both"]

_WITH_THETA = ("cppl", "max-theta", "epsilon-greedy")


@dataclass(frozen=True, slots=True)
class RoutedCandidate:
    """A candidate, and what is known of it before it has answered anything."""

    name: str  # what users call it; unique
    usd: float | None = None  # dollars of one call, >= 0, or None if not known
    size: float | None = None  # billions of parameters, > 0, or None if not known
    # models of one family are likely to be good at the same prompts; "" if not known
    family: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a candidate needs a name that is not empty")
        if self.usd is not None and not (isfinite(self.usd) and self.usd >= 0):
            raise ConfigError(f"{self.name}: usd must be >= 0, got {self.usd}")
        if self.size is not None and not (isfinite(self.size) and self.size > 0):
            raise ConfigError(f"{self.name}: size must be > 0, got {self.size}")


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """Settings of a router, fixed when it is made.

    Attributes:
        source: "text" makes features of the prompts' text by itself, "embedding" of the vector
            that a model makes of it, "given" takes those that come with every prompt.
        arms: how candidates share what is learnt. "own" learns each apart, "shared" learns through
            price, size and family alone, "both" learns both.
        cost_weight: quality that one dollar outweighs: utility is score - cost_weight * dollars.
            Where only a winner or a ranking is known, the winner's quality is 1, that of the last
            0, and of those between evenly spaced by place.
    """

    rule: str = "linucb"
    params: Mapping[str, float] = field(default_factory=dict)  # the rule's own parameters
    source: Source = "text"
    analyzer: Literal["word", "char"] = "word"  # for text
    # the model that makes vectors, "provider/model"; with source "embedding" only
    embedder: str = ""
    n_components: int = 16  # features made of text or of its vector, at most
    arms: Arms = "both"
    collect: int = 50  # prompts after which features are made; until then choices are random
    cost_weight: float = 0.0
    seed: int = 0  # of all random choices

    def __post_init__(self) -> None:
        for key, known in (
            ("source", ("text", "given", "embedding")),
            ("analyzer", ("word", "char")),
            ("arms", ("own", "shared", "both")),
        ):
            if getattr(self, key) not in known:
                value = getattr(self, key)
                raise ConfigError(f"{key}: there is no {value!r}; {nearest(value, known)}")
        if (self.source == "embedding") != ("/" in self.embedder):
            raise ConfigError(
                "source `embedding` and `embedder`, a model such as "
                "openai/text-embedding-3-small, go together, got "
                f"source {self.source!r} and embedder {self.embedder!r}"
            )
        if self.n_components < 1 or self.collect < 2:
            raise ConfigError("n_components must be at least 1, and collect at least 2")
        if not (isfinite(self.cost_weight) and self.cost_weight >= 0):
            raise ConfigError(f"cost_weight must be >= 0, got {self.cost_weight}")
        try:  # a rule refuses its parameters, whatever it is made for
            make_preselector(self.rule, PreselectionProblem(2, 1, self.seed), **self.params)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def rule_params(self) -> dict[str, Any]:
        """Return the rule's parameters; where it learns a theta, all candidates begin equal."""
        start = {"spread": 0.0} if self.rule in _WITH_THETA else {}
        return {**start, **self.params}


def parse_settings(texts: Sequence[str]) -> RouterSettings:
    """Read settings written ``key=value``; a key that is no setting is the rule's parameter.

    Example:
        >>> parse_settings(["rule=thompson", "noise=0.2", "seed=3"]).params
        {'noise': 0.2}
    """
    values: dict[str, Any] = {}
    params: dict[str, float] = {}
    defaults = asdict(RouterSettings())
    del defaults["params"]
    kinds = {key: type(value) for key, value in defaults.items()}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"a setting is written key=value, got {text!r}")
        try:
            if key in kinds:
                values[key] = kinds[key](value)
            else:
                params[key] = float(value)
        except ValueError:
            known = nearest(key, kinds) if key not in kinds else "it needs a number"
            raise ConfigError(f"setting {key!r} cannot be {value!r}; {known}") from None
    if "steps" in params:
        params["steps"] = int(params["steps"])
    return RouterSettings(**values, params=params)


def check_candidates(candidates: Sequence[RoutedCandidate], settings: RouterSettings) -> None:
    """Check that candidates can be routed among; raises ConfigError."""
    names = [candidate.name for candidate in candidates]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two candidates are called {twice[0]!r}; names must differ")
    if len(names) < 2:
        raise ConfigError(f"a router chooses among at least 2 candidates, got {len(names)}")
    unpriced = [candidate.name for candidate in candidates if candidate.usd is None]
    if settings.cost_weight and unpriced:
        raise ConfigError(
            f"cost_weight is set, but the price of {unpriced[0]!r} is not known, and an unknown "
            f"price is not $0; give every candidate `usd`"
        )


def candidate_features(
    candidates: Sequence[RoutedCandidate], settings: RouterSettings, n_first: int | None = None
) -> FloatArray:
    """Return (n, q) features of the candidates.

    ``n_first`` is the number that the router was made with; those that joined later change none of
    their features. None: all.
    """
    families = tuple(candidate.family for candidate in candidates)
    own = settings.arms != "shared"
    if settings.arms == "own":
        return arm_features(np.zeros((len(families), 0)), ("",) * len(families))
    # prices and sizes span orders of magnitude: their logarithms are compared
    numbers = np.array([[_log(c.usd), _log(c.size)] for c in candidates])
    return arm_features(numbers, families, identity=own, n_first=n_first)


def parse_candidates(rows: Any) -> tuple[RoutedCandidate, ...]:  # noqa: ANN401 - outside text
    """Read candidates from JSON: names, or objects with ``name``, ``usd``, ``size``, ``family``.

    Example:
        >>> parse_candidates(["small", {"name": "large", "usd": 0.01}])[1].usd
        0.01
    """
    if not isinstance(rows, list):
        raise ConfigError("candidates must be a list of names, or of objects with a `name`")
    return tuple(_candidate(row) for row in rows)


def as_json(settings: RouterSettings, candidates: Sequence[RoutedCandidate]) -> dict[str, Any]:
    """Both as JSON, to be stored with what was learnt."""
    return {
        "settings": {**asdict(settings), "params": dict(settings.params)},
        "candidates": [asdict(candidate) for candidate in candidates],
    }


def _candidate(row: Any) -> RoutedCandidate:  # noqa: ANN401 - outside text
    if isinstance(row, str):
        return RoutedCandidate(row)
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        raise ConfigError(f"a candidate is a name or an object with a `name`, got {row!r}")
    known = ("name", "usd", "size", "family")
    for key in row:
        if key not in known:
            raise ConfigError(
                f"candidate {row['name']!r}: unknown key {key!r}; {nearest(key, known)}"
            )
    for key in ("usd", "size"):
        if not isinstance(row.get(key), int | float | None):
            raise ConfigError(f"candidate {row['name']!r}: {key} must be a number")
    return RoutedCandidate(row["name"], row.get("usd"), row.get("size"), row.get("family") or "")


def _log(value: float | None) -> float:
    return nan if not value else float(np.log(value))
