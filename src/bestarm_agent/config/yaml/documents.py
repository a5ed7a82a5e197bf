"""Read files of users; a ConfigError names the file, the line, the key and the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bestarm_agent.config.fields import dotted, shown
from bestarm_agent.config.yaml.errors import YamlProblem
from bestarm_agent.config.yaml.parser import KeyPath as KeyPath
from bestarm_agent.config.yaml.parser import parse_yaml
from bestarm_agent.config.yaml.validation_messages import hint_of, rule_of
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError, nearest

_MOST_BYTES = 4_000_000
_MOST_ERRORS = 3

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a YAML file, with the line of every key and list item, from 1."""

    data: Mapping[str, Json]
    lines: Mapping[KeyPath, int] = field(default_factory=dict, repr=False)


def shown_path(path: Path) -> str:
    """Return a path for messages, relative to the working directory if it lies below it."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return str(path)


def check_file(path: Path, kind: str = "dataset") -> None:
    """Check that a file exists; raises ConfigError with the nearest names in its folder."""
    if path.is_dir():
        raise ConfigError(f"{kind} {shown_path(path)} is a folder; name a file in it")
    if path.exists():
        return
    if not {"http:", "https:"}.isdisjoint(path.parts):
        raise ConfigError(f"{kind} {path.name} is an address on the web; download the file first")
    if not path.parent.is_dir():
        raise ConfigError(
            f"{kind} {shown_path(path)} does not exist, and neither does its folder; a "
            "relative path starts from the study file's folder"
        )
    files = [file.name for file in path.parent.iterdir()]
    raise ConfigError(f"{kind} {shown_path(path)} does not exist; {nearest(path.name, files)}")


def read_text(path: Path) -> str:
    """Read a small UTF-8 file; a byte-order mark is dropped and line ends become line feeds."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {shown_path(path)}: {error.strerror or error}") from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(
            f"{shown_path(path)} holds {len(content):,} bytes; the most is {_MOST_BYTES:,}"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{shown_path(path)}, line {line}: not UTF-8; save it as UTF-8") from None
    return text.replace("\r\n", "\n")


def read_yaml(path: Path) -> Document:
    """Read a YAML file that holds a mapping, without a key written twice."""
    try:
        data, lines = parse_yaml(read_text(path))
    except YamlProblem as problem:
        raise malformed(path, problem) from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"{shown_path(path)}, line 1: expected keys with values, such as `description: ...`"
        )
    return Document(data, lines)


def malformed(path: Path, problem: YamlProblem, language: str = "YAML") -> ConfigError:
    """Return the error for a malformed file, with the position."""
    line = "" if problem.line is None else f", line {problem.line}"
    column = "" if problem.column is None else f", column {problem.column}"
    return ConfigError(f"{shown_path(path)}{line}{column}: malformed {language}: {problem}")


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule; ``text`` names the rule, the value and the way out."""

    path: KeyPath
    text: str
    line: int | None = None


class OptionsError(ConfigError):
    """Options that break rules, raised where the lines of the study are not known."""

    def __init__(self, subject: str, problems: Sequence[Problem]) -> None:
        self.subject = subject  # the owner, such as a judge; "" if the problems name it
        self.problems = tuple(problems)  # at least one
        found = [f"line {one.line}: {one.text}" if one.line else one.text for one in problems]
        separator = ", " if problems[0].line else ": "
        whole = f"{subject}{separator}" if subject else ""
        super().__init__(f"{whole}{'; '.join([*found[:_MOST_ERRORS], *_more(found)])}")

    def placed(self, where: Callable[..., str]) -> ConfigError:
        """Return the error with the position of each key path by ``where``; itself, if known."""
        if any(one.line for one in self.problems):
            return self
        found: dict[tuple[str, KeyPath], str] = {}
        for one in self.problems:  # once per position, also if the option counts for several models
            found.setdefault((where(*one.path), one.path[-1:]), one.text)
        texts = [f"{place}: {text}" for (place, _), text in found.items()]
        if len(texts) > 1:
            listed = [f"{len(texts)} errors in {self.subject}:", *texts[:_MOST_ERRORS]]
            return ConfigError("\n  ".join([*listed, *_more(texts)]))
        ((place, _),) = found
        return ConfigError(": ".join(filter(None, (place, self.subject, self.problems[0].text))))


def _more(found: Sequence[str]) -> list[str]:
    return [f"and {len(found) - _MOST_ERRORS} more"] if len(found) > _MOST_ERRORS else []


@contextmanager
def placing(where: Callable[..., str]) -> Iterator[None]:
    """Add the positions of options to errors that are raised within, by ``OptionsError.placed``."""
    try:
        yield
    except OptionsError as error:
        raise error.placed(where) from None


@contextmanager
def locating(located: Callable[[ConfigError], ConfigError]) -> Iterator[None]:
    """Replace ConfigErrors that are raised within, such as by ``Places.located``."""
    try:
        yield
    except ConfigError as error:
        raise located(error) from error


def parse_options(
    model: type[_Model],
    data: Mapping[str, Json],
    *,
    subject: str,
    lines: Mapping[KeyPath, int] | None = None,
) -> _Model:
    """Validate the options of ``subject``; OptionsError has the names and values of the user.

    ``lines`` are those of every key, if known.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = [_problem(one, model, lines or {}) for one in error.errors(include_url=False)]
    raise OptionsError(subject, found)


def parse_row(model: type[_Model], data: Mapping[str, Json], where: str) -> _Model:
    """Validate a row of a data file; raises ConfigError, which begins with ``where``."""
    try:
        return parse_options(model, data, subject=where)
    except OptionsError as error:
        found = [one.text.replace("option `", "field `") for one in error.problems[:_MOST_ERRORS]]
    raise ConfigError(f"{where}: {'; '.join(found)}")


def _problem(error: ErrorDetails, model: type[BaseModel], lines: Mapping[KeyPath, int]) -> Problem:
    key = error["loc"]
    line = next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), None)
    return Problem(key, _explained(error, dotted(key), model), line)


def _explained(error: ErrorDetails, name: str, model: type[BaseModel]) -> str:
    if error["type"] == "extra_forbidden":
        known = model.model_fields if name in error["loc"] else ()
        return f"unknown option `{name}`" + (f"; {nearest(name, known)}" if known else "")
    if error["type"] == "missing":
        return f"option `{name}` is required{_such_as(error, model)}"
    if error["type"] != "value_error":
        return f"`{name}` {rule_of(error)}{hint_of(error)}{_such_as(error, model)}"
    rule = error["msg"].removeprefix("Value error, ")
    return f"`{name}`: {rule[0].lower()}{rule[1:]}, got {shown(error['input'])}" if name else rule


def _such_as(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Return an example of the option, if its field has one."""
    field = model.model_fields.get(str(error["loc"][0])) if error["loc"] else None
    if field is None or not field.examples:
        return ""
    purpose = f", {field.description}" if field.description else ""
    return f"; such as `{error['loc'][0]}: {field.examples[0]}`{purpose}"
