"""The parts of a study, read and checked: examples, candidates, judge, budget, mode and others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bestarm_agent.config.candidates import expand
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets import given_examples, read_examples
from bestarm_agent.config.labels import Label, load_labels
from bestarm_agent.config.load import LoadedStudy, read_prompts, read_shots
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.values import Candidate, Example, PromptTemplate, Slice
from bestarm_agent.engine.judging import left_out
from bestarm_agent.engine.mode import Mode, OpenMode
from bestarm_agent.engine.setup.examples import draw_examples, slices_of
from bestarm_agent.engine.setup.providers import ProviderSet
from bestarm_agent.engine.setup.requests import check_prompts, request_notices, rows_asked_alike
from bestarm_agent.engine.setup.selection import open_selection
from bestarm_agent.errors import nearest
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import check_targets


@dataclass(frozen=True, slots=True)
class StudyParts:
    """Everything that a configuration names, read and checked; no model is loaded yet."""

    study: LoadedStudy  # the configuration, and where it lies
    candidates: tuple[Candidate, ...]  # what is compared
    prompts: Mapping[str, PromptTemplate]  # the prompt templates by name
    shots: tuple[Example, ...]  # worked examples that prompts may show, in their order
    examples: tuple[Example, ...]  # the dataset, without those kept back
    kept_back: tuple[Example, ...]  # examples that only the winner answers, in a random order
    slices: tuple[Slice, ...]  # groups of them that are looked at by themselves
    independent: tuple[int, ...]  # one of each cluster; empty: no example depends on another
    kept_independent: tuple[int, ...]  # likewise of those kept back
    providers: ProviderSet  # the providers
    judge: Judge  # scores replies
    labels: tuple[Label, ...]  # gold scores of some answers
    budget: Budget  # the caps, a share of the grid turned into answers
    notices: tuple[str, ...]  # what was done to the grid that the user should know
    mode: Mode  # what the run is for

    @property
    def config(self) -> StudyConfig:
        """The configuration."""
        return self.study.config

    @property
    def folder(self) -> Path:
        """The dataset's, where images and files are."""
        return self.config.dataset.folder(self.study.base_dir)

    @property
    def unit(self) -> str:
        """The unit that statements about new ones count: "example", or "cluster" where named."""
        return "example" if self.config.dataset.cluster is None else "cluster"

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
    # Rows and prompts come first: the copies among the rows are known by what the prompts send.
    # Copies and clusters decide which rows are kept back, to be answered once; of the others each
    # is drawn ``repeats`` times. Mode and judge see these examples, and worked examples are read
    # knowing what was held back. Candidates come last, with the parameters that providers take.
    config, base_dir, positions = study.config, study.base_dir, study.positions
    if examples is not None:
        rows = given_examples(examples)
    else:
        with positions.at("dataset"):
            rows = read_examples(config.dataset, base_dir)
    prompts = read_prompts(config.prompts, base_dir, catalog, positions)
    providers = ProviderSet(study, catalog)
    copies = rows_asked_alike(study, rows, prompts, providers)
    with positions.at("dataset"):
        drawn = draw_examples(config, rows, copies)
    with positions.at("slices"):
        slices = slices_of(drawn.examples, config.slices.by)
    mode, judge = open_mode(study, drawn.examples, catalog, drawn.independent)
    with positions.at("shots"):
        shots = read_shots(config, base_dir, prompts, rows, drawn.kept_rows)
    with positions.at("dataset"):
        unrecognised = check_targets(judge, rows)
    dropped = left_out(judge, drawn.examples, providers.able) if judge.models else []
    candidates, merged = expand(config, prompts, providers.params, positions, shots)
    with positions.at("prompts"):
        sent = check_prompts(prompts, candidates, providers, config.dataset, drawn.examples)
    with positions.at("labels"):
        labels = load_labels(base_dir / config.labels) if config.labels else ()
    return StudyParts(
        study=study,
        candidates=candidates,
        prompts=prompts,
        shots=shots,
        examples=drawn.examples,
        kept_back=drawn.kept_back,
        kept_independent=drawn.kept_independent,
        slices=slices,
        independent=drawn.independent,
        providers=providers,
        judge=judge,
        labels=labels,
        budget=config.budget.caps(len(candidates) * len(drawn.examples)),
        notices=(
            *merged,
            *request_notices(prompts, rows, copies, sent, config.repeats, providers),
            *dropped,
            *unrecognised,
            *_notices_of_models(config, judge, candidates),
        ),
        mode=mode,
    )


def _notices_of_models(
    config: StudyConfig, judge: Judge, candidates: Sequence[Candidate]
) -> Iterator[str]:
    """Warn of limits of models that are not called, and of models that judge their own answers."""
    compared = {f"{candidate.provider}/{candidate.model}" for candidate in candidates}
    judges = {str(model) for model in judge.models}
    for name in sorted(config.limits.models.keys() - compared - judges):
        called = nearest(name, compared | judges)
        yield f"`limits.models.{name}` limits nothing, since no such model is called; {called}"
    for name in sorted(judges & compared):
        yield (
            f"judge model {name} is also a candidate, and models favour answers of their own; let "
            f"another one judge, or compare it with people's labels (`bestarm-agent judge check`)"
        )
