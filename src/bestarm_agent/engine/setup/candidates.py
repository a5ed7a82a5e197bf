"""Candidates made ready to be called: prompts compiled, models checked, costs bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, partial

from bestarm_agent.config.attachments import brief
from bestarm_agent.config.fields import dotted
from bestarm_agent.config.prompts import CompiledPrompt, check_prompt, prefix_of
from bestarm_agent.domain.redaction import secrets_in
from bestarm_agent.domain.spend import Budget, Spend, usd
from bestarm_agent.domain.values import Candidate, Example, PromptTemplate, Reply, Request
from bestarm_agent.engine.call import Call, Model, ProviderClient, RetryPolicy
from bestarm_agent.engine.evaluate import ReadyCandidate, request_of
from bestarm_agent.engine.judging import JudgeClient
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.engine.limits.gates import Gate
from bestarm_agent.engine.limits.waits import WaitBoard, provider_wait
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.errors import ConfigError, ProviderError
from bestarm_agent.judges.base import JudgeModel
from bestarm_agent.providers.base import Capabilities, Provider

_MOST_MODELS = 10
_LOOKED_AT = 200  # examples from which the beginning of a prompt is read


class ReadyCandidates:
    """The candidates of a study, ready to be called under one budget; each shared part made once.

    Digests of large weights take a while.

    Args:
        parts: what the candidates are made from.
        clock: of waits and time-outs.
        ledger: pays all calls; None: one of the study's budget.
        candidates: those that a run begins with, or is gone on with; None: the study's.

    Attributes:
        ledger: pays all calls.
        board: tells what calls wait for.
        longest: the example with the longest inputs, in characters.
        ready: the given candidates, ready to be called.
        lacking: what this machine lacks for the calls, such as a key; None where it may lack
            nothing, because calls will be made.

    Raises:
        ConfigError: as ``entries`` does.
    """

    def __init__(
        self,
        parts: StudyParts,
        clock: Clock,
        ledger: Ledger | None = None,
        candidates: Sequence[Candidate] | None = None,
        *,
        calls: bool = True,
    ) -> None:
        self.lacking: dict[str, None] | None = None if calls else {}
        self.ledger = Ledger(parts.budget) if ledger is None else ledger
        self.board = WaitBoard()
        self._parts = parts
        self._clock = clock
        # the example with the longest inputs, in characters
        self.longest = max(
            parts.examples, key=lambda row: sum(len(str(brief(v))) for v in row.inputs.values())
        )
        # the example with most images and pages of files
        self._largest: dict[PromptTemplate, Example | None] = {}
        self._clients: dict[int, ProviderClient] = {}
        self._prompts: dict[PromptTemplate, CompiledPrompt] = {}
        self._prefixes: dict[tuple[PromptTemplate, int], tuple[str, ...]] = {}
        self._models: dict[tuple[int, str], Model] = {}
        self.ready = self.entries(parts.candidates if candidates is None else candidates)

    def entries(self, candidates: Sequence[Candidate]) -> list[ReadyCandidate]:
        """Make candidates ready; all prices that are missing are told at once.

        Raises:
            ConfigError: a model cannot be used, or a prompt names a field that is not there, or
                a price is not known that a cap or the choice depends on.
        """
        # All models are checked before any candidate is made ready, so that prices that are missing
        # are named in one error, the judge's among them, and not one at each attempt to begin.
        of, judges = self._parts.providers.of, self._parts.judge.models
        models = [(of(c.provider, c.model), c.model) for c in candidates]
        models += [(of(m.provider, m.name, m.options), m.name) for m in judges]
        self._check(models)
        entries = [self.entry(candidate) for candidate in candidates]
        self._check_prices(entries)
        return entries

    def entry(self, candidate: Candidate) -> ReadyCandidate:
        """Make a candidate ready, whose model was checked."""
        provider = self._parts.providers.of(candidate.provider, candidate.model)
        prompt = self._compiled(candidate.prompt)
        capabilities = provider.capabilities(candidate.model)
        largest = self._largest[candidate.prompt]
        if largest is not None and not capabilities.images:
            raise ConfigError(
                f"{candidate.provider}/{candidate.model} takes no images and files, which prompt "
                f"`{candidate.prompt.name}` carries; compare models that do (if it does, say so: "
                f"`options: {{images: true}}`)"
            )
        reads_all = prompt.reads_lists or self._parts.config.objective.by_price
        looked_at = self._parts.examples if reads_all else (self.longest,)
        bound = Spend()
        for example in looked_at if largest is None else (*looked_at, largest):
            request = request_of(candidate, prompt, example)
            if request.uses_tools and not (capabilities.tools or capabilities.by_example):
                raise ConfigError(
                    f"{prompt.called} has tools, or calls of them (example `{example.id}`), which "
                    f"{provider.name}/{candidate.model} does not take; models behind an API do, "
                    f"such as those that vLLM serves"
                )
            # Longest by characters is a guess at what costs most; images and pages are not in the
            # characters, so the example with most of them is looked at too. The loop raises the
            # bound where an example turns out to cost more.
            bound = bound.highest(provider.bound(request))  # refuses what cannot be sent
        return ReadyCandidate(
            candidate,
            prompt,
            self._model(provider, candidate.model),
            bound=bound + self.judge_client.bound(self.longest),
            usd=usd(bound.usd_nanos) if capabilities.priced else None,
            price_source=capabilities.price_source,
            prefix=self._prefix(candidate.prompt, capabilities),
        )

    def _prefix(self, template: PromptTemplate, capabilities: Capabilities) -> tuple[str, ...]:
        key = (template, capabilities.cache_from)
        if key not in self._prefixes:
            rows = [row for row in self._parts.examples if not row.draw]
            # Of N rows every (1 + N // 200)-th is compared, which leaves at most 200: what they all
            # begin with is taken for constant, and a request that begins otherwise is sent without
            # a prefix.
            some = rows[:: 1 + len(rows) // _LOOKED_AT]  # each request is compared with it
            self._prefixes[key] = prefix_of(self._compiled(template), some, capabilities.keeps)
        return self._prefixes[key]

    @cached_property
    def judge_client(self) -> JudgeClient:
        """The judge, made ready."""
        judge = self._parts.judge
        return JudgeClient(judge, {model.key: self.model(model) for model in judge.models})

    def model(self, model: JudgeModel) -> Model:
        """Make a model ready that no candidate uses; raises ConfigError as ``entries`` does."""
        provider = self._parts.providers.of(model.provider, model.name, model.options)
        self._check([(provider, model.name)])
        return self._model(provider, model.name)

    @property
    def models(self) -> list[Model]:
        """All models that were made ready."""
        return [*self._models.values()]

    def _model(self, provider: Provider, name: str) -> Model:
        key = (id(provider), name)
        if key not in self._models:
            with self._parts.providers.at(provider.name, name):
                fingerprint = provider.fingerprint(name)
            self._models[key] = Model(self._client(provider, name), name, fingerprint)
        return self._models[key]

    def _check(self, models: Iterable[tuple[Provider, str]]) -> None:
        """Check that models can be used, and that what the budget caps is known of them."""
        distinct = {(id(provider), name): (provider, name) for provider, name in models}
        for provider, model in distinct.values():
            with self._parts.providers.at(provider.name, model):
                provider.check(model)
            self._check_machine(provider, model)
        self.check_caps(self.ledger.budget, distinct.values())

    def _check_machine(self, provider: Provider, model: str) -> None:
        try:
            with self._parts.providers.at(provider.name, model):
                provider.check_machine(model)
        except ConfigError as error:
            if self.lacking is None:
                raise
            self.lacking[str(error)] = None

    def check_caps(
        self, budget: Budget, models: Iterable[tuple[Provider, str]] | None = None
    ) -> None:
        """Raise ConfigError if a model, by default one in use, does not tell what a budget caps."""
        if models is None:
            models = [(model.client.provider, model.name) for model in self._models.values()]
        unpriced, why = list[str](), ""
        counts = budget.tokens is not None or budget.gpu_seconds is not None
        for provider, model in models:
            capabilities, name = provider.capabilities(model), f"{provider.name}/{model}"
            if budget.usd_nanos is not None and not capabilities.priced:
                unpriced.append(name)
                why = capabilities.unpriced or why
            if counts and not capabilities.counted:
                raise ConfigError(
                    f"budget.tokens or budget.gpu_minutes is set, but nothing bounds what a call "
                    f"to {name} takes of them; give the model the options `max_tokens` and "
                    f"`max_gpu_seconds`, or cap calls instead"
                )
        if unpriced:
            with self._parts.study.positions.at("budget", "usd"):
                raise ConfigError(
                    f"budget.usd is set, but {price_unknown_message(unpriced, why)}; or cap calls "
                    f"or tokens instead"
                )

    def _check_prices(self, entries: Sequence[ReadyCandidate]) -> None:
        """Check that what is to be decided by dollars can be."""
        config = self._parts.config
        per_dollar = config.selector.per == "dollar"
        if not (per_dollar or config.objective.by_price):
            return
        objective = f"objective is `{config.objective.name}`"
        key = "selector.per is `dollar`" if per_dollar else objective
        unknown = {str(e.model): e.model.able.unpriced for e in entries if e.usd is None}
        if unknown:
            why = next(filter(None, unknown.values()), "")
            raise ConfigError(f"{key}, but {price_unknown_message([*unknown], why)}")
        if entries and per_dollar and not any(entry.usd for entry in entries):
            raise ConfigError(f"{key}, but no candidate costs anything; leave it at `call`")

    def _compiled(self, template: PromptTemplate) -> CompiledPrompt:
        if template not in self._prompts:
            parts = self._parts
            prompt = CompiledPrompt(template, folder=parts.folder, links=parts.config.dataset.links)
            with parts.study.positions.at("prompts"):
                rows = [row for row in parts.examples if not row.draw]
                self._largest[template] = check_prompt(prompt, [*rows, *parts.kept_back])
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
            self.board.watch(partial(provider_wait, provider))
            provider.set_sender(self._sent)
        return self._clients[id(provider)]

    async def _sent(self, provider: Provider, request: Request) -> Reply:
        """Answer a call that a program makes: in line with all others, charged to the program."""
        if provider.calls_models:  # it may wait for a place that its own caller holds
            return await provider.generate(request)
        client = self._client(provider, request.model).unrecorded()
        call = Call(Model(client, request.model), request)
        async with call.in_turn():
            while True:
                try:
                    return await client.send(call)
                except ProviderError as error:
                    if not call.is_refitted(error):
                        raise


def check_new(candidates: Sequence[Candidate], there: Sequence[Candidate]) -> None:
    """Check that candidates differ from those that are there, and from each other.

    Raises:
        ConfigError: two are equal, or have the same label; or one has a parameter that is called
            like a secret, which the log leaves out.
    """
    known = {candidate.id: candidate.label for candidate in there}
    for candidate in candidates:
        name = f"candidate {candidate.label!r}"
        for path in secrets_in(candidate.params):
            raise ConfigError(
                f"{name} has the parameter `{dotted(path)}`, which is called like a secret and "
                f"would not be kept in the log; hand it to the provider by an option, as "
                f"${{NAME_OF_THE_VARIABLE}}"
            )
        if candidate.id in known:
            raise ConfigError(
                f"{name} is the same as {known[candidate.id]!r}: model, prompt and parameters are "
                f"equal; change one of them"
            )
        if candidate.label in known.values():
            raise ConfigError(f"{name} is there already; give another label")
        known[candidate.id] = candidate.label


def price_unknown_message(models: Sequence[str], why: str = "") -> str:
    """Say that prices of some ``provider/model`` are missing, and how to give them."""
    more = len(models) - _MOST_MODELS
    *others, last = [*models[:_MOST_MODELS], *([f"{more} more"] if more > 0 else [])]
    subject = f"prices of {', '.join(others)} and {last} are" if others else f"price of {last} is"
    if why:
        return f"the {subject} not known: {why}"
    return (
        f"the {subject} not known, and an unknown price is not $0; give one where the model is "
        f"listed: `options: {{price: {{input: 0.10, output: 0.50}}}}`, in dollars per million "
        f"tokens; a judge's as `model_options: {{price: ...}}`, a program's as "
        f"`options: {{usd_per_call: 0.001}}`, that of recorded answers as `usd` in their rows"
    )
