"""What exists: providers, judges and prompts, declared in catalogue folders.

An entry is a file named after it, ``<folder>/<kind>/<name>.yaml``; prompts may be plain Jinja text
too. Folders are searched in this order, and the first entry found counts:

1. the user's, next to the study;
2. those of ``--catalog``;
3. the one that ships with the package. Wheels carry it as ``bestarm_agent/_catalog``; an editable
   install reads the repository's root folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from pydantic import BaseModel

from bestarm_agent.config.documents import (
    KeyPath,
    OptionsError,
    Problem,
    parse_options,
    read_text,
    read_yaml,
    shown_path,
)
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError, nearest

Kind: TypeAlias = Literal["providers", "judges", "prompts"]

_YAML = (".yaml", ".yml")
_TEXT = (".jinja", ".txt")
_SUFFIXES: Mapping[Kind, tuple[str, ...]] = {
    "providers": _YAML,
    "judges": _YAML,
    "prompts": (*_YAML, *_TEXT),
}
_NAME = re.compile(r"\w[\w.-]*")

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One declared provider, judge or prompt.

    Attributes:
        path: the file.
        data: what it says; ``{"text": ...}`` for a Jinja or text file.
        lines: line of every key in the file, from 1.
    """

    path: Path
    data: Mapping[str, Json]
    lines: Mapping[KeyPath, int] = field(default_factory=dict, repr=False)

    def parse(self, model: type[_Model]) -> _Model:
        """Validate the whole entry.

        Raises:
            ConfigError: it breaks the model's rules; names file, line and key.
        """
        return parse_options(model, self.data, subject=shown_path(self.path), lines=self.lines)


class Catalog:
    """Finds declared providers, judges and prompts by name.

    Args:
        user_dir: folder of the study, whose ``providers/``, ``judges/`` and ``prompts/`` come
            first; None if there is none.
        extra_dirs: further catalogue folders, searched next, in this order.

    Attributes:
        user_dir: folder of the study, or None.

    Raises:
        ConfigError: an extra folder does not exist or holds no kind of entry.

    Example:
        >>> Catalog().get("judges", "exact").data["adapter"]
        'exact'
    """

    def __init__(self, user_dir: Path | None = None, extra_dirs: Sequence[Path] = ()) -> None:
        for folder in extra_dirs:
            _check_folder(folder)
        self.user_dir = user_dir
        user_dirs = () if user_dir is None else (user_dir,)
        self._folders = (*user_dirs, *extra_dirs, _shipped_folder())

    def get(self, kind: Kind, name: str) -> CatalogEntry:
        """Read the entry of that name.

        Raises:
            ConfigError: there is none, or its file is malformed.
        """
        for folder in self._folders:
            if path := _find(folder, kind, name):
                return read_entry(path)
        close = nearest(name, self.names(kind))
        raise OptionsError("", [Problem((), f"no {kind[:-1]} is called `{name}`; {close}")])

    def shipped(self, kind: Kind, name: str) -> CatalogEntry:
        """Read the entry that ships with the package, whatever the user's folders hold.

        Raises:
            ConfigError: the installation lacks it.
        """
        path = _find(_shipped_folder(), kind, name)
        if path is None:
            raise ConfigError(
                f"this installation lacks its own {kind[:-1]} `{name}`; reinstall bestarm-agent"
            )
        return read_entry(path)

    def names(self, kind: Kind) -> list[str]:
        """Names of all entries of a kind, sorted."""
        return sorted(
            {path.stem for folder in self._folders for path in _entries(folder / kind, kind)}
        )


def read_entry(path: Path) -> CatalogEntry:
    """Read one catalogue file, by its suffix: YAML, or the Jinja text of a prompt.

    One line break at the very end of a text belongs to the file, not to the prompt.

    Raises:
        ConfigError: it cannot be read, or it is malformed; names file and line.
    """
    if path.suffix in _TEXT:
        return CatalogEntry(path, {"text": read_text(path).removesuffix("\n")})
    if path.suffix not in _YAML:
        raise ConfigError(
            f"{shown_path(path)}: unknown kind of file; use one of {', '.join((*_YAML, *_TEXT))}"
        )
    document = read_yaml(path)
    name = document.data.get("name", path.stem)
    if name != path.stem:
        raise ConfigError(
            f"{shown_path(path)}, line {document.lines[('name',)]}: `name` is {name!r}, but an "
            f"entry is found by its file's name; write `name: {path.stem}` or rename the file"
        )
    return CatalogEntry(path, document.data, document.lines)


def _shipped_folder() -> Path:
    here = Path(__file__)
    packaged = here.with_name("_catalog")
    return packaged if packaged.is_dir() else here.parents[2]


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(
            f"catalogue folder {shown_path(folder)} does not exist; correct --catalog"
        )
    if not any((folder / kind).is_dir() for kind in _SUFFIXES):
        raise ConfigError(
            f"catalogue folder {shown_path(folder)} holds none of {', '.join(_SUFFIXES)}; name the "
            "folder above them in --catalog"
        )


def _entries(folder: Path, kind: Kind) -> Iterator[Path]:
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.suffix in _SUFFIXES[kind] and _NAME.fullmatch(path.stem):
                yield path


def _find(folder: Path, kind: Kind, name: str) -> Path | None:
    found = [path for path in _entries(folder / kind, kind) if path.stem == name]
    if len(found) > 1:
        files = " and ".join(shown_path(path) for path in found)
        raise ConfigError(f"{files} both declare `{name}`; keep one of them")
    return found[0] if found else None
