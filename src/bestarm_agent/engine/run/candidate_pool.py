"""The candidates of a run: which can be called now, which the budget can pay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from bestarm_agent.config.prompts.templates import CompiledPrompt
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.domain.rows import NO_ROWS, Rows
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.calls.retrying import Call, Origin, ProviderClient
from bestarm_agent.engine.ledger import Ledger
from bestarm_agent.engine.limits.concurrency_gates import Gate, Slot
from bestarm_agent.engine.limits.model_limiter import WHOLE_PROVIDER, ModelLimiter
from bestarm_agent.engine.run.model_blocks import ModelBlocks
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import Capabilities
from bestarm_agent.selectors.types import BoolArray, both

_SEEDS = 1_000_000  # between two draws: candidates that differ in their seeds share no draw


@dataclass(slots=True)
class ReadyCandidate:
    """A candidate, ready to be called.

    Attributes:
        bound: highest cost of a pair met so far, judging included, with one attempt;
            starts with the longest example's.
        usd: the most dollars that a call to it can cost, without judging: for the longest example,
            or for any where the objective depends on prices; None if not known.
    """

    candidate: Candidate
    prompt: CompiledPrompt
    client: ProviderClient
    fingerprint: str  # all that decides its replies besides the request
    bound: Spend
    usd: float | None = None
    price_source: str | None = None  # where its price comes from, for people
    broken: str | None = None  # why it can no longer be asked

    def request(self, example: Example) -> Request:
        """Render the prompt for one example."""
        request = request_of(self.candidate, self.prompt, example)
        able = self.client.provider.capabilities(request.model)
        return request_of_draw(request, example.draw, able) if example.draw else request

    def call(self, example: Example, origin: Origin = Origin.FRESH) -> Call:
        """Prepare a call for one example; nothing is reserved for it."""
        return Call(self.client, self.fingerprint, self.request(example), origin)

    @property
    def model(self) -> str:
        """Provider and model, as users write them."""
        return f"{self.candidate.provider}/{self.candidate.model}"

    @property
    def limiter(self) -> ModelLimiter:
        """The limiter of its model, shared with all that call the model."""
        return self.client.limiter(self.candidate.model)


def request_of_draw(first: Request, number: int, able: Capabilities) -> Request:
    """Return the request of a draw, numbered from 0; only its seed differs from the first one's."""
    params = first.params
    if number and ("seed" in params or (able.seed and "seed" in able.params)):
        seed = params.get("seed", 0)
        params = {**params, "seed": (seed if isinstance(seed, int) else 0) + number * _SEEDS}
    return replace(first, params=params, draw=number)


def request_of(candidate: Candidate, prompt: CompiledPrompt, example: Example) -> Request:
    """Render a candidate's prompt for one example."""
    rendered = prompt.render(example.inputs)
    return Request(
        model=candidate.model,
        text=rendered if isinstance(rendered, str) else None,
        messages=() if isinstance(rendered, str) else rendered,
        params=candidate.params,
        candidate=candidate.label,
        example=example.row_id if example.draw else example.id,
        inputs=example.inputs,
    )


