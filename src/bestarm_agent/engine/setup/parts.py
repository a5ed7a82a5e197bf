"""The parts of a study, read and checked: dataset, candidates, providers, judge, budget and rule.

``assemble`` reads them from a configuration, and ``prepare`` makes candidates ready to be called:
prompts compiled, providers checked, costs bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import cast

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets.gold_labels import Label, load_labels
from bestarm_agent.config.datasets.slices import slices_of
from bestarm_agent.config.prompts.templates import CompiledPrompt, check_prompt
from bestarm_agent.config.study.dataset_and_scorer import ScorerSpec
from bestarm_agent.config.study.grid import expand
from bestarm_agent.config.study.inputs import check_fields, read_examples, read_prompts
from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.config.study.objective import ObjectiveSpec
from bestarm_agent.config.study.run_options import SelectorSpec, StopSpec
from bestarm_agent.config.study.schema import StudyConfig
from bestarm_agent.config.user_functions import load_object
from bestarm_agent.config.yaml.documents import locating, placing
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.example import Example, Slice, each_drawn
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import Budget, usd
from bestarm_agent.engine.call import Call, ProviderClient, RetryPolicy
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.judging import JudgeClient, JudgeModelClient, left_out
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.concurrency_gates import Gate, Slot
from bestarm_agent.engine.limits.wait_reasons import WaitBoard, endpoint_wait, loading_wait
from bestarm_agent.engine.mode import Mode, OpenMode
from bestarm_agent.engine.pool import ReadyCandidate, request_of
from bestarm_agent.engine.record import Size, axes_of
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.providers import ProviderSet
from bestarm_agent.errors import ConfigError, PluginError, counted, nearest
from bestarm_agent.judges.base import Judge, JudgeModel
from bestarm_agent.judges.groups import MeasuredJudge
from bestarm_agent.judges.registry import check_examples, create_judge
from bestarm_agent.plugins.registry import is_path
from bestarm_agent.providers.base import Provider
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


@dataclass(frozen=True, slots=True)
class StudyParts:
    """Everything that a configuration names, read and checked; no model is loaded yet."""

    study: LoadedStudy  # the configuration, and where it lies
    candidates: tuple[Candidate, ...]  # what is compared
    prompts: Mapping[str, PromptTemplate]  # the prompt templates by name
    examples: tuple[Example, ...]  # the dataset, without those kept back
    kept_back: tuple[Example, ...]  # examples that only the winner answers, in a random order
    slices: tuple[Slice, ...]  # groups of them that are looked at by themselves
    providers: ProviderSet  # the providers
    judge: Judge  # scores replies
    labels: tuple[Label, ...]  # gold scores of some answers
    budget: Budget  # the caps, a share of the grid turned into pulls
    notices: tuple[str, ...]  # what was done to the grid that the user should know
    mode: Mode  # what the run is for

    @property
    def config(self) -> StudyConfig:
        """The configuration."""
        return self.study.config

    @property
    def judge_priced(self) -> bool:
        """True if the prices of the judge's models are known."""
        return all(self.providers.able(model).priced for model in self.judge.models)


def assemble(
    study: LoadedStudy,
    catalog: Catalog,
    open_mode: OpenMode = open_selection,
    *,
    examples: Sequence[Example] | None = None,
) -> StudyParts:
    """Read and check everything that a configuration names; raise ConfigError if it is wrong."""
    config, base_dir = study.config, study.base_dir
    with locating(partial(study.places.located, ("dataset",))):
        rows = tuple(examples) if examples is not None else read_examples(config.dataset, base_dir)
        shown, kept_back = _kept_back(rows, config)
        found = each_drawn(shown, config.repeats)
    with locating(partial(study.places.located, ("slices",))):
        slices = slices_of(found, config.slices.by)
    mode, judge = open_mode(study, found, catalog)
    prompts = read_prompts(config.prompts, base_dir, catalog, study.places)
    with locating(partial(study.places.located, ("prompts",))):
        fixed = check_fields(prompts, config.dataset, found)
    providers = ProviderSet(config, base_dir, catalog, study.places)
    notices = left_out(judge, found, providers.able) if judge.models else []
    expansion = expand(config, prompts, providers.params, study.places)
    unused = _same_for_all(fixed, expansion.candidates, providers)
    cells = len(expansion.candidates) * len(found)
    budget = config.budget.caps(cells)
    repeated = _repeat_notices(config, expansion.candidates, providers)
    with locating(partial(study.places.located, ("labels",))):
        labels = load_labels(base_dir / config.labels) if config.labels else ()
    return StudyParts(
        study=study,
        candidates=expansion.candidates,
        prompts=prompts,
        examples=found,
        kept_back=kept_back,
        slices=slices,
        providers=providers,
        judge=judge,
        labels=labels,
        budget=budget,
        notices=(*expansion.notices, *unused, *notices, *repeated),
        mode=mode,
    )


