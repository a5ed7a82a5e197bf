"""Makes candidates ready to be called: prompt compiled, provider checked, cost bounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from bestarm_agent.config.prompts.templates import CompiledPrompt, check_prompt
from bestarm_agent.config.study.schema import StudyConfig
from bestarm_agent.config.yaml.documents import locating
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.request_reply import Reply, Request
from bestarm_agent.domain.spend import usd
from bestarm_agent.engine.calls.attempt import RetryPolicy
from bestarm_agent.engine.calls.judge_calls import JudgeClient, JudgeModelClient
from bestarm_agent.engine.calls.retrying import Call, ProviderClient
from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.concurrency_gates import Gate, Slot
from bestarm_agent.engine.limits.wait_reasons import WaitBoard, endpoint_wait, loading_wait
from bestarm_agent.engine.run.candidate_pool import ReadyCandidate, request_of
from bestarm_agent.engine.setup.providers import ProviderSet
from bestarm_agent.engine.setup.study_parts import StudyParts
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import Judge, JudgeModel
from bestarm_agent.providers.base import Provider

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
    """Turn candidates into pool entries, each shared part made once."""

    def __init__(
        self,
        providers: ProviderSet,
        examples: Sequence[Example],
        judge: Judge,
        ledger: Ledger,
        *,
        config: StudyConfig,
        clock: Clock,
        board: WaitBoard,
    ) -> None:
        self._providers = providers
        self._examples = examples
        self._longest = longest_of(examples)
        self._judge = judge
        self._ledger = ledger
        limits = config.limits
        self._policy = RetryPolicy(limits.max_attempts, limits.timeout_seconds)
        self._clock = clock
        self._board = board
        self._priced_by = examples if config.objective.by_price else (self._longest,)
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
        self._board.watch(judge_client.wait)
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
        if self._ledger.budget.usd_nanos is None:
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
        budget = self._ledger.budget
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
                self._ledger,
                self._policy,
                self._clock,
                self._board,
                Gate(self._providers.in_flight(provider, model)),
                rules=partial(self._providers.rules, provider),
                shared=self._providers.shared(provider),
            )
            self._board.watch(partial(loading_wait, provider))
            self._board.watch(partial(endpoint_wait, provider))
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


@dataclass(frozen=True, slots=True)
class PreparedCandidates:
    """Candidates ready to be called, under one budget."""

    entries: list[ReadyCandidate]
    factory: CandidateFactory
    ledger: Ledger
    board: WaitBoard


def prepare(
    parts: StudyParts,
    candidates: Sequence[Candidate],
    ledger: Ledger,
    clock: Clock,
    *,
    examples: Sequence[Example] | None = None,
) -> PreparedCandidates:
    """Check candidates and make them ready to be called; digests of large weights take a while."""
    board = WaitBoard()
    factory = CandidateFactory(
        parts.providers,
        parts.examples if examples is None else examples,
        parts.judge,
        ledger,
        config=parts.config,
        clock=clock,
        board=board,
    )
    return PreparedCandidates(factory.entries(candidates), factory, ledger, board)


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
