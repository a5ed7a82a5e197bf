"""Import the function that a study names as ``module:function``.

A module that lies in the study's folder is imported under a name of its own, below a package that
exists in memory only and whose path is that folder: ``sys.path`` stays as it is, two studies may
both have a ``chain.py``, and a file that was changed is read again. Such a module imports its
neighbours with a dot, ``from . import tools``. Everything else is imported as usual.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import file_digest
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from inspect import isawaitable, iscoroutinefunction
from pathlib import Path
from sysconfig import get_path
from traceback import extract_tb
from types import ModuleType
from typing import Any, TypeAlias

from bestarm_agent.domain.redaction import hidden_texts, is_secret_variable, masked
from bestarm_agent.domain.threads import DaemonThreads
from bestarm_agent.domain.values import digest
from bestarm_agent.errors import ConfigError, nearest

Function: TypeAlias = Callable[..., Any]  # called with a Task; returns an answer, or awaits one

# "chains:answer", "chains.qa:Answerer.call": dotted names on both sides of one colon.
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NAMESPACE = "_bestarm_study_"
_OURS = f"{Path(__file__).parents[1]}{os.sep}"
# how the paths of code begin that is not the user's: Python's, ours, and what is installed
_LIBRARIES = ("<frozen", _OURS, *map(get_path, ("stdlib", "purelib", "platlib")))
_digests: dict[str, str] = {}  # of the files below each such package


@dataclass(frozen=True, slots=True)
class Program:
    """A function of the user, imported."""

    name: str  # ``module:function``, as in the study
    function: Function  # the function
    is_async: bool  # whether it is a coroutine function; else it runs in a thread
    digest: str  # of its source files
    # secrets and paths that its messages might contain, with their replacements
    hidden: Mapping[str, str] = field(default_factory=dict, repr=False)

    def masked(self, error: BaseException | str) -> str:
        """Return an error or a text for a message, without secrets and paths."""
        return masked(str(error), self.hidden)

    async def called(self, threads: DaemonThreads, *arguments: object) -> Any:  # noqa: ANN401
        """Call the function: on the loop where it is a coroutine function, else in a thread."""
        if self.is_async:
            return await self.function(*arguments)
        value = await threads.run(partial(self.function, *arguments), self.name)
        # An ordinary function may return a coroutine, as a wrapped one does: it runs on the loop.
        return await value if isawaitable(value) else value


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
    label = f"program {name}"
    function, content = _loaded(name, label, base_dir, matching_files(sources, base_dir))
    if not callable(function):
        problem = f"{name.partition(':')[2]} is no function, but {function!r:.60}"
        raise ConfigError(f"{label}: {problem}")
    secrets = [value for key, value in os.environ.items() if is_secret_variable(key)]
    return Program(name, function, is_async(function), content, hidden_texts(secrets, base_dir))


def load_object(name: str, base_dir: Path) -> object:
    """Import a class, or any other object, as ``load_program`` imports a function."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not `module:attribute`, such as my_rules:MyRule")
    return _loaded(name, name, base_dir)[0]


def _loaded(
    name: str, label: str, base_dir: Path, sources: Iterable[Path] = ()
) -> tuple[object, str]:
    """Import what ``name`` names; return it with the digest of its files and ``sources``."""
    module, _, attribute = name.partition(":")
    top = module.partition(".")[0]
    is_local = _lies_in(base_dir, top)
    files = _local_files(top, base_dir) if is_local else _installed_files(label, top)
    # The digest is taken before the import, of the whole package: whatever else it holds may decide
    # what the function does.
    content = files_digest([*files, *sources], base_dir)
    full = f"{_namespace(base_dir, content)}.{module}" if is_local else module
    return _attribute(_imported(full, label, base_dir), attribute, label), content


def source_name(kind: type) -> str:
    """Return module and name of a class; of one in a study's folder, with the files' digest.

    The result is the same wherever the folder lies.

    Example:
        >>> source_name(Program)
        'bestarm_agent.config.functions:Program'
    """
    module = kind.__module__
    namespace, _, local = module.partition(".")
    if not namespace.startswith(_NAMESPACE):
        return f"{module}:{kind.__qualname__}"
    return f"{local}:{kind.__qualname__} {_digests[namespace]}"


