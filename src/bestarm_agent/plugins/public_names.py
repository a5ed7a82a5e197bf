"""Import the public names of a package when they are first used (PEP 562)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    namespace: dict[str, Any], modules: Mapping[str, tuple[str, ...]]
) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package, given its ``globals()`` and the names by module."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def __getattr__(name: str) -> object:
        if name not in module_of:
            package = namespace["__name__"]
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"bestarm_agent.{module_of[name]}"), name)
        namespace[name] = value
        return value

    return __getattr__
