"""The parts of a study: dataset, candidates, providers, judge and budget, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets.gold_labels import Label, load_labels
from bestarm_agent.config.datasets.slices import slices_of
from bestarm_agent.config.study.grid import expand
from bestarm_agent.config.study.inputs import check_fields, read_examples, read_prompts
from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.config.study.schema import StudyConfig
from bestarm_agent.config.yaml.documents import locating
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.example import Example, Slice, each_drawn
from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.calls.judge_calls import left_out
from bestarm_agent.engine.mode import Mode, OpenMode
from bestarm_agent.engine.setup.providers import ProviderSet
from bestarm_agent.engine.setup.selection import open_selection
from bestarm_agent.errors import counted
from bestarm_agent.judges.base import Judge


@dataclass(frozen=True, slots=True)
class StudyParts:
    """Everything that a configuration names, read and checked; no model is loaded yet."""

    study: LoadedStudy  # the configuration, and where it lies
    candidates: tuple[Candidate, ...]  # what is compared
    prompts: Mapping[str, PromptTemplate]  # the prompt templates by name
    examples: tuple[Example, ...]  # the dataset, without those kept back
    kept_back: tuple[Example, ...]  # examples that only the winner answers, in a random order
    slices: tuple[Slice, ...]  # groups of them that are looked at by themselves
    providers: ProviderSet  # the providers
    judge: Judge  # scores replies
    labels: tuple[Label, ...]  # gold scores of some answers
    budget: Budget  # the caps, a share of the grid turned into pulls
    notices: tuple[str, ...]  # what was done to the grid that the user should know
    mode: Mode  # what the run is for

    @property
    def config(self) -> StudyConfig:
        """The configuration."""
        return self.study.config

    @property
    def judge_priced(self) -> bool:
        """True if the prices of the judge's models are known."""
        return all(self.providers.able(model).priced for model in self.judge.models)


def assemble(
    study: LoadedStudy,
    catalog: Catalog,
    open_mode: OpenMode = open_selection,
    *,
    examples: Sequence[Example] | None = None,
) -> StudyParts:
    """Read and check everything that a configuration names; raise ConfigError if it is wrong."""
    config, base_dir = study.config, study.base_dir
    with locating(partial(study.places.located, ("dataset",))):
        rows = tuple(examples) if examples is not None else read_examples(config.dataset, base_dir)
        shown, kept_back = _kept_back(rows, config)
        found = each_drawn(shown, config.repeats)
    with locating(partial(study.places.located, ("slices",))):
        slices = slices_of(found, config.slices.by)
    mode, judge = open_mode(study, found, catalog)
    prompts = read_prompts(config.prompts, base_dir, catalog, study.places)
    with locating(partial(study.places.located, ("prompts",))):
        fixed = check_fields(prompts, config.dataset, found)
    providers = ProviderSet(config, base_dir, catalog, study.places)
    notices = left_out(judge, found, providers.able) if judge.models else []
    expansion = expand(config, prompts, providers.params, study.places)
    unused = _same_for_all(fixed, expansion.candidates, providers)
    cells = len(expansion.candidates) * len(found)
    budget = config.budget.caps(cells)
    repeated = _repeat_notices(config, expansion.candidates, providers)
    with locating(partial(study.places.located, ("labels",))):
        labels = load_labels(base_dir / config.labels) if config.labels else ()
    return StudyParts(
        study=study,
        candidates=expansion.candidates,
        prompts=prompts,
        examples=found,
        kept_back=kept_back,
        slices=slices,
        providers=providers,
        judge=judge,
        labels=labels,
        budget=budget,
        notices=(*expansion.notices, *unused, *notices, *repeated),
        mode=mode,
    )


def _kept_back(
    rows: tuple[Example, ...], config: StudyConfig
) -> tuple[tuple[Example, ...], tuple[Example, ...]]:
    """Part the rows of a dataset into those of the selection and those kept back from it."""
    if config.confirm is None or config.gate is not None or config.certify is not None:
        return rows, ()
    drawn = config.confirm.drawn(len(rows), config.selector.seed)
    held = set(drawn)
    shown = tuple(row for number, row in enumerate(rows) if number not in held)
    return shown, tuple(rows[number] for number in drawn)


def _repeat_notices(
    config: StudyConfig, candidates: Sequence[Candidate], providers: ProviderSet
) -> list[str]:
    """Warn of draws that are alike."""
    if config.repeats == 1:
        return []
    cold = [one for one in candidates if one.params.get("temperature") == 0]
    able = [providers.of(one.provider, one.model).capabilities(one.model) for one in cold]
    alike = sum(not (one.by_example or one.by_inputs) for one in able)
    if not alike:
        return []
    return [
        f"repeats: {counted(alike, 'candidate')} at temperature 0, where {config.repeats} draws "
        f"are (nearly) alike and all paid for; raise the temperature, or leave `repeats` out"
    ]


def _same_for_all(
    fixed: Sequence[str], candidates: Sequence[Candidate], providers: ProviderSet
) -> list[str]:
    """Warn of prompts that use no field, except for records and programs, which need none."""
    used = set()
    for candidate in candidates:
        able = providers.of(candidate.provider, candidate.model).capabilities(candidate.model)
        if not (able.by_example or able.by_inputs):
            used.add(candidate.prompt.name)
    return [
        f"prompt `{name}` uses no field of the dataset: it is the same for all examples"
        for name in fixed
        if name in used
    ]