def _kept_back(
    rows: tuple[Example, ...], config: StudyConfig
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Part the rows of a dataset into those of the selection and those kept back from it."""
    if config.confirm is None or config.gate is not None or config.certify is not None:
        return rows, ()
    drawn = config.confirm.drawn(len(rows), config.selector.seed)
    held = set(drawn)
    shown = tuple(row for number, row in enumerate(rows) if number not in held)
    return shown, tuple(rows[number] for number in drawn)


def _repeat_notices(
    config: StudyConfig, candidates: Sequence[Candidate], providers: ProviderSet
) -> list[str]:
    """Warn of draws that are alike."""
    if config.repeats == 1:
        return []
    cold = [one for one in candidates if one.params.get("temperature") == 0]
    able = [providers.of(one.provider, one.model).capabilities(one.model) for one in cold]
    alike = sum(not (one.by_example or one.by_inputs) for one in able)
    if not alike:
        return []
    return [
        f"repeats: {counted(alike, 'candidate')} at temperature 0, where {config.repeats} draws "
        f"are (nearly) alike and all paid for; raise the temperature, or leave `repeats` out"
    ]


def _same_for_all(
    fixed: Sequence[str], candidates: Sequence[Candidate], providers: ProviderSet
) -> list[str]:
    """Warn of prompts that use no field, except for records and programs, which need none."""
    used = set()
    for candidate in candidates:
        able = providers.of(candidate.provider, candidate.model).capabilities(candidate.model)
        if not (able.by_example or able.by_inputs):
            used.add(candidate.prompt.name)
    return [
        f"prompt `{name}` uses no field of the dataset: it is the same for all examples"
        for name in fixed
        if name in used
    ]


_MOST_MODELS = 10


def price_unknown_message(models: Sequence[str]) -> str:
    """Say that prices of some ``provider/model`` are missing, and how to give them.

    Example:
        >>> price_unknown_message(["openai/a", "openai/b"])[:60]
        'the prices of openai/a and openai/b are not known, and an un'
    """
    more = len(models) - _MOST_MODELS
    named = [*models[:_MOST_MODELS], *([f"{more} more"] if more > 0 else [])]
    *others, last = named
    names = f"{', '.join(others)} and {last}" if others else last
    subject = f"prices of {names} are" if others else f"price of {names} is"
    return (
        f"the {subject} not known, and an unknown price is not $0; give one where the model is "
        f"listed: `options: {{price: {{input: 0.10, output: 0.50}}}}`, in dollars per million "
        f"tokens; a judge's as `model_options: {{price: ...}}`, a program's as "
        f"`options: {{usd_per_call: 0.001}}`, that of recorded answers as `usd` in their rows"
    )


class CandidateFactory:
    """Turns candidates into pool entries under one budget, each shared part made once.

    Attributes:
        ledger: pays all calls.
        board: tells what calls wait for.
        ready: the candidates that a run began with, or was gone on with.
    """

    def __init__(
        self, parts: StudyParts, ledger: Ledger, clock: Clock, examples: Sequence[Example]
    ) -> None:
        self.ledger = ledger
        self.board = WaitBoard()
        self.ready: list[ReadyCandidate] = []
        self._config = parts.config
        self._providers = parts.providers
        self._examples = examples
        self._longest = longest_of(examples)
        self._judge = parts.judge
        limits = parts.config.limits
        self._policy = RetryPolicy(limits.max_attempts, limits.timeout_seconds)
        self._clock = clock
        self._priced_by = examples if parts.config.objective.by_price else (self._longest,)
        self._clients: dict[int, ProviderClient] = {}
        self._prompts: dict[PromptTemplate, CompiledPrompt] = {}
        self._fingerprints: dict[tuple[int, str], str] = {}

    def entries(self, candidates: Sequence[Candidate]) -> list[ReadyCandidate]:
        """Make candidates ready; all prices that are missing are told at once."""
        providers, judges = self._providers, self._judge.models
        models = [(providers.of(c.provider, c.model), c.model) for c in candidates]
        models += [(providers.of(m.provider, m.name, m.options), m.name) for m in judges]
        self._check_prices(list({(id(p), m): (p, m) for p, m in models}.values()))
        return [self.entry(candidate) for candidate in candidates]

    def entry(self, candidate: Candidate) -> ReadyCandidate:
        """Make a candidate ready.

        Raises:
            ConfigError: its model cannot be used, or its prompt names a field that is not there,
                or dollars are capped and its price is not known.
        """
        provider = self._providers.of(candidate.provider, candidate.model)
        fingerprint = self._checked(provider, candidate.model)
        prompt = self._compiled(candidate.prompt)
        request = request_of(candidate, prompt, self._longest)
        client = self._client(provider, candidate.model)
        call = provider.bound(request)
        able = provider.capabilities(candidate.model)
        return ReadyCandidate(
            candidate,
            prompt,
            client,
            fingerprint,
            bound=call + self.judge_client.bound(self._longest),
            usd=self._most(provider, candidate, prompt) if able.priced else None,
            price_source=able.price_source,
        )

    def _most(self, provider: Provider, candidate: Candidate, prompt: CompiledPrompt) -> float:
        requests = (request_of(candidate, prompt, example) for example in self._priced_by)
        return usd(max(provider.bound(request).usd_nanos for request in requests))

    @cached_property
    def judge_client(self) -> JudgeClient:
        """The judge, made ready."""
        judge_client = JudgeClient(
            self._judge,
            {model.key: self.model_client(model) for model in self._judge.models},
        )
        self.board.watch(judge_client.wait)
        return judge_client

    def model_client(self, model: JudgeModel) -> JudgeModelClient:
        """Make a model ready that no candidate uses; raises ConfigError as ``entry`` does."""
        provider = self._providers.of(model.provider, model.name, model.options)
        fingerprint = self._checked(provider, model.name)
        return JudgeModelClient(self._client(provider, model.name), fingerprint)

    def _checked(self, provider: Provider, model: str) -> str:
        key = (id(provider), model)
        if key not in self._fingerprints:
            self._providers.check(provider, model)
            self._check_prices([(provider, model)])
            self._check_counts(provider, model)
            self._fingerprints[key] = self._providers.fingerprint(provider, model)
        return self._fingerprints[key]

    def _check_prices(self, models: Sequence[tuple[Provider, str]]) -> None:
        if self.ledger.budget.usd_nanos is None:
            return
        unknown = []
        for provider, model in models:
            self._providers.check(provider, model)  # an unusable model is reported first
            if not provider.capabilities(model).priced:
                unknown.append(f"{provider.name}/{model}")
        if unknown:
            with locating(partial(self._providers.places.located, ("budget", "usd"))):
                raise ConfigError(
                    f"budget.usd is set, but {price_unknown_message(unknown)}; or cap calls or "
                    f"tokens instead"
                )

    def _check_counts(self, provider: Provider, model: str) -> None:
        budget = self.ledger.budget
        capped = budget.tokens is not None or budget.gpu_seconds is not None
        if capped and not provider.capabilities(model).counted:
            raise ConfigError(
                f"budget.tokens or budget.gpu_minutes is set, but nothing bounds what a call to "
                f"{provider.name}/{model} takes of them; give the model the options "
                f"`max_tokens` and `max_gpu_seconds`, or cap calls instead"
            )

    def _compiled(self, template: PromptTemplate) -> CompiledPrompt:
        if template not in self._prompts:
            prompt = CompiledPrompt(template)
            with locating(partial(self._providers.places.located, ("prompts",))):
                check_prompt(prompt, self._examples)
            self._prompts[template] = prompt
        return self._prompts[template]

    def _client(self, provider: Provider, model: str) -> ProviderClient:
        if id(provider) not in self._clients:
            self._clients[id(provider)] = ProviderClient(
                provider,
                self.ledger,
                self._policy,
                self._clock,
                self.board,
                Gate(self._providers.in_flight(provider, model)),
                rules=partial(self._providers.rules, provider),
                shared=self._providers.shared(provider),
            )
            self.board.watch(partial(loading_wait, provider))
            self.board.watch(partial(endpoint_wait, provider))
            provider.set_sender(self._sent)
        return self._clients[id(provider)]

    async def _sent(self, provider: Provider, request: Request) -> Reply:
        """Answer a call that a program makes: in line with all others, charged to the program."""
        if provider.calls_models:  # it may wait for a place that its own caller holds
            return await provider.generate(request)
        client = self._client(provider, request.model).unrecorded()
        call = Call(client, "", request, slot=Slot.outside(*client.gates(request.model)))
        await call.slot.reenter()
        try:
            return await client.send(call)
        finally:
            call.let_go()


def prepare(
    parts: StudyParts,
    candidates: Sequence[Candidate],
    ledger: Ledger,
    clock: Clock,
    *,
    examples: Sequence[Example] | None = None,
) -> CandidateFactory:
    """Check candidates and make them ready to be called; digests of large weights take a while."""
    factory = CandidateFactory(
        parts, ledger, clock, parts.examples if examples is None else examples
    )
    factory.ready = factory.entries(candidates)
    return factory


def check_prices(config: StudyConfig, entries: Sequence[ReadyCandidate]) -> None:
    """Check that what is to be decided by dollars can be; raise ConfigError if not."""
    per_dollar = config.selector.per == "dollar"
    if not (per_dollar or config.objective.by_price):
        return
    key = "selector.per is `dollar`" if per_dollar else f"objective is `{config.objective.name}`"
    if unknown := list(dict.fromkeys(entry.model for entry in entries if entry.usd is None)):
        raise ConfigError(f"{key}, but {price_unknown_message(unknown)}")
    if per_dollar and not any(entry.usd for entry in entries):
        raise ConfigError(f"{key}, but no candidate costs anything; leave it at `call`")


def longest_of(examples: Sequence[Example]) -> Example:
    """Return the example with the longest inputs, in characters."""
    return max(examples, key=lambda one: sum(len(str(value)) for value in one.inputs.values()))
