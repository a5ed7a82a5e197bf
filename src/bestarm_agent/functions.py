"""Finds the function that a study names as ``module:function``.

A module that lies in the study's folder is imported under a name of its own, below a package that
exists in memory only and whose path is that folder: ``sys.path`` stays as it is, two studies may
both have a ``chain.py``, and a file that was changed is read anew. Such a module imports its
neighbours with a dot, ``from . import tools``. Everything else is imported as usual.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import file_digest
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from bestarm_agent.domain.digest import digest
from bestarm_agent.domain.redaction import hidden_texts, is_secret_variable, masked
from bestarm_agent.errors import ConfigError, nearest

Function: TypeAlias = Callable[..., Any]  # called with a Task; returns an answer, or awaits one

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NAMESPACE = "_bestarm_study_"


@dataclass(frozen=True, slots=True)
class Program:
    """A function that answers, found and imported.

    Attributes:
        name: ``module:function``, as users write it.
        function: called with a ``Task``.
        is_async: whether calling it gives something to await, so that it needs no thread.
        digest: of its source files.
        hidden: what must not be shown of what it says, with what stands in its place: it can read
            the secrets in our environment.
    """

    name: str
    function: Function
    is_async: bool
    digest: str
    hidden: Mapping[str, str] = field(default_factory=dict, repr=False)

    def said(self, error: BaseException | str) -> str:
        """What the function raised or returned as messages show it, without secrets and paths."""
        return masked(str(error), self.hidden)


def load_program(name: str, base_dir: Path, sources: Iterable[str] = ()) -> Program:
    """Import a function.

    Args:
        name: ``module:function``; the module is looked up in the study's folder, then installed.
        base_dir: the study's folder.
        sources: patterns of further files that count for the digest, relative to ``base_dir``.

    Raises:
        ConfigError: there is no such module or function, or importing it failed.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} names no Python function; write `module:function`, such as chains.qa:answer"
        )
    module_name, _, attribute = name.partition(":")
    top = module_name.partition(".")[0]
    is_local = _lies_in(base_dir, top)
    files = [*_files(name, top, base_dir if is_local else None), *matching_files(sources, base_dir)]
    content = files_digest(files, base_dir)
    full = f"{_namespace(base_dir, content)}.{module_name}" if is_local else module_name
    function = _function(_imported(full, name, base_dir), attribute, name)
    secrets = [value for key, value in os.environ.items() if is_secret_variable(key)]
    return Program(name, function, _is_async(function), content, hidden_texts(secrets, base_dir))


def files_digest(files: Iterable[Path], base_dir: Path) -> str:
    """Digest of files by content; their names count from ``base_dir``, or are bare."""
    contents: dict[str, str] = {}
    for path in files:
        inside = path.is_relative_to(base_dir)
        with path.open("rb") as content:
            shown = path.relative_to(base_dir).as_posix() if inside else path.name
            contents[shown] = file_digest(content, "sha256").hexdigest()
    return digest(contents)


def matching_files(patterns: Iterable[str], base_dir: Path) -> list[Path]:
    """Files that patterns match; raises ConfigError for a pattern that matches none."""
    found: set[Path] = set()
    for pattern in patterns:
        try:
            files = {path for path in base_dir.glob(pattern) if path.is_file()}
        except (ValueError, NotImplementedError) as error:
            raise ConfigError(f"`sources`: {pattern!r} is no relative pattern: {error}") from None
        if not files:
            raise ConfigError(f"`sources`: {pattern!r} matches no file next to the study")
        found |= files
    return sorted(found)


def _files(name: str, top: str, folder: Path | None) -> list[Path]:
    """The Python files of a top-level module or package."""
    if folder is not None and (folder / f"{top}.py").is_file():
        return [folder / f"{top}.py"]
    if folder is not None:
        return sorted((folder / top).rglob("*.py"))
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise ConfigError(
            f"program {name}: there is no Python module `{top}` next to the study, and none is "
            "installed; correct the name, or put the file next to the study"
        )
    if spec.submodule_search_locations:
        folders = map(Path, spec.submodule_search_locations)
        return sorted(path for each in folders for path in each.rglob("*.py"))
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def _namespace(base_dir: Path, content: str) -> str:
    """The package in memory under which the modules of a folder are imported."""
    name = _NAMESPACE + digest([str(base_dir.resolve()), content])
    if name not in sys.modules:
        package = ModuleType(name, "Modules of a study's folder.")
        package.__path__ = [str(base_dir.resolve())]
        sys.modules[name] = package
    return name


def _imported(full: str, name: str, base_dir: Path) -> ModuleType:
    invalidate_caches()
    try:
        return import_module(full)
    except (Exception, SystemExit) as error:  # a module runs what it likes when it is imported
        missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        is_neighbour = bool(missing) and _lies_in(base_dir, missing)
        hint = f"; import a file next to it with a dot: `from . import {missing}`"
        hint = hint if is_neighbour else ""
        shown = str(error).replace(f"{full.partition('.')[0]}.", "")
        raise ConfigError(
            f"program {name} cannot be imported: {type(error).__name__}: {shown}{hint}"
        ) from error


def _function(module: ModuleType, attribute: str, name: str) -> Function:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [each for each in vars(found) if not each.startswith("_")]
            raise ConfigError(f"program {name}: there is no `{part}`; {nearest(part, public)}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"program {name}: {attribute} is no function, but {found!r:.60}")
    function: Function = found
    return function


def _is_async(function: Function) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


def _lies_in(folder: Path, module: str) -> bool:
    """Whether a top-level module or package of that name lies in a folder."""
    return (folder / f"{module}.py").is_file() or any((folder / module).glob("**/*.py"))
