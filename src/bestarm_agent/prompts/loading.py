"""Prompt templates from the catalogue and from files."""

from __future__ import annotations

from dataclasses import dataclass
from glob import escape, glob
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from bestarm_agent.catalog import Catalog, CatalogEntry, read_entry
from bestarm_agent.config.documents import read_text, shown_path
from bestarm_agent.domain.candidate import Message, PromptTemplate
from bestarm_agent.errors import ConfigError
from bestarm_agent.prompts.rendering import compile_prompt

_YAML = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class LoadedPrompt:
    """A prompt template and where it stands.

    Attributes:
        template: the template.
        origin: the file, as messages show it.
    """

    template: PromptTemplate
    origin: str


class MessageEntry(BaseModel):
    """One chat message of a prompt file.

    Attributes:
        role: who speaks.
        content: Jinja source of what is said.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "user", "assistant"]
    content: str


class PromptEntry(BaseModel):
    """A YAML file of a ``prompts/`` folder.

    Attributes:
        name: the file's name without its suffix.
        description: one sentence for people.
        text: Jinja source of a plain completion prompt; exactly one of ``text`` and ``messages``.
        messages: chat messages.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    description: str = ""
    text: str | None = None
    messages: tuple[MessageEntry, ...] = ()

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if (self.text is None) == (not self.messages):
            raise ValueError("a prompt needs either `text` or `messages`, and not both")
        return self


def catalog_prompt(name: str, catalog: Catalog) -> LoadedPrompt:
    """Read a prompt of the catalogue.

    Raises:
        ConfigError: there is none of that name, or its file or template is malformed.

    Example:
        >>> catalog_prompt("completion", Catalog()).template.text
        '{{ question }}'
    """
    return _loaded(name, catalog.get("prompts", name))


def file_prompt(path: Path, *, name: str | None = None) -> LoadedPrompt:
    """Read a prompt from a file: YAML holds ``text`` or ``messages``, any other file is the text.

    One line break at the very end of a text file belongs to the file, not to the prompt.

    Args:
        path: the file.
        name: what the prompt is called; the file's name without its suffix if None.

    Raises:
        ConfigError: it cannot be read, or the file or the template is malformed.
    """
    if path.suffix in _YAML:
        entry = read_entry(path)
    else:
        entry = CatalogEntry(path, {"text": read_text(path).removesuffix("\n")})
    return _loaded(path.stem if name is None else name, entry)


def prompt_files(pattern: str, base_dir: Path) -> tuple[Path, ...]:
    """Find the files that a pattern with ``*``, ``?`` or ``[...]`` means, by name.

    Args:
        pattern: a path, relative to ``base_dir`` or absolute.
        base_dir: folder of the study.

    Raises:
        ConfigError: there is no such file, or two differ in nothing but their suffix.
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


def _loaded(name: str, entry: CatalogEntry) -> LoadedPrompt:
    parsed = entry.parse(PromptEntry)
    messages = tuple(Message(message.role, message.content) for message in parsed.messages)
    loaded = LoadedPrompt(PromptTemplate(name, parsed.text, messages), shown_path(entry.path))
    compile_prompt(loaded.template, origin=loaded.origin)  # finds syntax errors here, by file
    return loaded
