"""The usual mode of a run: the search for the best candidate by the configured rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import cast

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.file_errors import Positions, options_at
from bestarm_agent.config.functions import load_object
from bestarm_agent.config.goal_specs import QUANTITIES, SCORE, ObjectiveSpec, SelectorSpec, StopSpec
from bestarm_agent.config.input_specs import ScorerSpec
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.domain.events import Started
from bestarm_agent.domain.values import Candidate, Example
from bestarm_agent.engine.record import Size, axes_of, planned_answers
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.collection import Collection
from bestarm_agent.errors import PluginError, counted, nearest
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.groups import MeasuredJudge
from bestarm_agent.judges.registry import check_examples, create_judge
from bestarm_agent.plugins import is_path
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import (
    SELECTORS,
    make_selector,
    selector_names,
    selector_params,
)
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.rules.ucb_e import UcbE
from bestarm_agent.stats.history import HistoryModel


@dataclass(frozen=True, slots=True)
class Selection:
    """Looks for the best candidate by the configured rule."""

    chosen: SelectorSpec
    objective: ObjectiveSpec = field(default_factory=ObjectiveSpec)
    stop: StopSpec = field(default_factory=StopSpec)
    repeats: int = 1  # draws of every example
    rule: type[Rule] | None = None  # None: that of the name in ``chosen``
    positions: Positions = field(default_factory=lambda: Positions("the study"))

    def pairs(
        self, size: Size, candidates: Sequence[Candidate] = (), history: HistoryModel | None = None
    ) -> Pairs:
        """Make the rule.

        Raises:
            ConfigError: there is no such rule or parameter, or the rule needs a budget in answers.
        """
        chosen, seed = self.chosen, self.chosen.seed
        # An earlier run of the same seed took the examples in the same order, so which of them its
        # history knows would tell what comes next. An order of its own knows nothing of history.
        if history is not None:
            seed = (seed + int(history.factors.digest, 16)) % 2**63
        problem = replace(
            size.problem(per_dollar=chosen.per == "dollar"),
            axes=axes_of(candidates) if candidates else None,
            seed=seed,
            confidence=self.objective.confidence_of_each(chosen.level),
            stop_when_separated=chosen.stop_when_separated and self.objective.is_plain,
            within=self.stop.within,
            draws=self.repeats,
            for_new=self.stop.for_ == "new" and self.objective.is_plain,
        )
        learned = {} if history is None else {"history": history}
        try:
            pairs = make_selector(self.rule or chosen.name, problem, **chosen.params, **learned)
        except (ValueError, PluginError) as error:
            key = "params" if chosen.name in selector_names() and chosen.params else "name"
            raise self.positions.error(str(error), "selector", key) from error
        if problem.for_new and not (pairs.rule.common_examples and pairs.rule.top_k == 1):
            message = (
                f"stop.for: {pairs.rule.name} does not compare candidates on common examples, so "
                "nothing can be shown for new ones; take `auto` or `racing`, or leave it out"
            )
            raise self.positions.error(message, "stop", "for")
        return pairs

    def notices(self, pairs: Pairs, size: Size) -> tuple[str, ...]:
        """Say which settings of the rule will not do what they are there for."""
        if not pairs.rule.seeks_best:
            return ()
        return tuple(_useless(self.chosen, pairs.rule, size))

    def result(self, pairs: Pairs, standing: Standing) -> None:
        """Return None: the standing names the best."""


def _useless(chosen: SelectorSpec, rule: Rule, size: Size) -> Iterator[str]:
    n = size.n_candidates
    batch = min(rule.batch, size.n_examples) if isinstance(rule, UcbE) else 1
    planned = planned_answers(size.budget, None)
    if n == 1:
        yield "there is only one candidate: nothing is compared until another one joins"
    elif rule.n_tried < n:
        yield (
            f"the budget is too small for {n:,} candidates: {rule.name} tries {rule.n_tried:,} of "
            f"them, drawn at random; with {2 * n:,} answers it tries all"
        )
    elif planned is not None and planned < n * batch:
        each = f", each pulled {batch} times in a row (`params: {{batch: ...}}`)" * (batch > 1)
        yield (
            f"the budget allows {counted(planned, 'answer')} for {n} candidates{each}: some will "
            f"never be tried; allow at least {n * batch}"
        )
    if chosen.per == "dollar" and not rule.heeds_costs:
        yield (
            f"selector.per: dollar changes nothing for {chosen.name}: it asks for answers whatever "
            f"they cost; auto, ucb-e and uniform look at costs"
        )


def open_selection(
    study: LoadedStudy,
    examples: Sequence[Example],
    catalog: Catalog,
    independent: Sequence[int] = (),
) -> tuple[Selection | Collection, Judge]:
    """Read the mode and its judge from a study; an ``OpenMode``.

    Raises:
        ConfigError: the judge cannot be made, an example lacks what it needs, or the rule does not
            learn from history.
    """
    config, chosen = study.config, study.config.selector
    judge = _placed_judge(config.scorer, study, catalog, "scorer")
    with study.positions.at("dataset"):
        check_examples(judge, examples)
    measures = {}
    for name, spec in sorted(config.measures.items()):  # a log keeps no order of keys
        measures[name] = _placed_judge(spec, study, catalog, "measures", name)
        check_examples(measures[name], examples)
    try:
        rule = find_rule(chosen.name, study.base_dir, catalog)
    except PluginError as error:
        raise study.positions.error(str(error), "selector", "name") from error
    # names of plug-ins are looked up only where they are needed: that reads all that is installed
    is_known = chosen.history and (rule is not None or chosen.name in selector_names())
    if is_known and "history" not in selector_params(rule or chosen.name):
        learners = [name for name in SELECTORS.built_in if "history" in selector_params(name)]
        raise study.positions.error(
            f"selector.history: {chosen.name} does not learn from history; choose one that does "
            f"({', '.join(learners)}), or leave the history out",
            *("selector", "history"),
        )
    both = MeasuredJudge(judge, measures) if measures else judge
    _check_measures(study, both.measures)
    if judge.scored_by == "people":
        _check_collection(study)
        return Collection(chosen.seed), both
    mode = Selection(
        chosen=chosen,
        objective=config.objective,
        stop=config.stop,
        repeats=config.repeats,
        rule=rule,
        positions=study.positions,
    )
    return mode, both


def recorded_selection(started: Started, folder: Path) -> Selection | Collection:
    """Rebuild the mode of a stored run from its log; a rule of the user's is imported."""
    config = started.config
    chosen = SelectorSpec.model_validate(config.get("selector", {}))
    if started.scored_by == "people":
        return Collection(chosen.seed)
    objective = ObjectiveSpec.model_validate(config.get("objective", {}))
    stop = StopSpec.model_validate(config.get("stop", {}))
    rule = find_rule(chosen.name, folder / started.base)
    return Selection(chosen, objective, stop, config.get("repeats", 1), rule=rule)


