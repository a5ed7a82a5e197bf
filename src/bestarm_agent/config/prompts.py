"""Prompt templates: read from files and the catalogue, compiled once, rendered for every example.

Templates are Jinja in its immutable sandbox. Each stands alone, so that the digest of its text
identifies the prompt of a candidate; whatever would make two renderings of one example differ is
left out (``random``, ``lipsum``, ``include``). The sandbox keeps templates away from Python's
objects and from other files. It does not bound their time: who writes a study may run functions of
their own anyway.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from glob import escape, glob
from itertools import chain, pairwise
from os.path import commonprefix
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, TypeVar

from pydantic import model_validator

from bestarm_agent.config.attachments import Attachment
from bestarm_agent.config.catalog import Catalog, CatalogEntry, read_entry
from bestarm_agent.config.conversations import TOOL_CHOICES, field_of, read_conversation, read_tools
from bestarm_agent.config.files import shown_path
from bestarm_agent.config.input_specs import CONVERSATION, PromptBody
from bestarm_agent.domain.values import (
    Example,
    Json,
    Message,
    Part,
    PromptTemplate,
    canonical,
    content_of,
    digest,
    part_of,
)
from bestarm_agent.errors import ConfigError, nearest

if TYPE_CHECKING:
    from jinja2 import Environment, Template, nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

Rendered: TypeAlias = str | tuple[Message, ...]
_Filling: TypeAlias = Callable[[Mapping[str, Json]], Any]  # a content, or messages
Tools: TypeAlias = tuple[Mapping[str, Json], ...]
_T = TypeVar("_T")

MAX_CHARS = 4_000_000  # of a rendered prompt
_SHOTS = "shots"  # the worked examples, in a template
ROW = "row"  # all fields of an example, in a template; a field of that name wins
# "{{ question", "{{- question": the name that is printed first.
_PRINTED = re.compile(r"\{\{-?\s*(\w+)")
# filters that make texts of their values, and would write lists and truth values as Python does
_OF_TEXTS = ("upper", "lower", "capitalize", "title", "trim", "center", "replace", "truncate")
# What is no constant text of a template: "{{ x }}", "{% if x %}", "{# remark #}".
_CODE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_BYTES_PER_TOKEN = 4  # of most texts, in most languages
_MOST_COMPILED = 100_000  # templates kept: as many as a grid may have combinations


class CompiledPrompt:
    """A compiled prompt template; equal texts are compiled once.

    ``origin`` is its file, for messages; ``fields`` are the names that it looks up, by themselves
    or as ``row["name"]``, and ``reads_row`` tells whether it looks at the whole ``row``; ``folder``
    is that of the dataset, where images and files are. A syntax error is a ConfigError with the
    prompt and the line, and so is a worked example that does not fit.

    Example:
        >>> prompt = CompiledPrompt(PromptTemplate("sum", text="{{ a }}+{{ b }}="))
        >>> sorted(prompt.fields), prompt.render({"a": 12, "b": 34})
        (['a', 'b'], '12+34=')
    """

    def __init__(
        self,
        template: PromptTemplate,
        origin: str = "",
        folder: Path = Path(),
        *,
        links: bool = False,
    ) -> None:
        # Texts are compiled before worked examples are rendered: `asked` needs the names of all
        # fields, which compiling collects.
        self.name = template.name
        self.called = f"prompt `{template.name}`" + (f" ({origin})" if origin else "")
        fields: set[str] = set()
        self.reads_row = False
        self._text = None if template.text is None else self._compiled(template.text, fields)
        self._messages = tuple(
            (message.role, self._filling(message, fields)) for message in template.messages
        )
        parts = [part for message in template.messages for part in message.parts]
        self.attaches = any(part["type"] != "text" for part in parts)
        self._folder, self._links = folder, links
        self._template = template
        tools = [self._compiled(tool, fields) for tool in template.tools if isinstance(tool, str)]
        self.reads_tools = bool(tools)
        # whether fields hold messages or tools: those of every example have to be looked at
        self.reads_lists = self.reads_tools or CONVERSATION in dict(self._messages)
        self.fields = frozenset(fields)
        if template.tools and template.n_shots:
            raise ConfigError(
                f"{self.called}: worked examples show no calls of its tools; leave out one"
            )
        self._shots = [(self.asked(shot.inputs), self._worked(shot)) for shot in template.shots]

    def render(self, inputs: Mapping[str, Json], *, read: bool = True) -> Rendered:
        """Render the prompt with the fields of one example, and its worked examples.

        These are the variable ``shots`` of a template that uses it; else they stand before the last
        message of the user. A worked example that asks the same is left out, and the next takes its
        place. With ``read=False`` images and files are named and not read. Raises ConfigError with
        prompt, line and field if a field is missing or null, the template fails, a conversation is
        malformed, the result is too long, or a file cannot be sent.
        """
        return self._sent(inputs, Attachment.read if read else _shown)

    def _sent(self, inputs: Mapping[str, Json], content: Callable[[Attachment], str]) -> Rendered:
        draft = self._staged(inputs)
        if isinstance(draft, str) or not self.attaches:
            return draft

        def sent(part: Any) -> Part:  # noqa: ANN401
            if not isinstance(part, Attachment):
                return part  # type: ignore[no-any-return]
            return part_of(part.type, content(part))

        return tuple(replace(m, content=tuple(map(sent, m.parts))) if m.parts else m for m in draft)

    def request(self, example: Example, *, read: bool) -> str:
        """Return a digest of what is sent for an example, or its id if nothing can be sent.

        With ``read=False`` images and files are told apart by their sizes alone.
        """
        try:
            rendered = self._sent(example.inputs, Attachment.read if read else _size)
            tools = list(self.tools(example.inputs)[0]) if self.reads_tools else []
        except ConfigError:
            return f"example {example.id}"
        sent: Json = rendered if isinstance(rendered, str) else [m.as_json() for m in rendered]
        return digest([sent, tools])

    def attachments(self, inputs: Mapping[str, Json]) -> list[Attachment]:
        """Return the images and files for one example; raises ConfigError as ``render``."""
        draft = self._staged(inputs) if self.attaches else ()
        parts: list[object] = [p for m in draft if isinstance(m, Message) for p in m.parts]
        return [part for part in parts if isinstance(part, Attachment)]

    @property
    def worked(self) -> frozenset[str]:
        """Questions of its worked examples, as ``asked`` returns them."""
        return frozenset(asked for asked, _ in self._shots)

    @property
    def constant_text_after_first_field(self) -> tuple[str, int]:
        """The first field that is printed, and about how many tokens of constant text follow it."""
        text = self._template.text or "\n".join(m.text for m in self._template.messages)
        for match in _PRINTED.finditer(text):
            if match[1] in self.fields - {_SHOTS}:
                return match[1], about_tokens(_CODE.sub("", text[match.start() :]))
        return "", 0

    def _staged(self, inputs: Mapping[str, Json]) -> Rendered:
        """Render the prompt, with an ``Attachment`` in place of each part to be read."""
        if (n := self._template.n_shots) is None:
            return self._filled(inputs)
        asked = self.asked(inputs)
        # An example that is itself a worked example would show its own answer, so the next takes
        # its place.
        shots = [worked for other, worked in self._shots if other != asked][:n]
        if _SHOTS in self.fields:
            return self._filled({**inputs, _SHOTS: shots})
        filled = self._filled(inputs)
        if isinstance(filled, str):
            return "".join([*shots, filled])
        # Shots are earlier turns of the conversation. They follow the system message and whatever
        # else all examples share, and precede the question.
        before = _last_of_user(filled)
        return (*filled[:before], *chain(*shots), *filled[before:])

    def asked(self, inputs: Mapping[str, Json]) -> str:
        """Return as JSON the fields of an example that the prompt shows, all if it shows none."""
        # Two rows ask the same if what the prompt shows of them is the same, whatever their other
        # fields say.
        names = self.uses(inputs) or inputs
        return canonical({name: inputs[name] for name in names})

    def uses(self, known: Collection[str]) -> frozenset[str]:
        """Return the names among ``known`` that the prompt shows."""
        return frozenset(known) if self.reads_row else self.fields.intersection(known)

    def _worked(self, shot: Example) -> Any:  # noqa: ANN401 - a mapping, a text or messages
        """Return a worked example as the prompt shows it: what is asked, and the answer."""
        answer = shot.reference[0] if isinstance(shot.reference, tuple) else shot.reference or ""
        if _SHOTS in self.fields:
            return {**shot.inputs, "target": answer}
        try:
            filled = self._filled(shot.inputs)
        except ConfigError as error:
            raise ConfigError(f"{error} (worked example `{shot.id}`)") from None
        if isinstance(filled, str):
            # A plain prompt that ends in white space says itself what separates question and
            # answer.
            return f"{filled}{'' if filled[-1:].isspace() else ' '}{answer}\n\n"
        return filled[_last_of_user(filled)], Message("assistant", answer)

    def _filled(self, inputs: Mapping[str, Json]) -> Rendered:
        if self._text is not None:
            return self._rendered(self._text, inputs)
        messages: list[Message] = []
        for role, fill in self._messages:
            content = fill(inputs)
            messages += content if role == CONVERSATION else [Message(role, content)]
        return tuple(messages)

    def tools(self, inputs: Mapping[str, Json]) -> tuple[Tools, str | None]:
        """Return the tools of one example, and which of them the model may choose.

        Raises ConfigError if they are malformed, or the chosen one is not among them.
        """
        tools: list[Mapping[str, Json]] = []
        for tool in self._template.tools:
            tools += self._read_list(read_tools, tool, inputs) if isinstance(tool, str) else [tool]
        names, choice = [str(tool["name"]) for tool in tools], self._template.tool_choice
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"{self.called}: two tools are called `{name}`; rename one")
        known = [*names, *TOOL_CHOICES]
        if tools and choice is not None and choice not in known:
            raise ConfigError(
                f"{self.called}: `tool_choice` names no tool; {nearest(choice, known)}"
            )
        return tuple(tools), choice if tools else None

    def _read_list(
        self, read: Callable[[Json], tuple[_T, ...]], source: str, inputs: Mapping[str, Json]
    ) -> tuple[_T, ...]:
        """Read the list in the field that is all of ``source``."""
        field = field_of(source) or source
        if field not in inputs:
            self._fail(ValueError(f"'{field}'"), inputs)
        try:
            return read(inputs[field])
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"{self.called}: field `{field}`: {error}") from None

    def _filling(self, message: Message, fields: set[str]) -> _Filling:
        """Compile the content of a message to a function of the inputs."""
        if isinstance(message.content, str):
            template = self._compiled(message.content, fields)
            if message.role == CONVERSATION:
                return partial(self._read_list, read_conversation, message.content)
            return partial(self._rendered, template)
        sources = [(str(part["type"]), content_of(part)) for part in message.parts]
        parts = [partial(self._part, *part, self._compiled(part[1], fields)) for part in sources]
        return lambda inputs: tuple(part(inputs) for part in parts)

    def _part(self, type: str, source: str, template: Template, inputs: Mapping[str, Json]) -> Part:
        alone = field_of(source)
        value = inputs.get(alone) if alone else None
        if not isinstance(value, str):  # else it may be a long data URL, which is not copied
            value = self._rendered(template, inputs)
        part: Any = part_of(type, value)
        if type != "text":  # ``render`` reads it last of all
            part = Attachment(
                type, value.strip(), self._folder, f"{self.called}, {source}", self._links
            )
        return part  # type: ignore[no-any-return]

    def _compiled(self, source: str, fields: set[str]) -> Template:
        from jinja2 import TemplateSyntaxError  # takes a tenth of a second to import

        try:
            template, used, whole = _compile(source)
        except TemplateSyntaxError as error:
            hint = ""
            if "end of print statement" in str(error.message):
                hint = f'; a field whose name is no word is written {{{{ {ROW}["its name"] }}}}'
            raise ConfigError(
                f"{self.called}, line {error.lineno} of the template: {error.message}{hint}"
            ) from None
        except (RecursionError, SyntaxError):  # the latter from Python, for 20 nested loops
            raise ConfigError(f"{self.called}: nested too deeply") from None
        fields |= used
        self.reads_row |= whole
        return template

    def _rendered(self, template: Template, inputs: Mapping[str, Json]) -> str:
        pieces: list[str] = []
        room = MAX_CHARS
        try:
            # Piece by piece, so that a loop that prints without end stops at the limit and not when
            # memory does.
            for piece in template.generate({ROW: inputs, **inputs}):
                pieces.append(piece)
                room -= len(piece)
                if room < 0:
                    raise ValueError(f"the prompt is longer than {MAX_CHARS:,} characters")
        except Exception as error:  # a template may raise anything
            self._fail(error, inputs)
        return "".join(pieces)

    def _fail(self, error: Exception, inputs: Mapping[str, Json]) -> NoReturn:
        line = _template_line(error.__traceback__)
        where = f"{self.called}, line {line} of the template" if line else self.called
        reason = " ".join(str(error).split()) or type(error).__name__
        # Jinja's message for a missing field is "'x' is undefined". Ours says which fields there
        # are.
        for field in sorted(self.fields - inputs.keys()):
            if f"'{field}'" in reason:
                reason = f"there is no field `{field}`; {nearest(field, inputs)}"
        raise ConfigError(f"{where}: {reason}") from error


def _shown(attachment: Attachment) -> str:
    return attachment.display_name


def _size(attachment: Attachment) -> str:
    return attachment.value if attachment.size is None else str(attachment.size)


def equal_requests(
    examples: Sequence[Example], keys: Iterable[Callable[[Example], str]]
) -> list[int]:
    """Group examples that have equal keys, all of them; return the number of each one's group.

    Groups are numbered as they first come. A key is only worked out for examples that the keys
    before it could not tell apart: after the first key these are few, as a rule.

    Example:
        >>> rows = [Example("a", {"q": 1}), Example("b", {"q": 2}), Example("c", {"q": 1})]
        >>> equal_requests(rows, [lambda one: str(one.inputs["q"])])
        [0, 1, 0]
    """
    groups = [0] * len(examples)
    for key in keys:
        # Callers give the cheapest key first: a later one may have to read files. So it is worked
        # out only where the keys before it leave several examples in one group.
        size, numbers = Counter(groups), dict[tuple[int, str], int]()
        groups = [
            numbers.setdefault((group, key(example) if size[group] > 1 else ""), len(numbers))
            for group, example in zip(groups, examples, strict=True)
        ]
    return groups


def _last_of_user(messages: Sequence[Message]) -> int:
    """Return the place of the user's last message; without one, that of the last message."""
    of_user = [place for place, message in enumerate(messages) if message.role == "user"]
    return max(of_user, default=len(messages) - 1)


