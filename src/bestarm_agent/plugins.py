"""Look things up by name: built in, installed as a plug-in, or named by their dotted path.

A plug-in is a distribution with an entry point in one of the groups ``bestarm_agent.selectors``,
``.providers`` and ``.judges``. Its module is imported when its name is first used, never to list
names. A built-in name always means the built-in thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from types import FunctionType, UnionType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from bestarm_agent.errors import BestarmError, ConfigError, PluginError, nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
P = ParamSpec("P")


def import_path(path: str) -> object:
    """Import what ``module:attribute`` names; raises whatever the module raises."""
    module, _, attributes = path.partition(":")
    value: object = import_module(module)
    for attribute in attributes.split("."):
        value = getattr(value, attribute)
    return value


def missing(extra: str, purpose: str) -> ConfigError:
    """Return the error for what needs an extra that is not installed; "judge `bleu`" does."""
    return ConfigError(
        f"{purpose} needs the extra `{extra}`; run: pip install 'bestarm-agent[{extra}]'"
    )


def optional(module: str, extra: str, purpose: str) -> Any:  # noqa: ANN401 - any module
    """Import a module of an extra; raises ConfigError, which says how to install it."""
    try:
        return import_module(module)
    except ImportError:
        raise missing(extra, purpose) from None


def entry_points_of(group: str | None) -> Iterator[EntryPoint]:
    """Yield the installed entry points of a group, such as "selectors"; imports no plug-in."""
    from importlib.metadata import entry_points

    if group is not None:
        yield from entry_points(group=f"bestarm_agent.{group}")


def is_path(name: str) -> bool:
    """Return whether a name is a dotted path, ``module:attribute``."""
    return ":" in name


def guard(cls: type, returns: Mapping[str, Callable[[Any], bool]]) -> None:
    """Check what the methods that somebody's class overrides hand in, each as it is called.

    What one raises, other than our errors, or returns although the test given for it fails, is a
    PluginError that names the method. Classes of this package are left as they are.
    """
    # Classes of this package are checked by the type checker; wrapping them would cost a call each.
    if cls.__module__.partition(".")[0] == __package__:
        return
    for name, is_right in returns.items():
        # Only methods that the class itself defines: inherited ones were wrapped with their own
        # class, and a property or a class attribute is no call.
        if isinstance(method := vars(cls).get(name), FunctionType):
            setattr(cls, name, _guarded(method, is_right))


async def in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run what calls plug-ins, as ``asyncio.to_thread`` does, which StopIteration would hang."""
    from asyncio import to_thread  # names are listed without it

    def settled() -> T:
        try:
            return work(*args, **named)
        except StopIteration as error:  # no future takes it, so whoever awaits one waits for ever
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return await to_thread(settled)


def holds(value: object, kind: type | UnionType) -> bool:
    """Return whether something is a sequence of values of a kind."""
    return isinstance(value, list | tuple) and all(isinstance(item, kind) for item in value)


def _guarded(method: FunctionType, is_right: Callable[[Any], bool]) -> Callable[..., object]:
    name = method.__qualname__

    @wraps(method)
    def call(*arguments: object, **named: object) -> object:
        try:
            value = method(*arguments, **named)
            if is_right(value):
                return value
        except BestarmError:
            raise
        except Exception as error:
            raise PluginError(f"{name}() raised {type(error).__name__}: {error}") from error
        raise PluginError(f"{name}() returned {value!r:.80}, which its base does not allow")

    return call


@dataclass(frozen=True)  # slots: the typing module sets an attribute of generic objects
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

    kind: str  # noun for messages
    group: str | None  # of entry points, after ``bestarm_agent.``; None: no plug-in adds any
    built_in: Mapping[str, str]  # ``module:attribute`` by name
    fits: Callable[[object], bool]  # returns whether an imported object is of this kind
    expected: str  # what an object must be, for messages

    def names(self) -> tuple[str, ...]:
        """Return all names, sorted; imports nothing."""
        return tuple(sorted({*self.built_in, *(one.name for one in entry_points_of(self.group))}))

    def load(self, name: str, *, imported: Callable[[str], object] = import_path) -> T:
        """Import the thing of a built-in name, an entry point, or a path, by ``imported``.

        Raises:
            ConfigError: there is no such name; the nearest names are given.
            PluginError: importing it fails, two distributions claim the name, or the object is of
                another kind; names the distribution of an entry point and its version.
        """
        # A built-in name wins over a plug-in of that name: an installed package cannot change what
        # a study means.
        if name in self.built_in:
            return import_path(self.built_in[name])  # type: ignore[return-value] # tested by name
        entry = None if is_path(name) else self._entry(name)
        label = f"`{name}`" if entry is None else f"`{name}` ({entry.value}) of {_owner(entry)}"
        try:
            plugin = imported(name) if entry is None else import_path(entry.value)
        except ConfigError as error:  # it names the path and the way out
            raise PluginError(f"{self.kind} {error}") from error
        except (Exception, SystemExit) as error:  # a module may raise anything when imported
            raise PluginError(
                f"{self.kind} {label} cannot be used: importing it raised {type(error).__name__}: "
                f"{error}; repair, update or uninstall it, or choose another"
            ) from error
        if not self.fits(plugin):
            raise PluginError(f"{self.kind} {label} is {plugin!r:.60}, not {self.expected}")
        return plugin  # type: ignore[return-value] # `fits` has said so

    def _entry(self, name: str) -> EntryPoint:
        entries = [entry for entry in entry_points_of(self.group) if entry.name == name]
        if not entries:
            raise ConfigError(f"there is no {self.kind} `{name}`; {nearest(name, self.names())}")
        if len(entries) > 1:
            owners = " and ".join(sorted(map(_owner, entries)))
            raise PluginError(
                f"{self.kind} `{name}` is declared by {owners}; uninstall one of them, or name "
                f"the one you mean by its path, such as `{entries[0].value}`"
            )
        return entries[0]


def _owner(entry: EntryPoint) -> str:
    """Return the distribution of an entry point with its version."""
    dist = entry.dist
    return "an unknown distribution" if dist is None else f"{dist.name} {dist.version}"
