"""Random numbers that depend on (seed, purpose, index) alone.

With one shared stream a resumed run would diverge: draws before the crash move all later draws.
Philox is counter-based (Salmon et al. 2011): moving to another index takes some microseconds, and
no state is saved.
"""

from __future__ import annotations

import weakref
import zlib

import numpy as np


class KeyedRandom:
    """A family of independent random generators, one per index.

    Args:
        seed: the run's seed, >= 0.
        purpose: name of the draws; two purposes never share numbers.

    Example:
        >>> draws = KeyedRandom(seed=7, purpose="example")
        >>> one, other = draws.at(3), draws.at(99)
        >>> _ = other.random(5)
        >>> bool(one.integers(1000) == draws.at(3).integers(1000))
        True
    """

    def __init__(self, seed: int, purpose: str) -> None:
        if seed < 0:
            raise ValueError(f"seed must be >= 0, got {seed}")
        self._made_of = seed, purpose
        # A checksum, as Python's ``hash`` of a text differs from process to process.
        sequence = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())])
        self._key = sequence.generate_state(2, np.uint64)
        self._philox = np.random.Philox(key=self._key)
        self._state = self._philox.state
        self._exhausted_buffer = self._state["buffer_pos"]
        self._latest: weakref.ref[_Generator] | None = None

    def __reduce__(self) -> tuple[type[KeyedRandom], tuple[int, str]]:
        """Pickle what it is made of: with NumPy 1 the generator of a copy would not be its own."""
        return KeyedRandom, self._made_of

    def at(self, index: int) -> np.random.Generator:
        """Return the generator of one index, at its first number."""
        # Moving one Philox to another index is much cheaper than making one, but it would also move
        # the generator that was handed out last, whose numbers come from it. So the Philox is used
        # again only if nobody holds that generator any more, which a weak reference tells.
        if self._latest is not None and self._latest() is not None:
            self._philox = np.random.Philox(key=self._key)  # the latest one is still in use
        # The counter has four words. Drawing counts up the first, and the index is the second, so
        # an index has 2^64 blocks of numbers before it meets the next one. What an earlier index
        # left over (the rest of a block, half of a 64-bit number) is thrown away, or the first
        # numbers would depend on it.
        state = self._state
        state["state"]["counter"][:] = (0, index, 0, 0)
        state["buffer_pos"] = self._exhausted_buffer
        state["has_uint32"] = 0
        self._philox.state = state
        generator = _Generator(self._philox)
        self._latest = weakref.ref(generator)
        return generator


class _Generator(np.random.Generator):
    """A generator of which one can see whether anybody still uses it."""