def check_prompt(prompt: CompiledPrompt, examples: Sequence[Example]) -> Example | None:
    """Check that a prompt can be rendered for every example; raise ConfigError with the field.

    One example is rendered for every set of fields that occurs, null or not: others of the same
    set render alike, unless the template computes with the values. The conversations, tools, images
    and files of all are looked at; return the example with most images and pages, or None.
    """
    seen: set[frozenset[tuple[str, bool]]] = set()
    most_pages, largest = 0, None
    for example in examples:
        # A template fails by a field that is missing or null, or not at all. So one example of each
        # combination stands for the others, and a dataset of a million rows is checked in a few
        # renderings.
        fields = frozenset((field, value is None) for field, value in example.inputs.items())
        if fields in seen and not (prompt.reads_lists or prompt.attaches):
            continue
        seen.add(fields)
        try:
            prompt.render(example.inputs, read=False)
            prompt.tools(example.inputs)
            pages = sum(file.check() for file in prompt.attachments(example.inputs))
        except ConfigError as error:
            known = {field for row in examples for field in row.inputs}
            absent = sorted(prompt.fields - known - {ROW})
            if not absent:
                raise ConfigError(f"{error} (example `{example.id}`)") from None
            raise ConfigError(
                f"{prompt.called}: no example has the field `{absent[0]}`; "
                f"{nearest(absent[0], known)}"
            ) from None
        if pages > most_pages:
            most_pages, largest = pages, example
    return largest


