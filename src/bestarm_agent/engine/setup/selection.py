"""The mode that finds the best candidate, by a selection rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.study.dataset_and_scorer import ScorerSpec
from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.config.study.objective import ObjectiveSpec
from bestarm_agent.config.study.run_options import SelectorSpec, StopSpec
from bestarm_agent.config.user_functions import load_object
from bestarm_agent.config.yaml.documents import locating, placing
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.example import Example
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run.replay import Size, axes_of
from bestarm_agent.errors import PluginError, counted, nearest
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.groups import MeasuredJudge
from bestarm_agent.judges.registry import check_examples, create_judge
from bestarm_agent.plugins.registry import is_path
from bestarm_agent.selectors.history import HistoryModel
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import (
    SELECTORS,
    make_selector,
    selector_names,
    selector_params,
)
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.pulse import Pulse
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.selectors.types import Problem


@dataclass(frozen=True, slots=True)
class Selection:
    """Looks for the best candidate by the configured rule."""

    chosen: SelectorSpec
    objective: ObjectiveSpec = field(default_factory=ObjectiveSpec)
    places: Places = field(default_factory=lambda: Places("the study"))
    rule: type[Rule] | None = None
    stop: StopSpec = field(default_factory=StopSpec)
    baseline: str | None = None  # label of a candidate to which the winner will be compared

    def pairs(
        self, size: Size, candidates: Sequence[Candidate] = (), history: HistoryModel | None = None
    ) -> Pairs:
        """Make the rule.

        Raises:
            ConfigError: there is no such rule or parameter, or the rule needs a budget in pulls;
                or there is no such baseline.
        """
        problem = size.problem(per_dollar=self.chosen.per == "dollar")
        first = candidates[: size.n_candidates]
        if len(first) == size.n_candidates:
            problem = replace(problem, axes=axes_of(first))
        self._check_baseline([candidate.label for candidate in first])
        return self._rule(problem, history)

    def _rule(self, problem: Problem, history: HistoryModel | None) -> Pairs:
        chosen = self.chosen
        try:
            return build_selector(chosen, problem, history, self.objective, self.rule, self.stop)
        except (ValueError, PluginError) as error:
            key = "params" if chosen.name in selector_names() and chosen.params else "name"
            raise self.places.error(str(error), "selector", key) from error

    def _check_baseline(self, labels: Sequence[str]) -> None:
        name = self.baseline
        if name is not None and name not in labels:
            message = f"confirm.baseline: there is no candidate {name!r}; {nearest(name, labels)}"
            raise self.places.error(message, "confirm", "baseline")

    def notices(self, pairs: Pairs, size: Size) -> tuple[str, ...]:
        """Say which settings of the rule will not do what they are there for."""
        if not pairs.rule.seeks_best:
            return ()
        return (
            *_nothing_to_compare(size),
            *_costs_ignored(self.chosen, pairs.rule),
            *_first_batch_too_large(pairs.rule),
            *_all_wanted(pairs.rule),
        )

    def result(self, pairs: Pairs, standing: Standing) -> None:
        """Return None: the standing names the best."""


def open_selection(
    study: LoadedStudy, examples: Sequence[Example], catalog: Catalog
) -> tuple[Selection, Judge]:
    """Read the mode and its judge from a study; an ``OpenMode``.

    Raises:
        ConfigError: the judge cannot be made, an example lacks what it needs, or the rule does not
            learn from history.
    """
    config = study.config
    judge = _placed_judge(config.scorer, study, catalog, "scorer")
    with locating(partial(study.places.located, ("dataset",))):
        check_examples(judge, examples)
    if config.measures:
        judge = _with_measures(judge, study, examples, catalog)
    try:
        rule = find_rule(config.selector.name, study.base_dir, catalog)
    except PluginError as error:
        raise study.places.error(str(error), "selector", "name") from error
    _check_history(config.selector, study.places, rule)
    mode = Selection(
        config.selector,
        config.objective,
        study.places,
        rule,
        config.stop,
        None if config.confirm is None else config.confirm.baseline,
    )
    return mode, judge


def _with_measures(
    judge: Judge, study: LoadedStudy, examples: Sequence[Example], catalog: Catalog
) -> Judge:
    measures = {}
    for name, spec in sorted(study.config.measures.items()):  # a log keeps no order of keys
        measures[name] = _placed_judge(spec, study, catalog, "measures", name)
        check_examples(measures[name], examples)
    return MeasuredJudge(judge, measures)


def _placed_judge(spec: ScorerSpec, study: LoadedStudy, catalog: Catalog, *key: str) -> Judge:
    """Create a judge; errors name the line of its key in the study."""
    try:
        with placing(partial(study.places.where, *key)):
            return create_judge(spec.name, spec.options, catalog)
    except PluginError as error:
        raise study.places.error(str(error), *key) from error


def find_rule(name: str, base_dir: Path, catalog: Catalog | None = None) -> type[Rule] | None:
    """Return the class of a rule given as an object or dotted path; None for a built-in name."""
    given = catalog.objects.get(("selectors", name)) if catalog is not None else None
    if given is not None:
        return cast("type[Rule]", given)
    if not is_path(name):
        return None
    return SELECTORS.load(name, imported=partial(load_object, base_dir=base_dir))


def build_selector(
    chosen: SelectorSpec,
    problem: Problem,
    history: HistoryModel | None = None,
    objective: ObjectiveSpec | None = None,
    rule: type[Rule] | None = None,
    stop: StopSpec | None = None,
) -> Pairs:
    """Make the configured selection rule."""
    objective, stop = objective or ObjectiveSpec(), stop or StopSpec()
    problem = replace(
        problem,
        seed=chosen.seed,
        confidence=objective.level(chosen.level),
        stop_when_separated=chosen.stop_when_separated and objective.is_plain,
        within=stop.within,
    )
    learned = {} if history is None else {"history": history}
    return make_selector(rule or chosen.name, problem, **chosen.params, **learned)


def _check_history(chosen: SelectorSpec, places: Places, rule: type[Rule] | None = None) -> None:
    if not chosen.history or not (rule or chosen.name in selector_names()):
        return
    if "history" not in selector_params(rule or chosen.name):
        learners = [name for name in SELECTORS.built_in if "history" in selector_params(name)]
        raise places.error(
            f"selector.history: {chosen.name} does not learn from history; choose one that does "
            f"({', '.join(learners)}), or leave the history out",
            *("selector", "history"),
        )


def _costs_ignored(chosen: SelectorSpec, rule: Rule) -> tuple[str, ...]:
    if chosen.per != "dollar" or rule.heeds_costs:
        return ()
    return (
        f"selector.per: dollar changes nothing for {chosen.name}: it compares candidates on common "
        f"examples, and does not look at what they cost; auto and sysrs do",
    )


def _first_batch_too_large(rule: Rule) -> tuple[str, ...]:
    """Warn if the budget ends before a rule that pulls in batches has seen every candidate."""
    n, pulls = rule.problem.n_candidates, rule.problem.budget
    if pulls is None or not isinstance(rule, UcbE | Pulse):
        return ()
    batch = min(rule.batch, rule.problem.n_examples)
    if batch == 1 or n * batch <= pulls:
        return ()
    return (
        f"{rule.name} pulls a candidate {batch} times in a row, so a first look at all {n} takes "
        f"{n * batch:,} pairs, and the budget allows {pulls:,}: some will never be tried; set "
        f"`selector: {{name: {rule.name}, params: {{batch: {max(1, pulls // (4 * n))}}}}}`",
    )


def _nothing_to_compare(size: Size) -> tuple[str, ...]:
    """Warn of a single candidate, and of a budget that leaves candidates unseen."""
    if size.n_candidates == 1:
        return ("there is only one candidate, so there is nothing to compare; add another one",)
    caps = [cap for cap in (size.budget.pulls, size.budget.calls) if cap is not None]
    if not caps or (most := min(caps)) >= size.n_candidates:
        return ()
    return (
        f"the budget allows {counted(most, 'pair')} for {size.n_candidates} candidates: some will "
        f"never be tried; allow at least {size.n_candidates}",
    )


def _all_wanted(rule: Rule) -> tuple[str, ...]:
    wanted, there = rule.top_k, rule.problem.n_candidates
    if wanted < there or there == 1:
        return ()
    return (
        f"selector.params.top_k is {wanted}, and there are {there} candidates: nothing is to be "
        f"found out about them, so nothing is asked; want fewer, or add candidates",
    )
