"""Prompt templates: compiled once, filled in for every example.

Templates are Jinja in a sandbox, and each stands alone, so that a candidate's identity, the digest
of its template, says all about its prompt. Everything that would make two renderings of one example
differ is left out (``random``, ``lipsum``, ``include``). Limits stop what runs away by mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from types import TracebackType
from typing import Any, NoReturn, TypeAlias

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError, nearest

Rendered: TypeAlias = str | tuple[Message, ...]

MOST_CHARS = 4_000_000
MOST_ROUNDS = 100_000

_ELSEWHERE = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


class CompiledPrompt:
    """A prompt template, ready to be filled in.

    Args:
        template: what to compile.
        origin: the file it came from, for messages.

    Attributes:
        fields: names that the template looks up.

    Raises:
        ConfigError: a syntax error; names the prompt and the line.

    Example:
        >>> prompt = CompiledPrompt(PromptTemplate("sum", text="{{ a }}+{{ b }}="))
        >>> sorted(prompt.fields), prompt.render({"a": 12, "b": 34})
        (['a', 'b'], '12+34=')
    """

    def __init__(self, template: PromptTemplate, origin: str = "") -> None:
        self.name = template.name
        self.called = f"prompt `{template.name}`" + (f" ({origin})" if origin else "")
        self._environment = _Environment()
        fields: set[str] = set()
        self._text = None if template.text is None else self._compiled(template.text, fields)
        self._messages = tuple(
            (message.role, self._compiled(message.content, fields)) for message in template.messages
        )
        self.fields = frozenset(fields)

    def render(self, inputs: Mapping[str, Json]) -> Rendered:
        """Fill in one example's fields.

        Raises:
            ConfigError: a field is missing or null, the template fails on it, or the result is too
                long; names the prompt, the line and the field.
        """
        if self._text is not None:
            return self._filled(self._text, inputs)
        return tuple(
            Message(role, self._filled(content, inputs)) for role, content in self._messages
        )

    def _compiled(self, source: str, fields: set[str]) -> Template | str:
        try:
            tree = self._environment.parse(source)
            for node in tree.find_all(_ELSEWHERE):
                raise TemplateSyntaxError("a template stands alone; write it out", node.lineno)
            fields |= meta.find_undeclared_variables(tree)
            fixed = _fixed_text(tree)
            return self._environment.from_string(tree) if fixed is None else fixed
        except TemplateSyntaxError as error:
            raise ConfigError(
                f"{self.called}, line {error.lineno} of the template: {error.message}"
            ) from None
        except (RecursionError, SyntaxError):  # the latter from Python, for 20 loops or more
            raise ConfigError(f"{self.called}: nested too deeply") from None

    def _filled(self, template: Template | str, inputs: Mapping[str, Json]) -> str:
        if isinstance(template, str):
            return template
        self._environment.restart()
        pieces: list[str] = []
        room = MOST_CHARS
        try:
            for piece in template.generate(inputs):
                pieces.append(piece)
                room -= len(piece)
                if room < 0:
                    raise TemplateError(f"the prompt is longer than {MOST_CHARS:,} characters")
        except Exception as error:  # a template may raise anything
            self._fail(error, inputs)
        return "".join(pieces)

    def _fail(self, error: Exception, inputs: Mapping[str, Json]) -> NoReturn:
        line = _template_line(error.__traceback__)
        where = f"{self.called}, line {line} of the template" if line else self.called
        reason = " ".join(str(error).split()) or type(error).__name__
        for field in sorted(self.fields - inputs.keys()):
            if f"'{field}'" in reason:
                reason = f"there is no field `{field}`; {nearest(field, inputs)}"
        raise ConfigError(f"{where}: {reason}") from error


def compile_prompt(template: PromptTemplate, *, origin: str = "") -> CompiledPrompt:
    """Compile a prompt template; takes milliseconds, so keep the result.

    Args:
        template: the template.
        origin: the file it came from, for messages.

    Raises:
        ConfigError: a syntax error; names prompt, file and line.
    """
    return CompiledPrompt(template, origin)


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja without randomness and other files, and with a limit on what a render may do."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, keep_trailing_newline=True, finalize=_not_null)
        self._rounds = MOST_ROUNDS
        self.globals["range"] = self._range
        del self.globals["lipsum"], self.filters["random"]

    def restart(self) -> None:
        """Begin a render: it has all its rounds before it."""
        self._rounds = MOST_ROUNDS

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - Jinja's
        """Multiply, but nothing enormous."""
        if _size(operator, left, right) > MOST_CHARS:
            raise TemplateError(f"`{operator}` makes something too large")
        return super().call_binop(context, operator, left, right)

    def _range(self, *bounds: int) -> range:
        rounds = range(*bounds)
        self._rounds -= len(rounds)
        if self._rounds < 0:
            raise TemplateError(f"loops over more than {MOST_ROUNDS:,} numbers")
        return rounds


def _fixed_text(tree: nodes.Template) -> str | None:
    """The text of a template that fills nothing in, None for any other."""
    pieces = [node for output in tree.body for node in output.iter_child_nodes()]
    if not all(isinstance(output, nodes.Output) for output in tree.body):
        return None
    if not all(isinstance(piece, nodes.TemplateData) for piece in pieces):
        return None
    return "".join(piece.data for piece in pieces if isinstance(piece, nodes.TemplateData))


def _not_null(value: object) -> object:
    """Refuse to print null, which would put the word None into a prompt."""
    if value is None:
        raise TemplateError("a value is null; write {{ field or '' }} if it may be")
    return value


def _size(operator: str, left: object, right: object) -> int:
    """How long, in characters, items or bits, a product or power can become."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        return bits * right if operator == "**" else bits + right.bit_length()
    for repeated, times in ((left, right), (right, left)):
        if isinstance(repeated, Sized) and isinstance(times, int):
            return len(repeated) * times
    return 0


def _template_line(traceback: TracebackType | None) -> int | None:
    """The line of the template that an error came from."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
