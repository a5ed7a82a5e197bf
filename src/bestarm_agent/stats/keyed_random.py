"""Random numbers that depend on (seed, purpose, index) alone.

With one shared stream a resumed run would diverge: draws before the crash move all later draws.
Philox is counter-based (Salmon et al. 2011): moving to another index takes two microseconds, and no
state is saved.
"""

from __future__ import annotations

import zlib

import numpy as np


class KeyedRandom:
    """A family of independent random generators, one per index.

    Args:
        seed: the run's seed, >= 0.
        purpose: name of the draws; two purposes never share numbers.

    Example:
        >>> draws = KeyedRandom(seed=7, purpose="example")
        >>> first = draws.at(3).integers(1000)
        >>> _ = draws.at(99).random(5)
        >>> bool(first == draws.at(3).integers(1000))
        True
    """

    def __init__(self, seed: int, purpose: str) -> None:
        if seed < 0:
            raise ValueError(f"seed must be >= 0, got {seed}")
        self._made_of = seed, purpose
        key = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])
        self._philox = np.random.Philox(key=key.generate_state(2, np.uint64))
        self._generator = np.random.Generator(self._philox)
        self._state = self._philox.state
        self._exhausted_buffer = self._state["buffer_pos"]

    def __reduce__(self) -> tuple[type[KeyedRandom], tuple[int, str]]:
        """Pickle what it is made of: with NumPy 1 the generator of a copy would not be its own."""
        return KeyedRandom, self._made_of

    def at(self, index: int) -> np.random.Generator:
        """Return the generator of one index, at its first number; use it before the next ``at``."""
        state = self._state
        state["state"]["counter"][:] = (0, index, 0, 0)
        state["buffer_pos"] = self._exhausted_buffer
        state["has_uint32"] = 0
        self._philox.state = state
        return self._generator
