"""Asks in blocks of one model, where a provider loads one model at a time.

Loading a model takes as long as many calls to it, and a rule that may ask any candidate would have
models swapped every few calls. So the model that was asked last has a block: only its candidates
may be asked until the block is over. A block is over after n asks, where n is the smaller of

- the asks after which loading took a tenth of the time, once that was measured;
- max(K_m, asks so far / M), for K_m candidates of the model and M models: at the beginning every
  model gets a block soon, however slowly it loads, and since blocks grow with the asks made, there
  are no more than about M log(asks) of them.

It is over at once when the rule asks nothing of the model and no call is under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

import numpy as np

from bestarm_agent.engine.limits.concurrency_gates import Gate
from bestarm_agent.providers.base import Provider
from bestarm_agent.selectors.types import BoolArray


class _Block:
    """The block of one provider."""

    def __init__(self, provider: Provider, gate: Gate) -> None:
        self.provider = provider
        self.gate = gate  # of the provider's calls
        self.model = ""  # that may be asked; empty before the first ask
        self.n_rows: Counter[str] = Counter()  # candidates by model
        self._n_asked = 0  # in all blocks
        self._n_in_block = 0
        self._is_ended = False

    @property
    def left(self) -> float:
        """The asks until any model may be asked, >= 0; infinite if any may always be."""
        if not self.provider.loads_one_at_a_time or len(self.n_rows) < 2:
            return inf
        if self._is_ended or not self.model:
            return 0
        length = max(self.n_rows[self.model], self._n_asked // len(self.n_rows))
        paying = self.provider.asks_per_load(self.model)
        length = length if paying is None else min(length, max(1, paying))
        return max(0, length - self._n_in_block)

    def note(self, model: str) -> None:
        """Note that a model was asked."""
        if model != self.model or not self.left:
            self.model, self._n_in_block, self._is_ended = model, 0, False
        self._n_asked += 1
        self._n_in_block += 1

    def end(self) -> bool:
        """End the block; return False if that changes nothing, or calls are under way."""
        if self.gate.inside or not 0 < self.left < inf:
            return False
        self._is_ended = True
        return True


class ModelBlocks:
    """Masks the candidates whose models wait for the end of another's block."""

    def __init__(self) -> None:
        self._rows: list[tuple[_Block, str]] = []
        self._blocks: dict[int, _Block] = {}  # by provider

    def add(self, members: Sequence[tuple[Provider, str, Gate]]) -> None:
        """Let candidates join as the next rows, each with the gate of its provider's calls."""
        for provider, model, gate in members:
            block = self._blocks.setdefault(id(provider), _Block(provider, gate))
            block.n_rows[model] += 1
            self._rows.append((block, model))

    def mask(self) -> BoolArray | None:
        """Return (K,) whether a candidate may be asked; None if all may."""
        bound = {block for block in self._blocks.values() if 0 < block.left < inf}
        if not bound:
            return None
        return np.array(
            [block not in bound or model == block.model for block, model in self._rows],
            dtype=np.bool_,
        )

    def left(self) -> float:
        """Return how many asks, >= 1, may be made before ``mask`` changes."""
        return max(1, min((block.left for block in self._blocks.values()), default=inf))

    def note(self, candidate: int) -> None:
        """Note that a candidate was asked."""
        block, model = self._rows[candidate]
        block.note(model)

    def end(self) -> bool:
        """End the blocks of idle providers; return False if that changes nothing."""
        ended = [block.end() for block in self._blocks.values()]
        return any(ended)
