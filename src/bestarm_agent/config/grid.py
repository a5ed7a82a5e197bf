"""From a study to its candidates: the grid, less what is excluded, plus explicit ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TypeAlias

from bestarm_agent.config.combinations import Combination, grid
from bestarm_agent.config.explicit import explicit_candidate as explicit_candidate
from bestarm_agent.config.explicit import explicit_combination, make_candidate
from bestarm_agent.config.labels import label_all
from bestarm_agent.config.places import Places
from bestarm_agent.config.schema import StudyConfig
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.digest import canonical
from bestarm_agent.errors import nearest

Capabilities: TypeAlias = Callable[[str, str], frozenset[str] | None]

_MOST_NAMED = 5
_LIKE_A_TYPO = 0.75


@dataclass(frozen=True, slots=True)
class Expansion:
    """The candidates of a study.

    Attributes:
        candidates: in the order of the file, the grid first; ids and labels are unique.
        notices: what was left out or merged, one sentence each.
    """

    candidates: tuple[Candidate, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """What becomes one candidate.

    Attributes:
        combination: with the parameters that its model takes.
        dropped: names of those that it does not take.
        size: how many combinations came to be the same.
    """

    combination: Combination
    dropped: frozenset[str]
    size: int


def expand(
    config: StudyConfig,
    prompts: Mapping[str, PromptTemplate],
    capabilities: Capabilities,
    places: Places | None = None,
) -> Expansion:
    """Return the candidates of a study.

    The grid is ``models`` x all of ``prompts`` x ``params``, less ``exclude``; the explicit
    ``candidates`` follow. A parameter of the whole study that a model does not take is left out for
    it, and combinations that thereby become equal are merged.

    Args:
        config: the study.
        prompts: the templates of ``config.prompts`` by name, in order.
        capabilities: names of the sampling parameters that (provider, model) takes; None if
            unknown, then all are sent.
        places: says where things stand, for messages.

    Raises:
        ConfigError: an exclusion matches nothing, a name is unknown, a model does not take a
            parameter that was given for it alone, two candidates are the same, or none is left.
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


_Taken: TypeAlias = Mapping[tuple[str, str], frozenset[str] | None]


def _check_spelling(config: StudyConfig, taken: _Taken, places: Places) -> None:
    """Refuse a shared parameter that no model takes but that looks like one that some do."""
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
    """Leave out what models do not take, and put together what is then the same."""
    groups: dict[tuple[object, ...], _Group] = {}
    for found in combinations:
        names = taken[found.model.provider, found.model.name]
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
    """Yield a sentence for each model that does not take all parameters."""
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
