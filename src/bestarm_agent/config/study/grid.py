"""Expand a study into its candidates: the grid and the explicit ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TypeAlias

from bestarm_agent.config.fields import shown
from bestarm_agent.config.study.combinations import Combination, grid, label_all
from bestarm_agent.config.study.explicit_candidates import explicit_candidate as explicit_candidate
from bestarm_agent.config.study.explicit_candidates import explicit_combination, make_candidate
from bestarm_agent.config.study.schema import StudyConfig
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.digest import canonical
from bestarm_agent.errors import nearest

Capabilities: TypeAlias = Callable[[str, str], frozenset[str] | None]

_MOST_NAMED = 5
_LIKE_A_TYPO = 0.75


@dataclass(frozen=True, slots=True)
class Expansion:
    """The candidates of a study, with unique ids and labels; the grid comes first.

    ``notices`` are sentences about parameters left out and candidates merged.
    """

    candidates: tuple[Candidate, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """The combinations that become one candidate."""

    combination: Combination  # the combination, with the parameters that its model supports
    dropped: frozenset[str]  # names of the parameters that it does not support
    size: int  # number of combinations that became equal


def expand(
    config: StudyConfig,
    prompts: Mapping[str, PromptTemplate],
    capabilities: Capabilities,
    places: Places | None = None,
) -> Expansion:
    """Return the candidates of a study.

    The grid is ``models`` x ``prompts`` x ``params`` without ``exclude``; the explicit
    ``candidates`` follow. A parameter of the whole study that a model does not support is left out
    for it; combinations that become equal are merged.

    Args:
        config: the study.
        prompts: the templates of ``config.prompts`` by name, in order.
        capabilities: returns the sampling parameters that (provider, model) supports; None if
            unknown, then all are sent.
        places: positions in the study, for messages.

    Raises:
        ConfigError: an exclusion matches nothing, a name is unknown, a model does not support a
            parameter given for it only, two candidates are the same, or none is left.
    """
    places = places or Places("the study")
    combinations = [
        *grid(config, tuple(prompts), places),
        *(explicit_combination(config, c, places, i) for i, c in enumerate(config.candidates)),
    ]
    models = {(found.model.provider, found.model.name) for found in combinations}
    taken = {model: capabilities(*model) for model in models}
    _check_spelling(config, taken, places)
    groups = _grouped(combinations, taken, places)
    labels = label_all([group.combination for group in groups])
    candidates = [
        make_candidate(group.combination, label, prompts, places)
        for group, label in zip(groups, labels, strict=True)
    ]
    _check_distinct(candidates, groups, places)
    return Expansion(tuple(candidates), tuple(_notices(groups, labels)))


_AT_LEAST = {"temperature": 0, "top_p": 0, "max_tokens": 1, "max_completion_tokens": 1}

_Taken: TypeAlias = Mapping[tuple[str, str], frozenset[str] | None]


def _check_spelling(config: StudyConfig, taken: _Taken, places: Places) -> None:
    """Refuse a shared parameter that no model supports if it looks like a typo."""
    known: set[str] = set()
    for names in taken.values():
        if names is None:
            return
        known |= names
    for name in config.params:
        if name not in known and get_close_matches(name, known, cutoff=_LIKE_A_TYPO):
            raise places.error(
                f"no model takes the parameter `params.{name}`; {nearest(name, known)}",
                *("params", name),
            )


def _grouped(combinations: Sequence[Combination], taken: _Taken, places: Places) -> list[_Group]:
    groups: dict[tuple[object, ...], _Group] = {}
    for found in combinations:
        names = taken[found.model.provider, found.model.name]
        _check_numbers(found, names or frozenset(), places)
        dropped = frozenset() if names is None else frozenset(found.params) - names
        _check_own(found, dropped, names or frozenset(), places)
        params = {name: value for name, value in found.params.items() if name not in dropped}
        key = (found.at, found.model_label, found.prompt, canonical(params))
        before = groups.get(key, _Group(found, frozenset(), 0))
        groups[key] = _Group(
            replace(found, params=params), before.dropped | dropped, before.size + 1
        )
    return list(groups.values())


def _check_own(
    found: Combination, dropped: frozenset[str], names: frozenset[str], places: Places
) -> None:
    for name in found.own:
        if name in dropped:
            raise places.error(
                f"{found.model.model} does not take the parameter `{name}`; {nearest(name, names)}",
                *found.own[name],
            )


def _check_numbers(found: Combination, names: frozenset[str], places: Places) -> None:
    """Refuse a value that no model takes, before a server does; null leaves the choice to it."""
    for name in _AT_LEAST.keys() & names & found.params.keys():
        value, least = found.params[name], _AT_LEAST[name]
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
            raise places.error(
                f"parameter `{name}` must be a number of at least {least}, got {shown(value)}",
                *found.own.get(name, ("params", name)),
            )


def _check_distinct(
    candidates: Sequence[Candidate], groups: Sequence[_Group], places: Places
) -> None:
    first: dict[str, str] = {}
    for candidate, group in zip(candidates, groups, strict=True):
        label = first.setdefault(candidate.id, candidate.label)
        if label != candidate.label:
            raise places.error(
                f"candidates `{label}` and `{candidate.label}` are the same: equal model, prompt "
                "text and parameters; take one of them away",
                *group.combination.at,
            )


def _notices(groups: Sequence[_Group], labels: Sequence[str]) -> Iterator[str]:
    by_model: dict[tuple[str, frozenset[str]], list[int]] = {}
    for i, group in enumerate(groups):
        if group.dropped:
            by_model.setdefault((group.combination.model_label, group.dropped), []).append(i)
    for (model, dropped), members in by_model.items():
        names = " and ".join(f"`{name}`" for name in sorted(dropped))
        before = sum(groups[i].size for i in members)
        if before == len(members):
            yield f"{model} does not take {names}: left out"
        else:
            named = ", ".join(labels[i] for i in members[:_MOST_NAMED])
            more = ", ..." if len(members) > _MOST_NAMED else ""
            yield (
                f"{model} does not take {names}: {before} combinations are {len(members)} "
                f"candidate{'s' * (len(members) > 1)} ({named}{more})"
            )