def _check_measures(study: LoadedStudy, names: Sequence[str]) -> None:
    """Refuse names that mean two things, and limits of what has no name; raises ConfigError."""
    for name in names:
        if name in (*QUANTITIES, SCORE) or names.count(name) > 1:
            raise study.positions.error(
                f"a check is called `{name}`, which is the name of another measure, or of a "
                "quantity of calls; give it another `name`",
                "scorer",
            )
    for limit in study.config.objective.constraints:
        if limit.name not in (*QUANTITIES, SCORE, *names):
            hint = nearest(limit.name, names) if names else f"there are {', '.join(QUANTITIES)}"
            message = f"`{limit.name}` is not one of `measures`; {hint}"
            raise study.positions.error(message, "objective", "subject_to", limit.name)


def _check_collection(study: LoadedStudy) -> None:
    """Refuse what has no meaning where people score the answers later; raises ConfigError."""
    config = study.config
    selector = config.selector.model_copy(update={"seed": 0, "confidence": None})
    is_set = {
        ("selector",): selector != SelectorSpec(),
        ("objective",): not config.objective.is_plain,
        ("stop",): config.stop != StopSpec(),
        ("confirm",): config.confirm is not None,
        ("gate",): config.gate is not None,
        ("certify",): config.certify is not None,
        ("optimize",): config.optimize is not None,
        ("repeats",): config.repeats > 1,
    }
    for key, has_value in is_set.items():
        if has_value:
            raise study.positions.error(
                f"{key[0]} does not go with the scorer `people`: all candidates are asked the same "
                f"examples, and people's labels decide; leave it out",
                *key,
            )


def _placed_judge(spec: ScorerSpec, study: LoadedStudy, catalog: Catalog, *key: str) -> Judge:
    """Create a judge; errors name the line of its key in the study."""
    try:
        with options_at(partial(study.positions.describe, *key)):
            return create_judge(spec.name, spec.options, catalog)
    except PluginError as error:
        raise study.positions.error(str(error), *key) from error


def find_rule(name: str, base_dir: Path, catalog: Catalog | None = None) -> type[Rule] | None:
    """Return the class of a rule given as an object or dotted path; None for a built-in name."""
    given = catalog.objects.get(("selectors", name)) if catalog is not None else None
    if given is not None:
        return cast("type[Rule]", given)
    if not is_path(name):
        return None
    return SELECTORS.load(name, imported=partial(load_object, base_dir=base_dir))