class CandidatePool:
    """All candidates of a run, in the order of their rows."""

    def __init__(self, in_flight: int) -> None:
        self.candidates: list[ReadyCandidate] = []
        self.gate = Gate(in_flight)  # limits the calls in flight over all providers
        self.blocks = ModelBlocks()  # masks those whose models wait to be loaded
        self._models: list[tuple[ProviderClient, ModelLimiter]] = []
        self._model_of = np.empty(0, dtype=np.intp)
        self._usable = np.empty(0, dtype=np.bool_)
        self._highest_bound = Spend()

    def add(self, candidates: Sequence[ReadyCandidate]) -> None:
        """Add candidates as the next rows."""
        numbers = {id(limiter): i for i, (_, limiter) in enumerate(self._models)}
        for one in candidates:
            if id(one.limiter) not in numbers:
                numbers[id(one.limiter)] = len(self._models)
                self._models.append((one.client, one.limiter))
            self._highest_bound = _highest(self._highest_bound, one.bound)
        self.candidates.extend(candidates)
        self.blocks.add(
            [(one.client.provider, one.candidate.model, one.client.gate) for one in candidates]
        )
        self._model_of = np.array(
            [numbers[id(one.limiter)] for one in self.candidates], dtype=np.intp
        )
        self._refresh()

    def slot(self, candidate: ReadyCandidate, when_left: Callable[[], None]) -> Slot:
        """Take a place for one call of a candidate."""
        gates = candidate.client.gates(candidate.candidate.model)
        return Slot(*gates, self.gate, when_left=when_left)

    def room(self) -> int:
        """Return how many pairs may be asked at once, for any candidates."""
        free = [room for room in map(_room, self._models) if room]
        return int(min(self.gate.free, *free)) if free else 0

    def usable(self) -> BoolArray | None:
        """Return (K,) whether a candidate was not given up; None if none was."""
        return None if self._usable.all() else self._usable

    def available(self) -> BoolArray | None:
        """Return (K,) whether a candidate can be called, now or after a wait; None if all can."""
        answers = np.array(
            [client.broken is None and limiter.may_answer for client, limiter in self._models],
            dtype=np.bool_,
        )
        answering = None if answers.all() else answers[self._model_of]
        return both(both(self.usable(), answering), self.blocks.mask())

    def busy(self) -> BoolArray | None:
        """Return (K,) whether a candidate's next call would have to wait; None if none would."""
        is_full = np.array([_room(model) <= 0 for model in self._models], dtype=np.bool_)
        return is_full[self._model_of] if is_full.any() else None

    def opens_in(self) -> float:
        """Return the seconds until a rate limit lets more be called; infinite if none does."""
        if not self.gate.free:
            return math.inf
        waits = (
            limiter.opens_in
            for client, limiter in self._models
            if client.broken is None and client.gate.free and not limiter.room
        )
        return min(waits, default=math.inf)

    def affordable(self, ledger: Ledger, *, later: bool = False) -> BoolArray | None:
        """Return (K,) whether the budget pays a candidate's next pull; None if it pays any.

        ``later``: once all that is reserved now was given back.
        """
        pull = Spend(pulls=1)
        if ledger.affords(self._highest_bound + pull, later=later):
            return None
        return np.array(
            [ledger.affords(one.bound + pull, later=later) for one in self.candidates],
            dtype=np.bool_,
        )

    def payable(self, ledger: Ledger, at_most: int, affordable: BoolArray | None) -> int:
        """Count the pulls, up to ``at_most``, that the budget pays for any ``affordable`` rows."""
        upper = self._highest_bound
        if affordable is not None:
            pairs = zip(self.candidates, affordable, strict=True)
            upper = reduce(_highest, (one.bound for one, can in pairs if can), Spend())
        return ledger.room_for(upper + Spend(pulls=1), at_most)

    def raise_bound(self, candidate: ReadyCandidate, bound: Spend) -> None:
        """Note that a pull of a candidate can cost ``bound``."""
        candidate.bound = _highest(candidate.bound, bound)
        self._highest_bound = _highest(self._highest_bound, bound)

    def note_obstacle(self, candidate: ReadyCandidate, error: Exception) -> None:
        """Stop asking what a fatal error of a candidate's call makes pointless."""
        if isinstance(error, ProviderError):
            self._withdraw(candidate, error)
        else:  # no reply can be judged
            self._break(self.candidates, f"no reply can be judged: {error}")

    def broken(self) -> dict[str, str]:
        """Return the labels of the candidates that can no longer be asked, with the reason."""
        return {one.candidate.label: one.broken for one in self.candidates if one.broken}

    def _withdraw(self, candidate: ReadyCandidate, error: ProviderError) -> None:
        if error.kind in WHOLE_PROVIDER:
            candidate.client.broken = candidate.client.broken or str(error)
        whole_model = error.kind is not FailureKind.BAD_REQUEST
        gone = [
            one
            for one in self.candidates
            if one is candidate
            or one.client.broken
            or (whole_model and one.model == candidate.model)
        ]
        self._break(gone, str(error))

    def _break(self, candidates: Sequence[ReadyCandidate], reason: str) -> None:
        for one in candidates:
            one.broken = one.broken or reason
        self._refresh()

    def _refresh(self) -> None:
        self._usable = np.array([one.broken is None for one in self.candidates], dtype=np.bool_)


def _room(model: tuple[ProviderClient, ModelLimiter]) -> float:
    client, limiter = model
    return min(client.limiters.free, limiter.room) if client.broken is None else 0


def excluded(allowed: BoolArray | None) -> Rows:
    """Return the rows that cannot be asked."""
    return NO_ROWS if allowed is None else Rows.of(np.flatnonzero(~allowed).tolist())


def _highest(one: Spend, other: Spend) -> Spend:
    return Spend(
        max(one.pulls, other.pulls),
        max(one.calls, other.calls),
        max(one.tokens, other.tokens),
        max(one.usd_nanos, other.usd_nanos),
        max(one.gpu_seconds, other.gpu_seconds),
    )
