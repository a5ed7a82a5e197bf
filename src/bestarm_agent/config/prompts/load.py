"""Load prompt templates from the catalogue and from files."""

from __future__ import annotations

from glob import escape, glob
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from bestarm_agent.config.catalog import Catalog, CatalogEntry, read_entry
from bestarm_agent.config.fields import StrictModel
from bestarm_agent.config.prompts.templates import CompiledPrompt
from bestarm_agent.config.yaml.documents import read_text, shown_path
from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.errors import ConfigError

_YAML = (".yaml", ".yml")
_SUFFIXES = (*_YAML, ".jinja", ".j2", ".md", ".txt")


class MessageEntry(StrictModel):
    """One chat message of a prompt file; ``content`` is Jinja source."""

    role: Literal["system", "user", "assistant"]
    content: str


class PromptEntry(StrictModel):
    """A YAML file of a ``prompts/`` folder, with exactly one of ``text`` and ``messages``."""

    name: str = ""  # the file's, without its suffix
    description: str = ""  # one sentence for people
    text: str | None = None  # Jinja source of a plain prompt
    messages: tuple[MessageEntry, ...] = ()

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
    if path.suffix in _YAML:
        entry = read_entry(path)
    else:
        entry = CatalogEntry(path, {"text": read_text(path).removesuffix("\n")})
    return _loaded(path.stem if name is None else name, entry)


def prompt_files(pattern: str, base_dir: Path) -> tuple[Path, ...]:
    """Return the files that match a pattern with ``*``, ``?`` or ``[...]``, by name.

    Raises ConfigError if there is none, or two differ only in their suffix.
    """
    found = [Path(name) for name in glob(str(Path(escape(str(base_dir))) / pattern))]
    files = sorted((path for path in found if path.is_file()), key=lambda path: path.stem)
    if not files:
        raise ConfigError(f"no prompt file matches `{pattern}` in {shown_path(base_dir)}")
    for one, other in pairwise(files):
        if one.stem == other.stem:
            raise ConfigError(
                f"`{pattern}` matches {shown_path(one)} and {shown_path(other)}, which would both "
                f"be called `{one.stem}`; rename one of them"
            )
    return tuple(files)


def _loaded(name: str, entry: CatalogEntry) -> PromptTemplate:
    parsed = entry.parse(PromptEntry)
    messages = tuple(Message(message.role, message.content) for message in parsed.messages)
    template = PromptTemplate(name, parsed.text, messages)
    CompiledPrompt(template, origin=shown_path(entry.path))  # reports syntax errors with the file
    return template
