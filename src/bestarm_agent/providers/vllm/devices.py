"""Says which accelerators each vLLM server takes, so that as many are awake as fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

_ROUNDING = 1e-9  # shares such as .3, .3 and .4 fill a device


class Need(NamedTuple):
    """Devices that a server takes while it is awake, and how much of each."""

    n_devices: int  # >= 1
    share: float = 1.0  # of the memory of each, in (0, 1]


class Devices:
    """The accelerators of a machine, and the servers that hold them.

    Without names nothing is known of them, and one server has them all.

    Example:
        >>> devices = Devices(["0", "1"], {"a": Need(1), "b": Need(1, 0.5), "c": Need(2, 0.5)})
        >>> devices.take("a"), devices.take("b"), devices.fits("c", beside=["a", "b"])
        (('0',), ('1',), False)
        >>> devices.fits("c", beside=["b"])
        True
    """

    def __init__(self, names: Sequence[str], needs: Mapping[str, Need]) -> None:
        self._names = names
        self._needs = needs
        self._held: dict[str, tuple[str, ...]] = {}  # by server: while it runs, awake or asleep
        self._awake: set[str] = set()

    @property
    def hold_all(self) -> bool:
        """True if all servers can be awake at once."""
        trial = Devices(self._names, self._needs)
        for server in self._needs:
            if not trial.fits(server, beside=trial._awake):
                return False
            trial.take(server)
        return True

    def fits(self, server: str, beside: Collection[str]) -> bool:
        """Return whether a server can be awake while some others are, and no more."""
        return self._place(server, beside) is not None

    def take(self, server: str) -> tuple[str, ...]:
        """Note that a server is started or woken; return its devices, () if none are known."""
        self._held[server] = self._place(server, self._awake - {server}) or ()
        self._awake.add(server)
        return self._held[server]

    def sleep(self, server: str) -> None:
        """Note that a server released the memory; it is to wake on the same devices."""
        self._awake.discard(server)

    def leave(self, server: str) -> None:
        """Note that a server has ended."""
        self._awake.discard(server)
        self._held.pop(server, None)

    def _place(self, server: str, beside: Collection[str]) -> tuple[str, ...] | None:
        if not self._names:
            return None if beside else ()
        need, taken = self._needs[server], defaultdict[str, float](float)
        for other in beside:
            for device in self._held.get(other, ()):
                taken[device] += self._needs[other].share
        # The fullest that still have room come first, so that others stay whole.
        rooms = [d for d in self._names if taken[d] + need.share <= 1 + _ROUNDING]
        rooms.sort(key=lambda device: -taken[device])
        if own := self._held.get(server):
            return own if set(own) <= set(rooms) else None
        # One that is to have more than there are begins with all, and says so itself.
        n = min(need.n_devices, len(self._names))
        return tuple(sorted(rooms[:n], key=self._names.index)) if len(rooms) >= n else None
