"""Send one pair of each model over the network before others are paid for.

A wrong key, a misspelt model or a judge that cannot read its examples costs one call then, and not
as many as may be in flight.
"""

from __future__ import annotations

import math

import numpy as np

from bestarm_agent.domain.values import Failure, Outcome
from bestarm_agent.engine.call import Model
from bestarm_agent.engine.evaluate import Evaluation
from bestarm_agent.engine.judging import JudgeClient
from bestarm_agent.engine.pool import CandidatePool
from bestarm_agent.errors import Blame, FailureKind, JudgeError, ProviderError
from bestarm_agent.store.run_state import RunState


class FirstPairs:
    """Sends one pair of each model over the network first; if the judge asks a model, one in all.

    While the first call to a model has to be repeated, no other pair begins.

    If a first pair fails and the candidate is not at fault, the run ends before others are paid
    for, and the pair stays pending. After a time-out the other models have been paid for, so only
    this model is left out. A first pair that ``resume`` sends again counts like any other pair.
    """

    def __init__(self, pool: CandidatePool, judge_client: JudgeClient, state: RunState) -> None:
        # What becomes of a model over the network::
        #
        #     untried --> first pair under way --> answered, or the candidate failed: tried
        #                       |--> the judge failed, and had judged before: tried
        #                       |--> timed out: tried, and its candidates are given up
        #                       |--> put off for lack of budget: untried
        #                       `--> any other failure: untried, and the run ends
        #
        # Pairs that an earlier session ended count, or a resumed run would hold its models back
        # again.
        self.failed = False
        self._pool = pool
        self._judge_over_network = judge_client.rate_limited
        self._is_judged = False  # whether a reply was judged, or needed no judge to fail
        self._in_flight: set[Evaluation] = set()
        self._untried: list[Model] = []  # of the first ``_n_models`` of the pool
        self._n_models = 0
        rows, has_failed = state.asks["candidate"][state.order], state.told["failure"] >= 0
        for row in np.unique(rows[~has_failed[state.order]]).tolist():
            self._note(pool.candidates[row].model, None)
        for seq in state.failed().tolist():
            self._note(pool.candidates[state.ask(seq).candidate].model, state.failure(seq))

    def begin(self) -> None:
        """Forget the pairs in flight: a session begins, and sends pending ones again itself."""
        self.failed = False
        self._in_flight.clear()

    @property
    def held(self) -> set[Model]:
        """The models whose first pair is under way: no further pair of theirs is asked."""
        return {pair.call.model for pair in self._in_flight if pair.call.model.is_untried}

    def room(self) -> float:
        """Return how many pairs, >= 0, may be asked now, before ``held`` changes."""
        # A judge over the network scores the replies of all models, so until it has scored one, a
        # single pair of all is under way. After that each untried model has one pair under way at
        # most: pairs are asked one by one, since the rule may choose an untried model for any of
        # them and ``held`` must then leave it out. Nothing is asked while a first call waits to be
        # repeated: it may yet end the run.
        if self._judge_over_network and not self._is_judged:
            return 0 if self._in_flight else 1
        if self._n_models < len(self._pool.models):
            self._untried += list(self._pool.models)[self._n_models :]
            self._n_models = len(self._pool.models)
        while self._untried and not self._untried[-1].is_untried:  # who was tried stays so
            self._untried.pop()
        if not self._untried:
            return math.inf
        failing = (pair.call.model for pair in self._in_flight if pair.call.tries.n_failures)
        return 0 if any(model.is_untried for model in failing) else 1

    def sent(self, pair: Evaluation) -> None:
        """Note that a pair is on its way."""
        self._in_flight.add(pair)
        pair.call.is_first = not pair.call.resent and pair.call.model.is_untried

    def ended(self, pair: Evaluation, outcome: Outcome | None) -> None:
        """Note how a pair ended; one that ends the run gets an obstacle and stays pending."""
        model, failure = pair.call.model, None if outcome is None else outcome.failure
        self._in_flight.discard(pair)
        if outcome is None:
            # The pair stays pending: for lack of budget, which says nothing, or by an obstacle,
            # which ends the run while the model is untried. But other candidates of a model may be
            # answered where it refuses only the tools, or the form of answers, that this one asks.
            request = pair.call.request
            asks_more = request.uses_tools or "response_format" in request.params
            kind = getattr(pair.obstacle, "kind", None)
            is_own = asks_more and kind is FailureKind.BAD_REQUEST
            self.failed |= pair.obstacle is not None and model.is_untried and not is_own
        elif failure is None or pair.call.resent or not self._is_fatal(model, failure):
            self._note(model, failure)
        else:
            # A failure that would otherwise be told to the rule. It becomes an obstacle, so that
            # the pair stays pending and ``resume`` sends it again once the mistake is mended.
            hangs = failure.kind is FailureKind.TIMEOUT and failure.blame is Blame.PROVIDER
            model.is_tried |= hangs
            self.failed |= not hangs
            stops = "model is left out" if hangs else "run stopped before it paid more"
            message = f"{failure.message}; it was the first answer asked for, so the {stops}"
            error = JudgeError if failure.blame is Blame.JUDGE else ProviderError
            pair.obstacle = error(message, kind=failure.kind, blame=failure.blame)

    def _is_fatal(self, model: Model, failure: Failure) -> bool:
        if failure.blame is Blame.JUDGE:
            watched = self._judge_over_network or model.able.rate_limited
            return watched and not self._is_judged
        return failure.blame is not Blame.CANDIDATE and model.is_untried

    def _note(self, model: Model, failure: Failure | None) -> None:
        # A failure of the judge shows that the model replied; one of the provider shows nothing.
        if failure is None or failure.blame is Blame.CANDIDATE:
            self._is_judged = True
        elif failure.blame is not Blame.JUDGE:
            return
        model.is_tried = True
