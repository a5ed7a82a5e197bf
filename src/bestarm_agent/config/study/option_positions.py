"""Find the position of a provider's option, in the study or in the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.study.schema import StudyConfig
from bestarm_agent.config.yaml.documents import KeyPath, shown_path
from bestarm_agent.config.yaml.source_positions import Places


@dataclass(frozen=True, slots=True)
class OptionPlaces:
    """Finds the options that a model of a study is called with."""

    places: Places
    config: StudyConfig
    catalog: Catalog
    provider: str
    model: str

    def where(self, *path: str | int) -> str:
        """Return the position of an option, or of the mapping that lacks it; else the model's."""
        own, options = self._own()
        if not path:
            return self.places.where(*own)
        study = self.config.providers.get(self.provider, {})
        if len(path) > 2 and path[0] == "models" and path[2] in study:
            path = path[2:]  # an option of all models counts in every pattern of the catalogue
        if path[0] in options:
            return self.places.where(*own, "options", *path)
        if path[0] in study:
            return self.places.where("providers", self.provider, *path)
        return self._in_catalog(path) or self.places.where(
            *(("providers", self.provider) if study else own)
        )

    @property
    def entry(self) -> KeyPath:
        """Return the key path of the entry that names the model; of the scorer for a judge's."""
        own, _ = self._own()
        is_judge = own[0] == "providers" and self.provider not in self.config.providers
        return ("scorer",) if is_judge else own

    def _own(self) -> tuple[KeyPath, dict[str, object]]:
        """Return key path and options of the first entry of the study that names the model."""
        name = f"{self.provider}/{self.model}"
        for i, model in enumerate(self.config.models):
            if model.model == name:
                return ("models", i), dict(model.options)
        for i, candidate in enumerate(self.config.candidates):
            if candidate.model == name:
                return ("candidates", i), dict(candidate.options)
        return ("providers", self.provider), {}

    def _in_catalog(self, path: KeyPath) -> str | None:
        entry = self.catalog.get("providers", self.provider)
        paths = (("options", *path), path)
        line = next((entry.lines[at] for at in paths if at in entry.lines), None)
        return None if line is None else f"{shown_path(entry.path)}, line {line}"
