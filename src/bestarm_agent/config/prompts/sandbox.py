"""Render Jinja templates in a sandbox without randomness or other files, and with limits.

Every loop, call, filter and growing operator is counted by a meter, before it runs, so that a
template ends within a limit of time and memory without a thread or process of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import wraps
from typing import Any, TypeAlias

from jinja2 import StrictUndefined, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARS = 4_000_000
MAX_ROUNDS = 100_000
MAX_SECONDS = 2.0
_MAX_BUILT = 8 * MAX_CHARS
_DEEPEST = 100
_SCALAR = 20  # characters of a number
_MAX_BITS = 100_000
_PERCENT_FIELD = re.compile(r"%(?:\(.*?\))?[-+ #0]*(\*|\d*)\.?(\*|\d*)")
_NESTED_FIELD = re.compile(r"\{[^{}]*\{")
_BRACE_FIELD = re.compile(r"\{[^{}:]*:?([^{}]*)")

_Arguments: TypeAlias = Sequence[object]
_Estimate: TypeAlias = Callable[[Any, _Arguments], int]


class Meter:
    """Counts what a render does and raises TemplateError at a limit."""

    def __init__(self) -> None:
        self._built = 0
        self._rounds = 0
        self._end = time.thread_time() + MAX_SECONDS

    def step(self) -> None:
        """Count a call or a round of a loop."""
        if time.thread_time() > self._end:
            raise TemplateError(f"the template takes longer than {MAX_SECONDS:g} seconds")

    def grow(self, size: int, by: str = "") -> None:
        """Count characters or items before an operator or function makes them."""
        if by and size > _MAX_BUILT:
            raise TemplateError(f"`{by}` makes something too large")
        self._built += size
        if self._built > _MAX_BUILT:
            raise TemplateError(f"the template builds more than {_MAX_BUILT:,} characters")

    def numbers(self, numbers: range) -> range:
        """Count the numbers of a range."""
        self._rounds += len(numbers)
        if self._rounds > MAX_ROUNDS:
            raise TemplateError(f"loops over more than {MAX_ROUNDS:,} numbers")
        return numbers


def size_of(value: object) -> int:
    """Return about how many characters a value has as text."""
    return _size(value, {}, _DEEPEST)


def _size(value: object, known: dict[int, int], depth: int) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return _SCALAR
    if not depth:
        return _MAX_BUILT
    if id(value) not in known:  # a list may hold another one many times
        items = value.items() if isinstance(value, Mapping) else value
        known[id(value)] = 2 + sum(2 + _size(item, known, depth - 1) for item in items)
    return known[id(value)]


class _CodeGenerator(CodeGenerator):
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Let the environment join the parts of ``a ~ b``, which Jinja joins itself."""
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment that limits the time and the memory of a render."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})
    code_generator_class = _CodeGenerator

    def __init__(self) -> None:
        self._meter = Meter()
        super().__init__(
            undefined=StrictUndefined, keep_trailing_newline=True, finalize=self._printed
        )
        self.concat = self._concat  # type: ignore[method-assign]
        self.globals["range"] = self._range
        del self.globals["lipsum"], self.filters["random"]
        for name, function in self.filters.items():
            self.filters[name] = self._metered(name, function)

    def restart(self) -> None:
        """Begin a compilation or a render, with all limits unused."""
        self._meter = Meter()

    def count_loops(self, tree: nodes.Template) -> None:
        """Count the rounds of all loops of a template, in place."""
        for loop in tree.find_all(nodes.For):
            counted = nodes.EnvironmentAttribute("counted")
            loop.iter = nodes.Call(counted, [loop.iter], [], None, None).set_lineno(loop.lineno)

    def counted(self, values: Iterable[object]) -> Iterator[object]:
        """Yield the values of a loop and count its rounds."""
        for value in values:
            self._meter.step()
            yield value

    def joined(self, parts: Sequence[object]) -> str:
        """Join the parts of ``a ~ b``."""
        self._meter.grow(sum(map(size_of, parts)))
        return "".join(map(str, parts))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Call a function, method or macro, unless its result would be too large."""
        self._meter.step()
        method = getattr(function, "__wrapped__", function)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str | bytes | int):
            name = method.__name__
            if name == "join" and args:
                args = (list(args[0]), *args[1:])  # an iterator is counted and then joined
            given = [*args, *(value for key, value in kwargs.items() if not key.startswith("_"))]
            self._meter.grow(_estimate(f".{name}", owner, given), name)
        return super().call(context, function, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Apply an operator, unless the result would be too large."""
        if isinstance(left, int) and isinstance(right, int):
            if _bits(operator, left, right) > _MAX_BITS:
                raise TemplateError(f"`{operator}` makes something too large")
        elif not isinstance(left, float):
            self._meter.grow(_operator_size(operator, left, right), operator)
        return super().call_binop(context, operator, left, right)

    def _metered(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        at = int(hasattr(function, "jinja_pass_arg"))  # the value, after the environment or context

        @wraps(function)
        def metered(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - of any filter
            self._meter.step()
            value = args[at]
            if name == "join" and not isinstance(value, str | Mapping):
                value = list(value)
            self._meter.grow(_estimate(name, value, [*args[at + 1 :], *kwargs.values()]), name)
            return function(*args[:at], value, *args[at + 1 :], **kwargs)

        return metered

    def _printed(self, value: object) -> object:
        """Refuse to print null, which would put the word None into a prompt."""
        if value is None:
            raise TemplateError("a value is null; write {{ field or '' }} if it may be")
        self._meter.grow(size_of(value))
        return value

    def _concat(self, parts: Iterable[str]) -> str:
        listed = list(parts)
        self._meter.grow(sum(map(len, listed)))
        return "".join(listed)

    def _range(self, *bounds: int) -> range:
        return self._meter.numbers(range(*bounds))


def _estimate(name: str, value: object, arguments: _Arguments) -> int:
    estimate = _ESTIMATES.get(name) or _ESTIMATES.get(name.removeprefix("."))
    if name == ".join" and arguments:
        value, arguments = arguments[0], [value]
    return 0 if estimate is None else estimate(value, arguments)


def _width(arguments: _Arguments) -> int:
    return sum(abs(a) if isinstance(a, int) else size_of(a) for a in arguments)


def _texts(arguments: _Arguments) -> int:
    return sum(len(a) for a in arguments if isinstance(a, str))


def _replaced(value: object, arguments: _Arguments) -> int:
    old, new = (str(a) for a in arguments[:2]) if len(arguments) > 1 else ("", "")
    text = str(value)
    return len(text) + (text.count(old) if old else len(text) + 1) * len(new)


def _formatted(fields: re.Pattern[str], value: object, arguments: _Arguments) -> int:
    """Return an upper bound of a formatted text: all fields as wide as the widest."""
    text = str(value)
    found = ["".join(groups) for groups in map(re.Match.groups, fields.finditer(text))]
    widths = [int(number) for spec in found for number in re.findall(r"\d+", spec)]
    if "*" in "".join(found) or _NESTED_FIELD.search(text.replace("{{", "")):
        widths += [abs(a) for a in _flat(arguments) if isinstance(a, int)]
    longest = max(map(size_of, _flat(arguments)), default=0)
    return len(text) + len(found) * (max(widths, default=0) + longest)


def _flat(arguments: _Arguments) -> list[object]:
    flat: list[object] = []
    for argument in arguments:
        if isinstance(argument, Mapping):
            flat += argument.values()
        else:
            flat += argument if isinstance(argument, tuple) else [argument]
    return flat


def _percent(value: object, arguments: _Arguments) -> int:
    return _formatted(_PERCENT_FIELD, value, arguments)


def _braces(value: object, arguments: _Arguments) -> int:
    return _formatted(_BRACE_FIELD, value, arguments)


def _padded(value: object, arguments: _Arguments) -> int:
    return size_of(value) + _width(arguments)


def _per_character(value: object, arguments: _Arguments) -> int:
    return size_of(value) * (1 + _texts(arguments))


def _per_line(value: object, arguments: _Arguments) -> int:
    return size_of(value) + (str(value).count("\n") + 1) * _width(arguments or [4])


_ESTIMATES: Mapping[str, _Estimate] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill", "to_bytes", "batch", "slice"), _padded),
    **dict.fromkeys(("wordwrap", "urlize", "xmlattr"), _per_character),
    **dict.fromkeys(("string", "pprint", "escape", "e", "forceescape", "sort"), _padded),
    "indent": _per_line,
    "join": lambda value, arguments: size_of(value) + len(value) * _width(arguments),
    "replace": _replaced,
    "expandtabs": lambda value, arguments: (
        len(value) + value.count("\t") * _width(arguments or [8])
    ),
    "translate": lambda value, arguments: len(value) * (1 + sum(map(size_of, arguments))),
    "tojson": lambda value, arguments: size_of(value) * (1 + _width(arguments)),
    "round": lambda value, arguments: 10 ** min(_width(arguments[:1]) // 100, 9),  # of its power
    "format": _percent,
    ".format": _braces,
    ".format_map": _braces,
}


def _bits(operator: str, left: int, right: int) -> int:
    bits = abs(left).bit_length()
    if operator == "**":
        return bits * abs(right) if bits > 1 else bits
    return bits + abs(right).bit_length() if operator == "*" else 0


def _operator_size(operator: str, left: object, right: object) -> int:
    if operator == "+":
        return sum(len(part) for part in (left, right) if isinstance(part, Sized))
    if operator == "%":
        return _percent(left, [right])
    for repeated, times in ((left, right), (right, left)):
        if isinstance(repeated, str | bytes | Sequence) and isinstance(times, int):
            return len(repeated) * max(0, times)
    return 0
