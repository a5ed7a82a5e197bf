"""From a configuration to working parts: the dataset, the candidates, providers, judge, budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bestarm_agent.catalog import Catalog
from bestarm_agent.certifying.audit import Audit, set_up_audit
from bestarm_agent.config.documents import placing
from bestarm_agent.config.grid import expand
from bestarm_agent.config.loading import LoadedStudy
from bestarm_agent.config.objective import ObjectiveSpec
from bestarm_agent.config.places import Places
from bestarm_agent.config.running import SelectorSpec
from bestarm_agent.config.schema import StudyConfig
from bestarm_agent.datasets.labels import Label, load_labels
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import Budget
from bestarm_agent.fleet import Fleet
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import check_examples, create_judge
from bestarm_agent.judging import left_out
from bestarm_agent.materials import read_examples, read_prompts
from bestarm_agent.selectors.base import Selector
from bestarm_agent.selectors.registry import make_selector, selector_names, selector_params
from bestarm_agent.selectors.types import Problem
from bestarm_agent.selectors.ucb_e import UcbE
from bestarm_agent.stats.foresight import Lesson


@dataclass(frozen=True, slots=True)
class Parts:
    """What a configuration names, read and checked; no model is loaded and no call made yet.

    Attributes:
        study: the configuration, and where it lies.
        candidates: what is compared.
        prompts: the prompt templates by name.
        examples: what the candidates are tried on.
        fleet: the providers.
        judge: scores replies.
        labels: gold scores of some answers.
        budget: the caps, a share of the grid turned into pulls.
        notices: what was done to the grid that the user should know.
        audit: what is to be certified, in the place of finding the best; or None.
    """

    study: LoadedStudy
    candidates: tuple[Candidate, ...]
    prompts: Mapping[str, PromptTemplate]
    examples: tuple[Example, ...]
    fleet: Fleet
    judge: Judge
    labels: tuple[Label, ...]
    budget: Budget
    notices: tuple[str, ...]
    audit: Audit | None = None

    @property
    def config(self) -> StudyConfig:
        """The configuration."""
        return self.study.config


def assemble(
    study: LoadedStudy, catalog: Catalog, *, examples: Sequence[Example] | None = None
) -> Parts:
    """Read and check everything that a configuration names.

    Args:
        study: the configuration.
        catalog: where providers, judges and prompts are looked up.
        examples: the dataset, if it is not to be read from where the configuration says.

    Raises:
        ConfigError: something is missing or wrong.
    """
    config, base_dir = study.config, study.base_dir
    found = tuple(examples) if examples is not None else read_examples(config.dataset, base_dir)
    audit, judge = _judge(study, found, catalog)
    prompts = read_prompts(config.prompts, base_dir, catalog, study.places)
    fleet = Fleet(config, base_dir, catalog, study.places)
    notices = left_out(judge, found, fleet.able) if judge.models else []
    expansion = expand(config, prompts, fleet.params, study.places)
    parts = Parts(
        study=study,
        candidates=expansion.candidates,
        prompts=prompts,
        examples=found,
        fleet=fleet,
        judge=judge,
        labels=load_labels(base_dir / config.labels) if config.labels else (),
        budget=config.budget.caps(len(expansion.candidates) * len(found)),
        notices=(*expansion.notices, *notices),
        audit=audit,
    )
    rule = check_selector(parts, (len(parts.candidates), len(found)))
    notices = [
        *_in_vain(config.selector, rule),
        *_first_look(rule, parts.budget),
        *_all_wanted(rule),
    ]
    return replace(parts, notices=(*parts.notices, *notices))


def _judge(
    study: LoadedStudy, examples: Sequence[Example], catalog: Catalog
) -> tuple[Audit | None, Judge]:
    """The judge; with what is to be certified, if that is the question."""
    if study.config.certify is not None:
        return set_up_audit(study, examples, catalog)
    scorer = study.config.scorer
    with placing(partial(study.places.where, "scorer")):
        judge = create_judge(scorer.name, scorer.options, catalog)
    check_examples(judge, examples)
    return None, judge


def _in_vain(chosen: SelectorSpec, rule: Selector) -> tuple[str, ...]:
    """Say that working per dollar changes nothing for a rule that pulls its field alike."""
    if chosen.per != "dollar" or rule.heeds_costs:
        return ()
    return (
        f"selector.per: dollar changes nothing for {chosen.name}: it compares candidates on common "
        f"examples, and does not look at what they cost; auto, ucb-e and sysrs do",
    )


def _first_look(rule: Selector, budget: Budget) -> tuple[str, ...]:
    """Say that the budget ends before a rule that pulls in batches has seen every candidate."""
    n, pulls = rule.problem.n_candidates, budget.pulls
    if pulls is None or not isinstance(rule, UcbE):
        return ()
    batch = min(rule.batch, rule.problem.n_examples)
    if batch == 1 or n * batch <= pulls:
        return ()
    return (
        f"{rule.name} pulls a candidate {batch} times in a row, so a first look at all {n} takes "
        f"{n * batch:,} pairs, and the budget allows {pulls:,}: some will never be tried; set "
        f"`selector: {{name: {rule.name}, params: {{batch: {max(1, pulls // (4 * n))}}}}}`",
    )


def _all_wanted(rule: Selector) -> tuple[str, ...]:
    """Say that nothing will be asked, since no candidate is to be left out."""
    wanted, there = getattr(rule, "top_k", 1), rule.problem.n_candidates
    if wanted < there or there == 1:
        return ()
    return (
        f"selector.params.top_k is {wanted}, and there are {there} candidates: nothing is to be "
        f"found out about them, so nothing is asked; want fewer, or add candidates",
    )


def check_selector(parts: Parts, size: tuple[int, int]) -> Selector:
    """Check the selection rule's name and parameters by making one; return it.

    Args:
        parts: the study.
        size: numbers of candidates and examples.

    Raises:
        ConfigError: there is no such rule or parameter, or the rule needs a budget in pulls.
    """
    chosen, budget, places = parts.config.selector, parts.budget, parts.study.places
    _check_history(chosen, places)
    pulls = budget.pulls
    if pulls is None and chosen.per == "dollar" and budget.usd_nanos is not None:
        pulls = size[0] * size[1]  # as many as the dollars will turn out to pay for
    try:
        return build_selector(chosen, Problem(size[0], size[1], budget=pulls))
    except ValueError as error:
        key = "params" if chosen.name in selector_names() and chosen.params else "name"
        raise places.error(str(error), "selector", key) from error


def _check_history(chosen: SelectorSpec, places: Places) -> None:
    learners = [name for name in selector_names() if "history" in selector_params(name)]
    if chosen.history and chosen.name in selector_names() and chosen.name not in learners:
        raise places.error(
            f"selector.history: {chosen.name} does not learn from history; choose one that does "
            f"({', '.join(learners)}), or leave the history out",
            *("selector", "history"),
        )


def build_selector(
    chosen: SelectorSpec,
    problem: Problem,
    lesson: Lesson | None = None,
    objective: ObjectiveSpec | None = None,
) -> Selector:
    """Make the configured selection rule.

    Args:
        chosen: the rule and its settings.
        problem: what the rule is told, but for these settings.
        lesson: what it learned from history.
        objective: what is to be found; ``best`` if None. Where prices count, it is not for the rule
            to say when that is found.
    """
    objective = objective or ObjectiveSpec()
    problem = replace(
        problem,
        seed=chosen.seed,
        confidence=objective.level(chosen.level),
        stop_when_separated=chosen.stop_when_separated and not objective.by_price,
    )
    learned = {} if lesson is None else {"history": lesson}
    return make_selector(chosen.name, problem, **chosen.params, **learned)