def files_digest(files: Iterable[Path], base_dir: Path) -> str:
    """Return a digest of names, relative to ``base_dir`` if possible, and contents of files."""
    contents: dict[str, str] = {}
    for path in files:
        inside = path.is_relative_to(base_dir)
        with path.open("rb") as content:
            # Names relative to the study's folder, or a study would be another one after it was
            # moved.
            name = path.relative_to(base_dir).as_posix() if inside else path.name
            contents[name] = file_digest(content, "sha256").hexdigest()
    return digest(contents)


def matching_files(patterns: Iterable[str], base_dir: Path) -> list[Path]:
    """Return the files that patterns match; raises ConfigError for one that matches none."""
    matched: set[Path] = set()
    for pattern in patterns:
        try:
            files = {path for path in base_dir.glob(pattern) if path.is_file()}
        except (ValueError, NotImplementedError) as error:
            raise ConfigError(f"`sources`: {pattern!r} is no relative pattern: {error}") from None
        if not files:
            raise ConfigError(f"`sources`: {pattern!r} matches no file next to the study")
        matched |= files
    return sorted(matched)


def _local_files(top: str, folder: Path) -> list[Path]:
    module = folder / f"{top}.py"
    return [module] if module.is_file() else sorted((folder / top).rglob("*.py"))


def _installed_files(label: str, top: str) -> list[Path]:
    """Return the Python files of a module or package that is installed; raises ConfigError."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise ConfigError(
            f"{label}: there is no Python module `{top}` next to the study, and none is "
            "installed; correct the name, or put the file next to the study"
        )
    if spec.submodule_search_locations:
        folders = map(Path, spec.submodule_search_locations)
        return sorted(path for each in folders for path in each.rglob("*.py"))
    return [Path(spec.origin)] if spec.has_location and spec.origin else []


def _namespace(base_dir: Path, content: str) -> str:
    """Return the package in memory below which the modules of a folder are imported."""
    # A package of its own for each folder and content: two studies may both have a `chains.py`, and
    # a changed one must be imported anew, though Python keeps modules by name.
    name = _NAMESPACE + digest([str(base_dir.resolve()), content])
    if name not in sys.modules:
        package = ModuleType(name, "Modules of a study's folder.")
        package.__path__ = [str(base_dir.resolve())]
        sys.modules[name] = package
        _digests[name] = content
    return name


def _imported(full: str, label: str, base_dir: Path) -> ModuleType:
    # A file written since the last import would be missed by Python's cache of folders.
    invalidate_caches()
    try:
        return import_module(full)
    except (Exception, SystemExit) as error:  # a module runs what it likes when it is imported
        # A module next to the study is not on sys.path, so `import other` fails where `from .
        # import other` works.
        missing = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
        is_neighbour = bool(missing) and _lies_in(base_dir, missing)
        hint = f"; import a file next to it with a dot: `from . import {missing}`"
        hint = hint if is_neighbour else ""
        hint = "; name the module without `.py`" if ".py:" in label else hint
        message = str(error).replace(f"{full.partition('.')[0]}.", "")
        raise ConfigError(
            f"{label} cannot be imported: {type(error).__name__}: {message}{hint}"
        ) from error


def _attribute(module: ModuleType, attribute: str, label: str) -> object:
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            public = [each for each in vars(value) if not each.startswith("_")]
            raise ConfigError(f"{label}: there is no `{part}`; {nearest(part, public)}")
        value = getattr(value, part)
    return value


def is_async(function: Function) -> bool:
    """Return whether calling a function, or an object, gives a coroutine."""
    # An object whose `__call__` is a coroutine function is none itself.
    return iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__)


def place_of(error: BaseException, program: Program, form: str = " ({}, line {})") -> str:
    """Write file and line of the last step of the user's own code in a ``form``; "" if none is.

    That is the one to look at: deeper ones belong to libraries, or to this package.
    """
    module = sys.modules.get(getattr(program.function, "__module__", None) or "")
    own = getattr(module, "__file__", None)
    for step in reversed(extract_tb(error.__traceback__)):
        if step.filename == own or not step.filename.startswith(_LIBRARIES):
            return form.format(Path(step.filename).name, step.lineno)
    return ""


def _lies_in(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or any((folder / module).glob("**/*.py"))
