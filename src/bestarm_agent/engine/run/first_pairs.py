"""Holds pairs back until the first one of each model over the network was answered and judged."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from bestarm_agent.domain.outcome import Failed, Outcome
from bestarm_agent.engine.calls.judge_calls import JudgeClient
from bestarm_agent.engine.calls.retrying import Call, Origin
from bestarm_agent.engine.run.candidate_pool import CandidatePool, ReadyCandidate
from bestarm_agent.errors import Blame, FailureKind, JudgeError, ProviderError
from bestarm_agent.selectors.types import BoolArray, State
from bestarm_agent.store.run_state import RunState

_MOST_WITHOUT_VERDICT = 5  # first replies that the judge's model was not asked about

_Model: TypeAlias = tuple[int, str]


class FirstPairs:
    """Sends one pair of each model first; if the judge asks a model, one pair in all.

    While the first call to a model has to be repeated, no other pair begins.

    If a first pair fails and the candidate is not at fault, the run ends before others are paid
    for, and the pair stays pending. After a time-out the other models have been paid for, so only
    this model is left out. A first pair that ``resume`` sends again counts like any other pair.
    """

    def __init__(self, pool: CandidatePool, judge_client: JudgeClient, state: RunState) -> None:
        self.failed = False
        self._pool = pool
        self._models: list[_Model | None] = []  # (K,) the candidates' models; None: not held back
        self._untried: set[_Model] = set()  # models that never answered
        self._in_flight: dict[Call, _Model | None] = {}
        self._judge_over_network = judge_client.rate_limited
        self._has_score = False
        self._n_without_verdict = 0
        self._join()
        for seq in state.told:
            is_scored = state.told.state_at(seq) is State.DONE
            blame = None if is_scored else _blame_of(state.told[seq].outcome)
            self._note(self._models[state.asks.pair(seq)[0]], blame)

    def begin(self) -> None:
        """Forget what was in flight."""
        self.failed = False
        self._in_flight.clear()

    def mask(self) -> BoolArray | None:
        """Return (K,) whether a candidate may be asked; None if all may."""
        self._join()
        held = self._untried and self._untried.intersection(self._in_flight.values())
        if not held:
            return None
        return np.array([model not in held for model in self._models], dtype=np.bool_)

    def left(self) -> float:
        """Return how many pairs, >= 0, may be asked now, before ``mask`` changes."""
        self._join()
        if self._waits_for_judge:
            return 0 if self._in_flight else 1
        if not self._untried:
            return math.inf
        fails = any(
            one.n_failures for one, model in self._in_flight.items() if model in self._untried
        )
        return 0 if fails else 1

    def sent(self, candidate: int, call: Call) -> None:
        """Note that a pair is on its way."""
        self._join()
        model = self._in_flight[call] = self._models[candidate]
        call.is_first = call.origin is Origin.FRESH and model in self._untried

    def ended(self, candidate: int, call: Call, outcome: Outcome | None) -> None:
        """Note how a pair ended; one that ends the run gets an obstacle and stays pending."""
        model = self._models[candidate]
        self._in_flight.pop(call, None)
        if outcome is None:
            self.failed |= call.obstacle is not None and model in self._untried
        elif call.origin is Origin.FRESH and (obstacle := self._obstacle(model, outcome)):
            call.obstacle = obstacle
            if _hangs(outcome):
                self._untried.discard(model)
            else:
                self.failed = True
        else:
            self._note(model, _blame_of(outcome))

    @property
    def _waits_for_judge(self) -> bool:
        few = self._n_without_verdict < _MOST_WITHOUT_VERDICT
        return self._judge_over_network and not self._has_score and few

    def _join(self) -> None:
        for one in self._pool.candidates[len(self._models) :]:
            model = _model_of(one)
            self._models.append(model)
            if model is not None:
                self._untried.add(model)

    def _obstacle(self, model: _Model | None, outcome: Outcome) -> Exception | None:
        if not isinstance(outcome, Failed) or outcome.blame is Blame.CANDIDATE:
            return None
        stops = "model is left out" if _hangs(outcome) else "run stopped before it paid more"
        said = f"{outcome.message}; it was the first pair, so the {stops}"
        if outcome.blame is Blame.JUDGE:
            watched = self._judge_over_network or model is not None
            error = JudgeError(said, kind=outcome.kind, blame=outcome.blame)
            return error if watched and not self._has_score else None
        if model not in self._untried:
            return None
        return ProviderError(said, kind=outcome.kind, blame=outcome.blame, fatal=True)

    def _note(self, model: _Model | None, blame: Blame | None) -> None:
        if blame is None:
            self._has_score = True
        elif blame is Blame.CANDIDATE:
            self._n_without_verdict += 1
        elif blame is not Blame.JUDGE:
            return
        self._untried.discard(model)


def _blame_of(outcome: Outcome) -> Blame | None:
    """Return whose failure it is; None of a scored pair."""
    return outcome.blame if isinstance(outcome, Failed) else None


def _hangs(outcome: Outcome) -> bool:
    """Return whether the provider left a call without an answer."""
    timed_out = isinstance(outcome, Failed) and outcome.kind is FailureKind.TIMEOUT
    return timed_out and _blame_of(outcome) is Blame.PROVIDER


def _model_of(one: ReadyCandidate) -> _Model | None:
    """Return a key of the model, if it is called over the network."""
    model = one.candidate.model
    over_network = one.client.provider.capabilities(model).rate_limited
    return (id(one.client), model) if over_network else None
