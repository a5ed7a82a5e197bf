"""The package's own ``auto``: beside the compiled one, with calls in flight, in money, stopping."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reproduce_study import Bench

PARTS: Mapping[str, Callable[[Bench, int], dict[str, str]]] = {}