def printed(value: object) -> object:
    """Return a value as prompts show it: lists and objects as JSON, in their order.

    Raises ValueError for null, which would put the word None into a prompt, and TypeError for what
    is no data, such as a method whose parentheses were forgotten.

    Example:
        >>> printed({"b": [True, "é"], "a": None}), printed(True), printed(2.50)
        ('{"b": [true, "é"], "a": null}', 'true', 2.5)
    """
    if isinstance(value, str):
        return value
    if value is None:
        raise ValueError("a value is null; write {{ field or '' }} if it may be")
    if isinstance(value, bool | list | tuple | dict):
        return _as_json(value)
    return value if isinstance(value, int | float) else _refuse(value)


def _as_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, default=_refuse)


def _refuse(value: object) -> NoReturn:
    """Refuse a value that is no data; one that is missing says so itself."""
    from jinja2 import Undefined

    if isinstance(value, Undefined):
        str(value)
    name = getattr(value, "__name__", type(value).__name__)
    way_out = f"to call it, write `{name}()`" if callable(value) else "write it out by `| list`"
    kind = "function or method" if callable(value) else "value"
    raise TypeError(f"the {kind} `{name}` is no data, and cannot stand in a prompt; {way_out}")


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import StrictUndefined, pass_environment
    from jinja2.filters import make_attrgetter
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # StrictUndefined: a misspelt field is an error, and not an empty text. The last line break is
    # kept because it may be meant; prompts read from files drop theirs when they are read.
    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True, finalize=printed
    )

    @pass_environment
    def join(env: Environment, values: Iterable[Any], d: str = "", attribute: Any = None) -> str:  # noqa: ANN401
        if attribute is not None:
            values = map(make_attrgetter(env, attribute), values)
        return str(d).join(str(printed(value)) for value in values)

    # Both are random: two renderings of one example would be two prompts.
    del made.globals["lipsum"], made.filters["random"]
    # Jinja's write Python's forms of lists and truth values, and `tojson` is for HTML: it sorts
    # keys and escapes letters
    made.filters["string"] = lambda value: str(printed(value))
    made.filters["join"], made.filters["tojson"] = join, _as_json
    return made


