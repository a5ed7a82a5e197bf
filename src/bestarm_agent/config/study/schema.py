"""The schema of a study file."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, JsonValue, Strict, model_validator

from bestarm_agent.config.fields import StudyModel, broken, shown
from bestarm_agent.config.study.certify import CertifySpec
from bestarm_agent.config.study.confirm import ConfirmSpec
from bestarm_agent.config.study.dataset_and_scorer import DatasetSpec, ScorerSpec
from bestarm_agent.config.study.gate import GateSpec
from bestarm_agent.config.study.models_and_prompts import (
    CandidateSpec,
    ModelSpec,
    PromptSpec,
    check_model_name,
    model_labels,
)
from bestarm_agent.config.study.objective import (
    QUANTITIES,
    ObjectiveSpec,
)
from bestarm_agent.config.study.optimize import OptimizeSpec
from bestarm_agent.config.study.run_options import BudgetSpec, LimitsSpec, SelectorSpec, StopSpec
from bestarm_agent.config.study.value_types import Expandable, Grid, Name, Options, Params, Text
from bestarm_agent.errors import nearest


class SlicesSpec(StudyModel):
    """Groups the examples by fields of the dataset: a slice for each value of each field."""

    by: tuple[Text, ...] = Field(
        (),
        description="Fields of the dataset whose values group the examples. `length_bucket`, where "
        "no field is called so: a quarter of the examples each, by the length of their texts.",
    )


class StudyConfig(StudyModel):
    """A study: finds the best of the candidates on a dataset."""

    name: Name = Field("study", description="Name of the study; default: the file's stem.")
    models: tuple[ModelSpec, ...] = Field((), description="Models of the grid.")
    prompts: tuple[PromptSpec, ...] = Field((), description="Prompts of the grid.")
    params: Grid = Field(
        default_factory=dict,
        description="Sampling parameters of the grid: a list is an axis, anything else is the same "
        "for all, `null` leaves the parameter out. A value that is itself a list stands in a list: "
        '`stop: [["\\n"]]`.',
    )
    exclude: tuple[Params, ...] = Field(
        (),
        description="Combinations to leave out of the grid: those that match all keys of one of "
        "these mappings. Keys: `model` (label or name), `prompt`, and sampling parameters; a list "
        "matches any of its values.",
    )
    candidates: tuple[CandidateSpec, ...] = Field(
        (), description="Explicit candidates, next to the grid or in its place."
    )
    dataset: DatasetSpec = Field(description="The examples, or just the path of their file.")
    scorer: ScorerSpec = Field(description="How a reply is scored, or just the scorer's name.")
    measures: dict[Name, ScorerSpec] = Field(
        default_factory=dict,
        description="Further scorers by name: each scores every reply in [0, 1], beside `scorer`. "
        "Their means are shown; `objective.subject_to` may limit them.",
    )
    repeats: Annotated[int, Strict(), Field(ge=1, le=100)] = Field(
        1,
        description="Draws of every example, where replies vary, 1 to 100: each is an example of "
        "its own, and a mean is over all draws.",
    )
    labels: Expandable | None = Field(
        None,
        description="File of gold scores that people gave to answers, relative to the study file; "
        "the report compares the scorer with them. `${VARIABLE}` is expanded.",
    )
    budget: BudgetSpec = Field(
        default_factory=BudgetSpec, description="Hard caps; left out: the whole grid is run."
    )
    objective: ObjectiveSpec = Field(
        default_factory=ObjectiveSpec, description="The goal, or just its name."
    )
    selector: SelectorSpec = Field(
        default_factory=SelectorSpec, description="The selection rule, or just its name."
    )
    confirm: ConfirmSpec | None = Field(
        None,
        description="Keep examples back, which the winner answers once it is chosen: its number "
        "there is not too high. Left out: every example may be used to choose by.",
    )
    optimize: OptimizeSpec | None = Field(
        None,
        description="Let better prompts be proposed while the study runs, which join it.",
    )
    stop: StopSpec = Field(
        default_factory=StopSpec,
        description="When to stop though the best is not established; left out: never.",
    )
    certify: CertifySpec | None = Field(
        None,
        description="Ask for the cheapest candidate that is good enough instead of the best one; "
        "only the seed of `selector` is then used.",
    )
    slices: SlicesSpec = Field(
        default_factory=SlicesSpec,
        description="Groups of examples that are looked at by themselves, beside all examples.",
    )
    gate: GateSpec | None = Field(
        None,
        description="Settings of `bestarm-agent gate`, which compares candidates with a baseline; "
        "other commands do not heed them.",
    )
    limits: LimitsSpec = Field(
        default_factory=LimitsSpec, description="Concurrency, timeouts and retries."
    )
    providers: dict[str, Options] = Field(
        default_factory=dict,
        description="Options by name of provider (`base_url`, `endpoints`, ...). `${VARIABLE}` is "
        "expanded.",
    )
    output_dir: Expandable = Field(
        "runs",
        description="Folder of the run store and the reports, relative to the study file. "
        "`${VARIABLE}` is expanded.",
    )

    @property
    def model_labels(self) -> tuple[str, ...]:
        """Return the label of each of ``models``."""
        return model_labels(self.models)

    def model_options(self) -> dict[tuple[str, str], dict[str, JsonValue]]:
        """Return the provider options of every (provider, model) that a candidate may use."""
        options = {(spec.provider, spec.name): dict(spec.options) for spec in self.models}
        labels = set(self.model_labels)
        for candidate in self.candidates:
            if candidate.model not in labels:
                provider, _, model = candidate.model.partition("/")
                options.setdefault((provider, model), dict(candidate.options))
        return options

    @model_validator(mode="after")
    def _check_something_to_compare(self) -> Self:
        if self.candidates or (self.models and self.prompts):
            return self
        if self.models:
            broken("is missing: `models` need at least one prompt to make candidates", "prompts")
        if self.prompts:
            broken("is missing: `prompts` need at least one model to make candidates", "models")
        broken("has nothing to compare; give `models` and `prompts`, or `candidates`")

    @model_validator(mode="after")
    def _check_stop(self) -> Self:
        is_asked = self.stop.within is not None
        if is_asked and not self.objective.is_plain:
            limited = " with `subject_to`" if self.objective.subject_to else ""
            broken(
                f"belongs to the objective `best`, not to `{self.objective.name}`{limited}; "
                "leave it out, "
                "or ask for `cheapest-within-epsilon` with an `epsilon`",
                *("stop", "within"),
            )
        if is_asked and not self.selector.stop_when_separated:
            broken(
                "contradicts `selector.stop_when_separated: false`, which goes on until the budget "
                "is spent; leave one of them out",
                *("stop", "within"),
            )
        return self

    @model_validator(mode="after")
    def _check_repeats(self) -> Self:
        if self.certify is not None and self.repeats > 1:
            broken(
                "does not go with `certify`, which certifies single replies; leave one of them out",
                "repeats",
            )
        return self

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        _check_unique(self.model_labels, "models", "model")
        _check_unique([spec.label for spec in self.prompts], "prompts", "prompt")
        _check_unique([spec.label for spec in self.candidates], "candidates", "candidate")
        return self

    @model_validator(mode="after")
    def _check_measures(self) -> Self:
        for name in self.measures:
            if name in QUANTITIES:
                broken("is the name of a quantity of calls; choose another", "measures", name)
        for one in self.objective.constraints:
            if one.name not in QUANTITIES and one.name not in self.measures:
                hint = f"there are {', '.join(QUANTITIES)}"
                if self.measures:
                    hint = nearest(one.name, self.measures)
                broken(f"is not one of `measures`; {hint}", "objective", "subject_to", one.name)
        return self

    @model_validator(mode="after")
    def _check_model_options(self) -> Self:
        """Refuse different options for one model: candidates refer to it by name only."""
        first: dict[str, ModelSpec] = {}
        for i, spec in enumerate(self.models):
            if first.setdefault(spec.model, spec).options != spec.options:
                broken(
                    f"differ from those of another entry of {spec.model}; they must be the same",
                    *("models", i, "options"),
                )
        return self

    @model_validator(mode="after")
    def _check_candidates(self) -> Self:
        prompts = [spec.label for spec in self.prompts]
        for i, candidate in enumerate(self.candidates):
            _check_candidate_model(candidate, i, self)
            if candidate.prompt not in prompts and None not in prompts:
                names = [name for name in prompts if name is not None]
                broken(
                    f"{shown(candidate.prompt)} is not one of `prompts`; "
                    f"{nearest(candidate.prompt, names)}",
                    *("candidates", i, "prompt"),
                )
        return self

    @model_validator(mode="after")
    def _check_exclusions(self) -> Self:
        for i, rule in enumerate(self.exclude):
            if not rule:
                broken("is empty and would leave out everything; name a key", "exclude", i)
        return self


def _check_unique(labels: list[str | None] | tuple[str, ...], key: str, what: str) -> None:
    first: dict[str, int] = {}
    for i, label in enumerate(labels):
        if label is not None and first.setdefault(label, i) != i:
            broken(
                f"is the second {what} called {shown(label)}, after {key}[{first[label]}]; "
                "give it another label or name",
                *(key, i),
            )


def _check_candidate_model(candidate: CandidateSpec, i: int, config: StudyConfig) -> None:
    labels = config.model_labels
    if candidate.model in {*labels, *(spec.model for spec in config.models)}:
        if candidate.options:
            broken("belong to this model's entry in `models`", "candidates", i, "options")
        return
    if "/" not in candidate.model:
        broken(
            f"{shown(candidate.model)} is neither `provider/model` nor the label of one of "
            f"`models`; {nearest(candidate.model, labels)}",
            *("candidates", i, "model"),
        )
    check_model_name(candidate.model, "candidates", i, "model")
