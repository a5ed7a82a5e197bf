"""The parts of a study, read and checked: dataset, candidates, providers, judge, budget and mode.

``assemble`` reads them from a configuration, and a ``CandidateFactory`` makes candidates ready to
be called: prompts compiled, providers checked, costs bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from bestarm_agent.config.candidates import expand
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets import Label, load_labels, read_examples, slices_of
from bestarm_agent.config.load import LoadedStudy, check_fields, read_prompts
from bestarm_agent.config.prompts import CompiledPrompt, check_prompt
from bestarm_agent.config.study import StudyConfig
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
from bestarm_agent.engine.setup.providers import ProviderSet
from bestarm_agent.engine.setup.selection import open_selection
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.judges.base import Judge, JudgeModel
from bestarm_agent.providers.base import Provider

_MOST_MODELS = 10


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
    config, base_dir, places = study.config, study.base_dir, study.places
    with places.locating("dataset"):
        rows = tuple(examples) if examples is not None else read_examples(config.dataset, base_dir)
        held: Sequence[int] = ()
        if config.confirm is not None and config.gate is None and config.certify is None:
            held = config.confirm.drawn(len(rows), config.selector.seed)
        out = set(held)
        shown = [row for number, row in enumerate(rows) if number not in out]
        found = each_drawn(shown, config.repeats)
    with places.locating("slices"):
        slices = slices_of(found, config.slices.by)
    mode, judge = open_mode(study, found, catalog)
    prompts = read_prompts(config.prompts, base_dir, catalog, places)
    with places.locating("prompts"):
        fixed = check_fields(prompts, config.dataset, found)
    providers = ProviderSet(config, base_dir, catalog, places)
    dropped = left_out(judge, found, providers.able) if judge.models else []
    candidates, merged = expand(config, prompts, providers.params, places)
    grid_notices = _grid_notices(candidates, providers, fixed, config.repeats)
    with places.locating("labels"):
        labels = load_labels(base_dir / config.labels) if config.labels else ()
    return StudyParts(
        study=study,
        candidates=candidates,
        prompts=prompts,
        examples=found,
        kept_back=tuple(rows[number] for number in held),
        slices=slices,
        providers=providers,
        judge=judge,
        labels=labels,
        budget=config.budget.caps(len(candidates) * len(found)),
        notices=(*merged, *grid_notices, *dropped),
        mode=mode,
    )


def _grid_notices(
    candidates: Sequence[Candidate], providers: ProviderSet, fixed: Sequence[str], repeats: int
) -> Iterator[str]:
    """Warn of prompts that use no field, ``fixed``, and of draws that are alike.

    Records and programs answer by the example, whatever is sent to them.
    """
    sent = []
    for one in candidates:
        able = providers.of(one.provider, one.model).capabilities(one.model)
        if not (able.by_example or able.by_inputs):
            sent.append(one)
    used = {one.prompt.name for one in sent}
    for name in fixed:
        if name in used:
            yield f"prompt `{name}` uses no field of the dataset: it is the same for all examples"
    alike = sum(one.params.get("temperature") == 0 for one in sent)
    if repeats > 1 and alike:
        yield (
            f"repeats: {counted(alike, 'candidate')} at temperature 0, where {repeats} draws are "
            f"(nearly) alike and all paid for; raise the temperature, or leave `repeats` out"
        )


class CandidateFactory:
    """Turns candidates into pool entries under one budget, each shared part made once.

    Digests of large weights take a while.

    Args:
        parts: what the candidates are made from.
        ledger: pays all calls.
        clock: of waits and time-outs.
        candidates: those that a run begins with, or is gone on with.

    Attributes:
        ledger: pays all calls.
        board: tells what calls wait for.
        ready: the given candidates, ready to be called.

    Raises:
        ConfigError: as ``entries`` does.
    """

    def __init__(
        self, parts: StudyParts, ledger: Ledger, clock: Clock, candidates: Sequence[Candidate]
    ) -> None:
        self.ledger = ledger
        self.board = WaitBoard()
        self._parts = parts
        self._clock = clock
        self._longest = longest_of(parts.examples)
        self._clients: dict[int, ProviderClient] = {}
        self._prompts: dict[PromptTemplate, CompiledPrompt] = {}
        self._fingerprints: dict[tuple[int, str], str] = {}
        self.ready = self.entries(candidates)

    def entries(self, candidates: Sequence[Candidate]) -> list[ReadyCandidate]:
        """Make candidates ready; all prices that are missing are told at once.

        Raises:
            ConfigError: a model cannot be used, or a prompt names a field that is not there, or
                dollars are capped and a price is not known.
        """
        of, judges = self._parts.providers.of, self._parts.judge.models
        models = [(of(c.provider, c.model), c.model) for c in candidates]
        models += [(of(m.provider, m.name, m.options), m.name) for m in judges]
        self._check_prices(list({(id(p), m): (p, m) for p, m in models}.values()))
        return [self.entry(candidate) for candidate in candidates]

    def entry(self, candidate: Candidate) -> ReadyCandidate:
        """Make a candidate ready."""
        provider = self._parts.providers.of(candidate.provider, candidate.model)
        fingerprint = self._checked(provider, candidate.model)
        prompt = self._compiled(candidate.prompt)
        able = provider.capabilities(candidate.model)
        bound = provider.bound(request_of(candidate, prompt, self._longest))
        most = bound.usd_nanos
        if self._parts.config.objective.by_price:  # that of any example, whatever its length
            requests = (request_of(candidate, prompt, one) for one in self._parts.examples)
            most = max(provider.bound(request).usd_nanos for request in requests)
        return ReadyCandidate(
            candidate,
            prompt,
            self._client(provider, candidate.model),
            fingerprint,
            bound=bound + self.judge_client.bound(self._longest),
            usd=usd(most) if able.priced else None,
            price_source=able.price_source,
        )

    @cached_property
    def judge_client(self) -> JudgeClient:
        """The judge, made ready."""
        judge = self._parts.judge
        clients = {model.key: self.model_client(model) for model in judge.models}
        return JudgeClient(judge, clients)

    def model_client(self, model: JudgeModel) -> JudgeModelClient:
        """Make a model ready that no candidate uses; raises ConfigError as ``entries`` does."""
        provider = self._parts.providers.of(model.provider, model.name, model.options)
        fingerprint = self._checked(provider, model.name)
        return JudgeModelClient(self._client(provider, model.name), fingerprint)

    def _checked(self, provider: Provider, model: str) -> str:
        key = (id(provider), model)
        if key not in self._fingerprints:
            self._parts.providers.check(provider, model)
            self._check_prices([(provider, model)])
            self._check_counts(provider, model)
            self._fingerprints[key] = self._parts.providers.fingerprint(provider, model)
        return self._fingerprints[key]

    def _check_prices(self, models: Sequence[tuple[Provider, str]]) -> None:
        if self.ledger.budget.usd_nanos is None:
            return
        unknown = []
        for provider, model in models:
            self._parts.providers.check(provider, model)  # an unusable model is reported first
            if not provider.capabilities(model).priced:
                unknown.append(f"{provider.name}/{model}")
        if unknown:
            with self._parts.study.places.locating("budget", "usd"):
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
            with self._parts.study.places.locating("prompts"):
                check_prompt(prompt, self._parts.examples)
            self._prompts[template] = prompt
        return self._prompts[template]

    def _client(self, provider: Provider, model: str) -> ProviderClient:
        if id(provider) not in self._clients:
            limits, providers = self._parts.config.limits, self._parts.providers
            self._clients[id(provider)] = ProviderClient(
                provider,
                self.ledger,
                RetryPolicy(limits.max_attempts, limits.timeout_seconds),
                self._clock,
                self.board,
                Gate(providers.in_flight(provider, model)),
                rules=partial(providers.rules, provider),
                shared=providers.shared(provider),
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


def price_unknown_message(models: Sequence[str]) -> str:
    """Say that prices of some ``provider/model`` are missing, and how to give them.

    Example:
        >>> price_unknown_message(["openai/a", "openai/b"])[:60]
        'the prices of openai/a and openai/b are not known, and an un'
    """
    more = len(models) - _MOST_MODELS
    named = [*models[:_MOST_MODELS], *([f"{more} more"] if more > 0 else [])]
    *others, last = named
    subject = f"prices of {', '.join(others)} and {last} are" if others else f"price of {last} is"
    return (
        f"the {subject} not known, and an unknown price is not $0; give one where the model is "
        f"listed: `options: {{price: {{input: 0.10, output: 0.50}}}}`, in dollars per million "
        f"tokens; a judge's as `model_options: {{price: ...}}`, a program's as "
        f"`options: {{usd_per_call: 0.001}}`, that of recorded answers as `usd` in their rows"
    )


def longest_of(examples: Sequence[Example]) -> Example:
    """Return the example with the longest inputs, in characters."""
    return max(examples, key=lambda one: sum(len(str(value)) for value in one.inputs.values()))