def _data_first(tree: nodes.Template) -> nodes.Template:
    """Let `a.b` be the field `b` of an object before it is a method, unless it is called.

    Jinja looks for Python's attributes first, so that `a.items` of {"items": ...} is a method. It
    looks for fields first where `a["b"]` is written. What `~` joins, and what filters of texts are
    given, is written as if printed.
    """
    from jinja2 import nodes
    from jinja2.visitor import NodeTransformer

    def as_text(node: nodes.Expr) -> nodes.Filter:
        return nodes.Filter(node, "string", [], [], None, None, lineno=node.lineno)

    class Rewriting(NodeTransformer):
        def visit_Call(self, node: nodes.Call) -> nodes.Node:
            called = node.node
            self.generic_visit(node)
            # A call keeps the attribute: `text.upper()` is Python's method, and no field can be
            # called.
            if isinstance(called, nodes.Getattr):
                node.node = called
            return node

        def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:
            self.generic_visit(node)
            name = nodes.Const(node.attr, lineno=node.lineno)
            return nodes.Getitem(node.node, name, node.ctx, lineno=node.lineno)

        def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
            self.generic_visit(node)
            node.nodes = [as_text(part) for part in node.nodes]
            return node

        def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
            self.generic_visit(node)
            if node.name in _OF_TEXTS and node.node is not None:
                node.node = as_text(node.node)
            return node

    rewritten: nodes.Template = Rewriting().visit(tree)
    rewritten.set_environment(_environment())
    return rewritten


