"""Makes candidates ready to be called: prompt compiled, provider checked, cost bounded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from bestarm_agent.assembly import Parts
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.exchange import Reply, Request
from bestarm_agent.domain.spend import usd
from bestarm_agent.errors import ConfigError
from bestarm_agent.fleet import Fleet
from bestarm_agent.judges.base import Judge, JudgeModel
from bestarm_agent.judging import Panel, Seat
from bestarm_agent.prompts.checking import check_prompt
from bestarm_agent.prompts.rendering import CompiledPrompt, compile_prompt
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.program_task import CallsModels
from bestarm_agent.roster import Entry, Line, request_of
from bestarm_agent.schedule.caller import Attempts, Caller, RetryPolicy
from bestarm_agent.schedule.clock import Clock
from bestarm_agent.schedule.gate import Gate, Slot
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.schedule.waits import WaitBoard, loading_wait
from bestarm_agent.wording import unpriced


class Workshop:
    """Turns candidates into roster entries, each shared part made once.

    Args:
        fleet: the providers.
        examples: the dataset; prompts are checked against it, not empty.
        judge: scores replies.
        ledger: where calls are booked.
        policy: how often calls are repeated.
        clock: tells the time.
        board: is told why calls wait.
        every_bound: whether a candidate's price is bounded over all examples, which takes a moment
            where there are many; else by the longest one alone.
    """

    def __init__(
        self,
        fleet: Fleet,
        examples: Sequence[Example],
        judge: Judge,
        ledger: Ledger,
        *,
        policy: RetryPolicy,
        clock: Clock,
        board: WaitBoard,
        every_bound: bool = False,
    ) -> None:
        self._fleet = fleet
        self._examples = examples
        self._longest = longest_of(examples)
        self._judge = judge
        self._ledger = ledger
        self._policy = policy
        self._clock = clock
        self._board = board
        self._priced_by = examples if every_bound else (self._longest,)
        self._lines: dict[int, Line] = {}
        self._prompts: dict[PromptTemplate, CompiledPrompt] = {}
        self._fingerprints: dict[tuple[int, str], str] = {}

    def entries(self, candidates: Sequence[Candidate]) -> list[Entry]:
        """Make candidates ready; all prices that are missing are told at once.

        Raises:
            ConfigError: as with ``entry``.
        """
        fleet, judges = self._fleet, self._judge.models
        models = [(fleet.of(c.provider, c.model), c.model) for c in candidates]
        models += [(fleet.of(m.provider, m.name, m.options), m.name) for m in judges]
        self._check_prices(list({(id(p), m): (p, m) for p, m in models}.values()))
        return [self.entry(candidate) for candidate in candidates]

    def entry(self, candidate: Candidate) -> Entry:
        """Make a candidate ready.

        Raises:
            ConfigError: its model cannot be used, or its prompt names a field that is not there,
                or dollars are capped and its price is not known.
        """
        provider = self._fleet.of(candidate.provider, candidate.model)
        fingerprint = self._checked(provider, candidate.model)
        prompt = self._compiled(candidate.prompt)
        request = request_of(candidate, prompt, self._longest)
        line = self._line(provider, candidate.model)
        call = provider.bound(request)
        able = provider.capabilities(candidate.model)
        return Entry(
            candidate,
            prompt,
            line,
            fingerprint,
            bound=call + self.panel.bound(self._longest),
            usd=self._most(provider, candidate, prompt) if able.priced else None,
            price_source=able.price_source,
        )

    def _most(self, provider: Provider, candidate: Candidate, prompt: CompiledPrompt) -> float:
        """The most dollars that a call to a candidate can cost."""
        requests = (request_of(candidate, prompt, example) for example in self._priced_by)
        return usd(max(provider.bound(request).usd_nanos for request in requests))

    @cached_property
    def panel(self) -> Panel:
        """The judge, made ready.

        Raises:
            ConfigError: one of its models cannot be used, or dollars are capped and its price is
                not known.
        """
        panel = Panel(self._judge, {model.key: self._seat(model) for model in self._judge.models})
        self._board.watch(panel.wait)
        return panel

    def _seat(self, model: JudgeModel) -> Seat:
        provider = self._fleet.of(model.provider, model.name, model.options)
        fingerprint = self._checked(provider, model.name)
        return Seat(self._line(provider, model.name), fingerprint)

    def _checked(self, provider: Provider, model: str) -> str:
        key = (id(provider), model)
        if key not in self._fingerprints:
            provider.check(model)
            self._check_prices([(provider, model)])
            self._check_counts(provider, model)
            self._fingerprints[key] = provider.fingerprint(model)
        return self._fingerprints[key]

    def _check_prices(self, models: Sequence[tuple[Provider, str]]) -> None:
        if self._ledger.budget.usd_nanos is None:
            return
        unknown = []
        for provider, model in models:
            provider.check(model)  # a model that cannot be used at all is told first
            if not provider.capabilities(model).priced:
                unknown.append(f"{provider.name}/{model}")
        if unknown:
            raise ConfigError(
                f"budget.usd is set, but {unpriced(unknown)}; or cap calls or tokens instead"
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
            prompt = compile_prompt(template)
            check_prompt(prompt, self._examples)
            self._prompts[template] = prompt
        return self._prompts[template]

    def _line(self, provider: Provider, model: str) -> Line:
        if id(provider) not in self._lines:
            caller = Caller(
                provider,
                self._ledger,
                self._policy,
                self._clock,
                self._board,
                rules=partial(self._fleet.rules, provider),
                shared=self._fleet.shared(provider),
            )
            gate = Gate(self._fleet.in_flight(provider, model))
            self._lines[id(provider)] = Line(provider, caller, gate)
            self._board.watch(partial(loading_wait, provider))
            if isinstance(provider, CallsModels):
                provider.send_by(self._sent)
        return self._lines[id(provider)]

    async def _sent(self, provider: Provider, request: Request) -> Reply:
        """Answer a call that a program makes: in line with all others, booked by the program."""
        if isinstance(provider, CallsModels):  # it may wait for a place that its own caller holds
            return await provider.generate(request)
        line = self._line(provider, request.model)
        slot = Slot.outside(*line.gates(request.model))
        await slot.reenter()
        try:
            return await line.caller.apart().call(request, slot, Attempts(None))
        finally:
            slot.leave()


def workshop_of(
    parts: Parts,
    ledger: Ledger,
    *,
    clock: Clock,
    board: WaitBoard | None = None,
    examples: Sequence[Example] | None = None,
) -> Workshop:
    """A study's workshop.

    Args:
        parts: the study.
        ledger: where calls are booked.
        clock: tells the time.
        board: is told why calls wait, if anybody wants to know.
        examples: what prompts are checked against, if not the study's dataset.
    """
    limits = parts.config.limits
    return Workshop(
        parts.fleet,
        parts.examples if examples is None else examples,
        parts.judge,
        ledger,
        policy=RetryPolicy(limits.max_attempts, limits.timeout_seconds),
        clock=clock,
        board=board or WaitBoard(),
        every_bound=parts.config.objective.by_price,
    )


def longest_of(examples: Sequence[Example]) -> Example:
    """The example with the longest inputs, in characters."""
    return max(examples, key=lambda one: sum(len(str(value)) for value in one.inputs.values()))
