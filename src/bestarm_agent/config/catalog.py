"""Find providers, judges and prompts, which catalogue folders declare.

An entry is a file named after it, ``<folder>/<kind>/<name>.yaml``; prompts may be plain Jinja text
too. Folders are searched in this order, and the first entry found counts:

1. the user's, next to the study;
2. those of ``BESTARM_CATALOG_DIRS``;
3. the one that ships with the package. Wheels carry it as ``bestarm_agent/_catalog``; an editable
   install reads the repository's root folders.

A provider or judge that a plug-in declares by an entry point of its own, and one that is named by
its dotted path, needs no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from pydantic import BaseModel

from bestarm_agent.config.fields import KeyPath
from bestarm_agent.config.file_errors import BrokenRule, OptionsError, parse_options
from bestarm_agent.config.files import read_text, read_yaml, shown_path
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.plugins import entry_points_of, is_path

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
    """One declared provider, judge or prompt."""

    path: Path
    data: Mapping[str, Json]  # the content of the file; ``{"text": ...}`` for a Jinja or text file
    # line of every key in the file, from 1
    lines: Mapping[KeyPath, int] = field(default_factory=dict, repr=False)

    def parse(self, model: type[_Model]) -> _Model:
        """Validate the whole entry; raise ConfigError with file, line and key."""
        return parse_options(model, self.data, subject=shown_path(self.path), lines=self.lines)


class Catalog:
    """Finds declared providers, judges and prompts by name.

    ``user_dir``, the study's folder, comes first; ``extra_dirs`` follow in this order. Raises
    ConfigError if one of those does not exist or holds no kind of entry.

    Example:
        >>> Catalog().get("judges", "exact").data["adapter"]
        'exact'
    """

    def __init__(
        self,
        user_dir: Path | None = None,
        extra_dirs: Sequence[Path] = (),
        objects: Mapping[tuple[str, str], object] | None = None,
    ) -> None:
        for folder in extra_dirs:
            _check_folder(folder)
        self.user_dir = user_dir
        self.objects = objects or {}
        user_dirs = () if user_dir is None else (user_dir,)
        self._folders = (*user_dirs, *extra_dirs, _shipped_folder())
        self._read = cache(read_entry)  # the checks of a dataset name the same few many times

    def get(self, kind: Kind, name: str) -> CatalogEntry:
        """Read the entry of that name; raise ConfigError if there is none or it is malformed."""
        # Objects that a caller of the Python interface passed in come before all files.
        if (kind, name) in self.objects:
            return CatalogEntry(Path(name), {"name": name, "adapter": name})
        for folder in self._folders:
            if path := _find(folder, kind, name):
                return self._read(path)
        if name in _plugin_names(kind) or (kind == "judges" and is_path(name)):
            return CatalogEntry(Path(name), {"name": name, "adapter": name})
        close = nearest(name, self.names(kind))
        raise OptionsError("", [BrokenRule((), f"no {kind[:-1]} is called `{name}`; {close}")])

    def shipped(self, kind: Kind, name: str) -> CatalogEntry:
        """Read the entry that ships with the package, whatever the user's folders hold."""
        path = _find(_shipped_folder(), kind, name)
        if path is None:
            raise ConfigError(
                f"this installation lacks its own {kind[:-1]} `{name}`; reinstall bestarm-agent"
            )
        return self._read(path)

    def names(self, kind: Kind) -> list[str]:
        """Names of all entries of a kind, sorted."""
        names = {path.stem for folder in self._folders for path in _entries(folder / kind, kind)}
        return sorted(names | _plugin_names(kind))


def read_entry(path: Path) -> CatalogEntry:
    """Read one file: YAML, or else the Jinja text of a prompt without its last line break."""
    if path.suffix not in _YAML:
        return CatalogEntry(path, {"text": read_text(path).removesuffix("\n")})
    data, lines = read_yaml(path)
    if (name := data.get("name", path.stem)) != path.stem:
        raise ConfigError(
            f"{shown_path(path)}, line {lines['name',]}: `name` is {name!r}, but an "
            f"entry is found by its file's name; write `name: {path.stem}` or rename the file"
        )
    return CatalogEntry(path, data, lines)


def _shipped_folder() -> Path:
    here = Path(__file__)
    packaged = here.parents[1] / "_catalog"
    return packaged if packaged.is_dir() else here.parents[3]


def _plugin_names(kind: Kind) -> set[str]:
    return set() if kind == "prompts" else {entry.name for entry in entry_points_of(kind)}


def _check_folder(folder: Path) -> None:
    if not any((folder / kind).is_dir() for kind in _SUFFIXES):
        why = "does not exist; correct"
        if folder.is_dir():
            why = f"holds none of {', '.join(_SUFFIXES)}; name the folder above them in"
        raise ConfigError(f"catalogue folder {shown_path(folder)} {why} BESTARM_CATALOG_DIRS")


def _entries(folder: Path, kind: Kind) -> Iterator[Path]:
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.suffix in _SUFFIXES[kind] and _NAME.fullmatch(path.stem):
                yield path


def _find(folder: Path, kind: Kind, name: str) -> Path | None:
    paths = [path for path in _entries(folder / kind, kind) if path.stem == name]
    if len(paths) > 1:
        files = " and ".join(shown_path(path) for path in paths)
        raise ConfigError(f"{files} both declare `{name}`; keep one of them")
    return paths[0] if paths else None