@lru_cache(maxsize=_MOST_COMPILED)
def _compile(source: str) -> tuple[Template, frozenset[str], bool]:
    """Return a compiled template, the names that it looks up, and if it reads the row as a whole.

    Names are also those that it looks up in the row.
    """
    from jinja2 import TemplateSyntaxError, meta, nodes

    tree = _environment().parse(source)
    other_files = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)
    for node in tree.find_all(other_files):
        raise TemplateSyntaxError("a template stands alone; write it out", node.lineno)
    # The names are collected before the tree is rewritten, since rewriting replaces nodes that hold
    # them.
    used = set(meta.find_undeclared_variables(tree))
    tree, whole = _data_first(tree), False
    if ROW in used:
        in_row = [
            item.arg.value
            for item in tree.find_all(nodes.Getitem)
            if isinstance(item.node, nodes.Name)
            and item.node.name == ROW
            and isinstance(item.arg, nodes.Const)
        ]
        # If `row` occurs more often than as row["name"], it is printed or looped over as a whole,
        # and then every field may matter.
        whole = len(in_row) < sum(item.name == ROW for item in tree.find_all(nodes.Name))
        used |= {str(name) for name in in_row}
    template = _environment().from_string(tree)
    template.globals = dict(template.globals)  # a chain of mappings, copied in each render
    return template, frozenset(used), whole


def named(field: str) -> str:
    """Return a field as a template names it: by itself, or as one of the row.

    Example:
        >>> named("question"), named("User Question"), named("not"), named("range")
        ('question', 'row["User Question"]', 'row["not"]', 'row["range"]')
    """
    from jinja2 import TemplateSyntaxError

    try:
        # Asking the compiler is the only sure test: "not" is a keyword, "range" a global of Jinja,
        # "a b" two names; for each of these the names that it finds differ from the field.
        alone = _compile(f"{{{{ {field} }}}}")[1] == {field}
    except TemplateSyntaxError:
        alone = False
    return field if alone else f"{ROW}[{json.dumps(field, ensure_ascii=False)}]"


