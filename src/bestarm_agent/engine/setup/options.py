"""Options for opening a study: its store, its catalogue, and objects in place of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.functions import source_name
from bestarm_agent.config.load import LoadedStudy, load_study, study_from
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import Judge
from bestarm_agent.providers.base import Provider
from bestarm_agent.selectors.rule import Rule
from bestarm_agent.store.store import Store, StorePlace

STORE_FILE = "runs.sqlite"


class Objects(TypedDict, total=False):
    """Python objects that ``Study.open`` takes in place of names."""

    selector: type[Rule]
    providers: Mapping[str, Provider]
    judge: Judge
    store: StorePlace


@dataclass(frozen=True, slots=True)
class Options:
    """Settings for opening a study. Objects take the place of the study's names."""

    # path, URL or open store; None: ``runs.sqlite`` in the study's ``output_dir``
    store: StorePlace | None = None
    catalog_dirs: tuple[Path, ...] = ()  # searched before the packaged catalogue
    use_cache: bool = True  # whether replies bought by earlier runs may be used
    clock: Clock = field(default_factory=Clock)
    selector: type[Rule] | None = None  # class of the selection rule
    # by name, besides the catalogue's; a study enters and leaves them
    providers: Mapping[str, Provider] = field(default_factory=dict)
    judge: Judge | None = None  # scores the replies, instead of the study's scorer

    def __post_init__(self) -> None:
        """Refuse what is of another kind, before it is used; raises ConfigError."""
        rule, given = (getattr(self, name) for name in ("selector", "providers"))
        is_rule = rule is None or (isinstance(rule, type) and issubclass(rule, Rule))
        named = isinstance(given, Mapping)
        named = named and all(isinstance(one, Provider) for one in given.values())
        is_place = isinstance(self.store, str | Path | Store | None)
        for name, is_right, wanted in (
            ("selector", is_rule, "a subclass of `Rule`; a name goes into `overrides`"),
            ("judge", isinstance(self.judge, Judge | None), "an object of a subclass of `Judge`"),
            ("providers", named, "a mapping from names to objects of subclasses of `Provider`"),
            ("store", is_place, "a path, a URL or an open store"),
        ):
            if not is_right:
                raise ConfigError(f"`{name}` must be {wanted}, got {getattr(self, name)!r:.60}")

    def load(
        self,
        source: str | Path | Mapping[str, object] | LoadedStudy,
        overrides: Mapping[str, object] | None = None,
    ) -> LoadedStudy:
        """Read a study from a file, or take what one holds, with paths from the working directory.

        Objects take the place of its names; ``overrides`` replace values by dotted key.
        """
        if not isinstance(overrides or {}, Mapping):
            raise ConfigError(f"`overrides` must be values by dotted key, got {overrides!r:.60}")
        changes = {str(key): value for key, value in (overrides or {}).items()}
        if self.selector is not None:
            changes["selector.name"] = source_name(self.selector)
        if self.judge is not None:
            changes["scorer"] = {"name": self.judge.name}
        return changed_study(source, changes)

    def catalog(self, study: LoadedStudy) -> Catalog:
        """Return the catalogue of a study, with the objects.

        Raises:
            ValueError: a provider has another name than its key.
        """
        plugins: dict[tuple[str, str], object] = {}
        for name, provider in self.providers.items():
            if provider.name != name:
                raise ValueError(
                    f"providers[{name!r}] calls itself {provider.name!r}; use one name for both"
                )
            plugins["providers", name] = provider
        if self.selector is not None:
            plugins["selectors", source_name(self.selector)] = self.selector
        if self.judge is not None:
            plugins["judges", self.judge.name] = self.judge
        return Catalog(study.base_dir, self.catalog_dirs, plugins)

    def store_of(self, study: LoadedStudy) -> StorePlace:
        """Return the store of a study's runs."""
        if self.store is not None:
            return self.store
        return study.base_dir / study.config.output_dir / STORE_FILE


def changed_study(
    source: str | Path | Mapping[str, object] | LoadedStudy,
    changes: Mapping[str, object],
    *,
    is_own: bool = False,
) -> LoadedStudy:
    """Read a study, or take one that is loaded, with some values replaced, by dotted key.

    ``is_own``: nobody asked for the changes, so that no proposed command needs to repeat them.
    """
    if isinstance(source, LoadedStudy):
        if not changes or not isinstance(source.source, Mapping):
            return source
        changed = study_from(source.source, source.base_dir, changes)
        # it stays the study of its file, with what was changed before
        before = (text for text in source.changes if text.partition("=")[0] not in changes)
        told = source.changes if is_own else (*before, *changed.changes)
        return replace(changed, path=source.path, changes=told)
    if isinstance(source, Mapping):
        return study_from(source, overrides=changes)
    if not isinstance(source, str | Path):
        raise ConfigError(f"a study is the path of its file, or a mapping, not {source!r:.60}")
    return load_study(Path(source), changes)
