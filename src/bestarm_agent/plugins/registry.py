"""Look things up by name: built in, installed as a plug-in, or named by their dotted path.

A plug-in is a distribution with an entry point in one of the groups ``bestarm_agent.selectors``,
``.providers`` and ``.judges``. Its module is imported when its name is first used, never to list
names. A built-in name always means the built-in thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar

from bestarm_agent.errors import ConfigError, PluginError, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")

Import = Callable[[str], object]  # given "module:attribute"


def import_path(path: str) -> object:
    """Import what ``module:attribute`` names; raises whatever the module raises."""
    module, _, attributes = path.partition(":")
    found: object = import_module(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    return found


def entry_points_of(group: str | None) -> Iterator[EntryPoint]:
    """Yield the installed entry points of a group, such as "selectors"; imports no plug-in."""
    from importlib.metadata import entry_points

    if group is not None:
        yield from entry_points(group=f"bestarm_agent.{group}")


def is_path(name: str) -> bool:
    """Return whether a name is a dotted path, ``module:attribute``."""
    return ":" in name


class Registry(Generic[T]):
    """Things of one kind by name.

    Example:
        >>> is_float = lambda found: isinstance(found, float)
        >>> numbers = Registry("number", "numbers", {"e": "math:e"}, is_float, "a float")
        >>> numbers.names()
        ('e',)
        >>> round(numbers.load("math:tau"), 2)
        6.28
        >>> numbers.load("math:sin")
        Traceback (most recent call last):
        bestarm_agent.errors.PluginError: number `math:sin` is <built-in function sin>, not a float
    """

    def __init__(
        self,
        kind: str,  # noun for messages
        group: str | None,  # of entry points, after ``bestarm_agent.``; None: no plug-in adds any
        built_in: Mapping[str, str],  # ``module:attribute`` by name
        fits: Callable[[object], bool],  # returns whether an imported object is of this kind
        expected: str,  # what an object must be, for messages
    ) -> None:
        self._kind = kind
        self._group = group
        self.built_in = built_in
        self._fits = fits
        self._expected = expected

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted; imports nothing."""
        return tuple(sorted({*self.built_in, *(one.name for one in entry_points_of(self._group))}))

    def load(self, name: str, *, imported: Import = import_path) -> T:
        """Import the thing of a built-in name, an entry point, or a path ``module:attribute``.

        Raises:
            ConfigError: there is no such name; the nearest names are given.
            PluginError: importing it fails, two distributions claim the name, or the object is of
                another kind; names the distribution and its version.
        """
        if name in self.built_in:
            return import_path(self.built_in[name])  # type: ignore[return-value] # tested by name
        if is_path(name):
            return self._imported(name, imported, lambda: f"`{name}`{_owner_of(name)}")
        entry = self._entry(name)
        path = f"{entry.module}:{entry.attr}"
        return self._imported(path, import_path, lambda: f"`{name}` ({path}) of {_shown(entry)}")

    def _entry(self, name: str) -> EntryPoint:
        found = [entry for entry in entry_points_of(self._group) if entry.name == name]
        if not found:
            raise ConfigError(f"there is no {self._kind} `{name}`; {nearest(name, self.names())}")
        if len(found) > 1:
            owners = " and ".join(sorted(_shown(entry) for entry in found))
            raise PluginError(
                f"{self._kind} `{name}` is declared by {owners}; uninstall one of them, or name "
                f"the one you mean by its path, such as `{found[0].value}`"
            )
        return found[0]

    def _imported(self, path: str, imported: Import, subject: Callable[[], str]) -> T:
        try:
            found = imported(path)
        except ConfigError as error:  # it names the path and the way out
            raise PluginError(f"{self._kind} {error}") from error
        except (Exception, SystemExit) as error:  # a module may raise anything when imported
            raise PluginError(
                f"{self._kind} {subject()} cannot be used: importing it raised "
                f"{type(error).__name__}: {error}; repair, update or uninstall it, or choose "
                "another"
            ) from error
        if not self._fits(found):
            raise PluginError(f"{self._kind} {subject()} is {found!r:.60}, not {self._expected}")
        return found  # type: ignore[return-value] # `fits` has said so


def _shown(entry: EntryPoint) -> str:
    return "an unknown distribution" if entry.dist is None else _named(entry.dist.name)


def _named(distribution: str) -> str:
    from importlib.metadata import version

    return f"{distribution} {version(distribution)}"


def _owner_of(path: str) -> str:
    """Return " of DISTRIBUTION VERSION" for the module of a dotted path, "" if it is not known."""
    from importlib.metadata import packages_distributions

    owners = packages_distributions().get(path.partition(":")[0].partition(".")[0], [])
    return f" of {_named(owners[0])}" if owners else ""