def prefix_of(
    prompt: CompiledPrompt, examples: Iterable[Example], keeps: Callable[[int], bool]
) -> tuple[str, ...]:
    """Return what each message begins with for all examples, up to the first that differs.

    Worked examples themselves are left out, since they are shown other ones. The result is empty
    if ``keeps`` says that no cache holds so few tokens, or if each example has tools of its own,
    which all APIs put before the messages.
    """
    if prompt.reads_tools:
        return ()
    worked = prompt.worked
    common: list[str] | None = None
    for example in examples:
        # Such an example is shown other worked examples than the rest, one in a thousand; it would
        # cut the common beginning short for all.
        if worked and prompt.asked(example.inputs) in worked:
            continue
        rendered = prompt.render(example.inputs, read=False)
        texts = [rendered] if isinstance(rendered, str) else [message.text for message in rendered]
        common = texts if common is None else _in_common(common, texts)
        # The common beginning only ever shrinks: once it is too short for every cache, no further
        # example can change that.
        if not keeps(about_tokens(*common)):
            return ()
    return tuple(common or ())


def _in_common(beginnings: list[str], texts: list[str]) -> list[str]:
    for place, (before, text) in enumerate(zip(beginnings, texts, strict=False)):
        if before != text:
            # The first text that differs ends the common beginning: what follows it is behind
            # different tokens.
            return [*beginnings[:place], commonprefix([before, text])]  # noqa: RUF071 - of letters
    return beginnings[: len(texts)]


def about_tokens(*texts: str) -> int:
    """Estimate how many tokens texts have; the exact number is known once the provider counts."""
    return sum(len(text.encode(errors="replace")) for text in texts) // _BYTES_PER_TOKEN


def _template_line(traceback: TracebackType | None) -> int | None:
    line = None
    while traceback is not None:
        # Jinja compiles a template to Python under this file name, with the template's own line
        # numbers. The innermost such frame is the line that failed.
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


_SUFFIXES = (".yaml", ".yml", ".jinja", ".j2", ".md", ".txt")


class PromptEntry(PromptBody):
    """A YAML file of a ``prompts/`` folder, with exactly one of ``text`` and ``messages``."""

    name: str = ""  # the file's, without its suffix
    description: str = ""  # one sentence for people
    text: str | None = None  # Jinja source of a plain prompt

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if (self.text is None) == (not self.messages):
            raise ValueError("a prompt needs either `text` or `messages`, and not both")
        return self


def catalog_prompt(name: str, catalog: Catalog) -> PromptTemplate:
    """Read a prompt of the catalogue; raise ConfigError if there is none, or it is malformed.

    Example:
        >>> catalog_prompt("completion", Catalog()).text
        '{{ question }}'
    """
    if Path(name).suffix in _SUFFIXES:
        raise ConfigError(f"`{name}` is no prompt's name; a template file is `file://{name}`")
    return _loaded(name, catalog.get("prompts", name))


def file_prompt(path: Path, *, name: str | None = None) -> PromptTemplate:
    """Read a prompt from a YAML file with ``text`` or ``messages``, or from a file of Jinja text.

    The last line break of a text file is dropped. ``name`` is by default the file's, without its
    suffix. Raises ConfigError if the file or the template is malformed.
    """
    return _loaded(path.stem if name is None else name, read_entry(path))


def prompt_files(pattern: str, base_dir: Path) -> tuple[Path, ...]:
    """Return the files that match a pattern with ``*``, ``?`` or ``[...]``, by name.

    Raises ConfigError if there is none, or two differ only in their suffix.
    """
    matched = [Path(name) for name in glob(str(Path(escape(str(base_dir))) / pattern))]
    files = sorted((path for path in matched if path.is_file()), key=lambda path: path.stem)
    if not files:
        raise ConfigError(f"no prompt file matches `{pattern}` in {shown_path(base_dir)}")
    for file, after in pairwise(files):
        if file.stem == after.stem:
            raise ConfigError(
                f"`{pattern}` matches {shown_path(file)} and {shown_path(after)}, which would both "
                f"be called `{file.stem}`; rename one of them"
            )
    return tuple(files)


def _loaded(name: str, entry: CatalogEntry) -> PromptTemplate:
    parsed = entry.parse(PromptEntry)
    template = parsed.template(name)
    CompiledPrompt(template, origin=shown_path(entry.path))  # reports syntax errors with the file
    return template
