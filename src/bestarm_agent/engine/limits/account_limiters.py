"""The limits of all models of an account, which grow with its servers."""

from __future__ import annotations

from collections.abc import Callable

from bestarm_agent.engine.clock import Clock
from bestarm_agent.engine.limits.gates import Gate
from bestarm_agent.engine.limits.model_limiter import LimiterRules, ModelLimiter
from bestarm_agent.engine.limits.wait_reasons import WaitBoard
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import LimitedPerServer, Provider

# What makes every further call to the provider, or to the model, pointless.
WHOLE_PROVIDER = (FailureKind.AUTHENTICATION, FailureKind.QUOTA_EXHAUSTED)
_WHOLE_ACCOUNT = (FailureKind.RATE_LIMITED,)  # fatal where the pause asked for is too long
_WHOLE_MODEL = (*_WHOLE_ACCOUNT, FailureKind.MODEL_NOT_FOUND)


class AccountLimiters:
    """The limiters of an account: one for each model, or one ``shared`` by all.

    What ``rules`` say of a model, and the capacity of the ``gate`` for all calls, hold for each
    server of a provider that counts its servers.
    """

    def __init__(
        self,
        provider: Provider,
        clock: Clock,
        board: WaitBoard,
        rules: Callable[[str], LimiterRules],
        gate: Gate,
        *,
        shared: bool,
    ) -> None:
        self._servers = provider if isinstance(provider, LimitedPerServer) else None
        self._n_servers = 1
        self._gate, self._per_server = gate, gate.capacity
        self._provider = provider
        self._clock = clock
        self._board = board
        self._rules = rules
        self._shared = shared
        self._limiters: dict[str, ModelLimiter] = {}
        self._halted: ProviderError | None = None

    def of(self, model: str) -> ModelLimiter:
        """Return the limiter of a model, made on first use."""
        name = "" if self._shared else model
        if name not in self._limiters:
            limiter = ModelLimiter(self._provider, name, self._rules(model), self._clock)
            limiter.rate.scale(self._n_servers)
            if self._halted is not None:
                limiter.halt(self._halted)
            self._board.watch(limiter.waits)
            self._limiters[name] = limiter
        return self._limiters[name]

    @property
    def free(self) -> int:
        """The number of calls that may enter the gate now, >= 0."""
        self.fit()
        return self._gate.free

    def fit(self) -> None:
        """Let the stated limits hold for each server that gets calls now."""
        n = self._n_servers if self._servers is None else self._servers.n_servers(self._per_server)
        if n == self._n_servers:
            return
        self._n_servers = n
        self._gate.resize(n * self._per_server)
        for limiter in self._limiters.values():
            limiter.rate.scale(n)

    def close(self, model: str, error: ProviderError) -> None:
        """Halt what a fatal error of a call to ``model`` makes pointless, if it is fatal."""
        if not error.fatal:
            return
        if error.kind in WHOLE_PROVIDER:
            self._halted = error
            for limiter in self._limiters.values():
                limiter.halt(error)
        elif error.kind in (_WHOLE_ACCOUNT if self._shared else _WHOLE_MODEL):
            self.of(model).halt(error)
