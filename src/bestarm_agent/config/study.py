"""The study file: its sections together, the rules between them, and what a run may use.

The sections of inputs (candidates, examples, scorer) and of goals have modules of their own; the
types of single values are in ``config.value_types``; broken rules become messages in
``config.file_errors``.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, JsonValue, Strict, field_validator, model_validator

from bestarm_agent.config.fields import StudyModel, as_json, broken
from bestarm_agent.config.goal_specs import (
    QUANTITIES,
    CertifySpec,
    ConfirmSpec,
    GateSpec,
    ObjectiveSpec,
    OptimizeSpec,
    SelectorSpec,
    StopSpec,
)
from bestarm_agent.config.input_specs import (
    CandidateSpec,
    DatasetSpec,
    ModelSpec,
    PromptSpec,
    ScorerSpec,
    ShotsSpec,
    SlicesSpec,
    model_labels,
)
from bestarm_agent.config.value_types import (
    Count,
    Dollars,
    Expandable,
    Flag,
    Grid,
    GridShare,
    Name,
    Options,
    Params,
    Positive,
    Share,
    check_model_name,
)
from bestarm_agent.domain.spend import Budget, nanos
from bestarm_agent.errors import nearest


class BudgetSpec(StudyModel):
    """Hard caps of a run: the first one reached ends it; without any, all answers may be asked."""

    usd: Dollars | None = Field(
        None, description='Dollars, judges and retries included; 5 or "$5". Needs known prices.'
    )
    answers: Count | None = Field(
        None, description="A candidate's answers to examples, replies from the cache included."
    )
    calls: Count | None = Field(
        None, description="Requests sent to providers, retries and judges included."
    )
    tokens: Count | None = Field(None, description="Prompt plus generated tokens.")
    minutes: Positive | None = Field(
        None, description="Wall-clock minutes, resumed parts of the run included."
    )
    gpu_minutes: Positive | None = Field(
        None, description="Minutes of local workers (accelerator or CPU), summed over the workers."
    )
    share: GridShare | None = Field(
        None, description='Share of all answers, in (0, 1]; 0.1 or "10%".'
    )

    def caps(self, cells: int) -> Budget:
        """Return the caps of a run on a grid of ``cells`` (candidate, example) pairs.

        Example:
            >>> BudgetSpec(share=0.1).caps(cells=30_000).answers
            3000
        """
        answers = [] if self.answers is None else [self.answers]
        if self.share is not None:
            exact = Decimal(str(self.share)) * cells  # 0.29 * 100 is 28.99... in binary
            answers.append(max(1, int(exact.to_integral_value(rounding=ROUND_FLOOR))))
        return Budget(
            usd_nanos=None if self.usd is None else nanos(self.usd),
            answers=min(answers, default=None),
            calls=self.calls,
            tokens=self.tokens,
            gpu_seconds=self.gpu_minutes and 60 * self.gpu_minutes,
            seconds=self.minutes and 60 * self.minutes,
        )


class RateSpec(StudyModel):
    """Limits per minute; those left out are learned from the provider's answers."""

    rpm: Count | None = Field(None, description="Requests per minute.")
    tpm: Count | None = Field(None, description="Tokens per minute, prompt and generated together.")
    itpm: Count | None = Field(None, description="Prompt tokens per minute.")
    otpm: Count | None = Field(None, description="Generated tokens per minute.")
    shared: Flag | None = Field(
        None,
        description="Whether all models of a provider's account share these limits; default: each "
        "model has them for itself.",
    )


class ProviderLimits(RateSpec):
    """Limits of one provider, of each of its `endpoints`; those left out are its own."""

    in_flight: Count | None = Field(
        None,
        description="Calls in flight at once, at each of its `endpoints`. Left out: found by trial "
        "for providers over the network.",
    )


class LimitsSpec(StudyModel):
    """Concurrency, timeouts and retries."""

    in_flight: Count = Field(64, description="Calls in flight at once, over all providers.")
    timeout_seconds: Positive = Field(120.0, description="Seconds that one attempt may take.")
    max_attempts: Count = Field(
        5, description="Attempts at one call before its answer counts as missing."
    )
    failed_score: Share = Field(
        0.0,
        description="Score in [0, 1] of a reply on which the candidate itself failed (refusal, "
        "nothing to read in it, too long).",
    )
    max_failed_share: Share = Field(
        0.5, description="Share of missing answers above which the run stops."
    )
    providers: dict[str, ProviderLimits] = Field(
        default_factory=dict, description="Limits by name of provider."
    )
    models: dict[str, RateSpec] = Field(
        default_factory=dict,
        description="Limits by `provider/model`; they come before those of the provider.",
    )

    @field_validator("models")
    @classmethod
    def _check_models(cls, models: dict[str, RateSpec]) -> dict[str, RateSpec]:
        for name, limits in models.items():
            check_model_name(name, name)
            if limits.shared is not None:
                broken("is of a provider's limits; write it in `limits.providers`", name, "shared")
        return models


class StudyConfig(StudyModel):
    """A study: finds the best of the candidates on a dataset."""

    name: Name = Field("study", description="Name of the study; default: the file's stem.")
    models: tuple[ModelSpec, ...] = Field((), description="Models to combine.")
    prompts: tuple[PromptSpec, ...] = Field((), description="Prompts to combine.")
    params: Grid = Field(
        default_factory=dict,
        description="Sampling parameters to combine: a list is an axis, anything else is the same "
        "for all, `null` leaves the parameter out. A value that is itself a list stands in a list: "
        '`stop: [["\\n"]]`.',
    )
    exclude: tuple[Params, ...] = Field(
        (),
        description="Combinations to leave out: those that match all keys of one of "
        "these mappings. Keys: `model` (label or name), `prompt`, `shots`, and sampling "
        "parameters; a list matches any of its values.",
    )
    candidates: tuple[CandidateSpec, ...] = Field(
        (), description="Explicit candidates, next to the combinations or in their place."
    )
    shots: ShotsSpec | None = Field(None, description="Worked examples in the prompts.")
    dataset: DatasetSpec = Field(description="The examples, or just the path of their file.")
    scorer: ScorerSpec = Field(description="How a reply is scored, or just the scorer's name.")
    measures: dict[Name, ScorerSpec] = Field(
        default_factory=dict,
        description="Further scorers by name: each scores every reply in [0, 1], beside `scorer`. "
        "Their means are shown; `objective.subject_to` may limit them.",
    )
    repeats: Annotated[int, Strict(), Field(ge=1, le=100)] = Field(
        1,
        description="Draws of every example, where replies vary: each is an example of "
        "its own, and a mean is over all draws.",
    )
    labels: Expandable | None = Field(
        None,
        description="File of gold scores that people gave to answers, relative to the study file; "
        "the report compares the scorer with them. `${VARIABLE}` is expanded.",
    )
    budget: BudgetSpec = Field(
        default_factory=BudgetSpec, description="Hard caps; left out: all answers may be asked for."
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
        None, description="Let better prompts be proposed while the study runs, which join it."
    )
    stop: StopSpec = Field(
        default_factory=StopSpec, description="When a run may stop before its budget is spent."
    )
    certify: CertifySpec | None = Field(
        None,
        description="Ask for the cheapest candidate that is good enough instead of the best one; "
        "only the seed of `selector` is then used.",
    )
    slices: SlicesSpec = Field(
        default_factory=SlicesSpec,
        description="Groups of examples on which `gate` has verdicts; `view` shows their answers.",
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

    @cached_property
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

    @cached_property
    def param_names(self) -> frozenset[str]:
        """The names of all sampling parameters, of whatever model."""
        own = [*(spec.params for spec in self.models), *(spec.params for spec in self.candidates)]
        return frozenset(self.params).union(*own)

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
        for key, is_asked in (
            ("within", self.stop.within is not None),
            ("for", self.stop.for_ == "new" and self.gate is None),  # a verdict ends a gate
        ):
            if is_asked and not self.objective.is_plain:
                limited = " with `subject_to`" if self.objective.subject_to else ""
                broken(
                    f"belongs to the objective `best`, not to `{self.objective.name}`{limited}; "
                    "leave it out, or ask for `cheapest-within-epsilon` with an `epsilon`",
                    *("stop", key),
                )
            if is_asked and not self.selector.stop_when_separated:
                broken(
                    "contradicts `selector.stop_when_separated: false`, which goes on until the "
                    "budget is spent; leave one of them out",
                    *("stop", key),
                )
        return self

    @model_validator(mode="after")
    def _check_dependent_examples(self) -> Self:
        if self.certify is not None and self.repeats > 1:
            broken(
                "does not go with `certify`, which certifies single replies; leave one of them out",
                "repeats",
            )
        for key, section in (("certify", self.certify), ("confirm", self.confirm)):
            if self.dataset.cluster is not None and section is not None:
                broken(
                    f"does not go with `{key}`, whose statement supposes that no example depends "
                    "on another; leave one of them out",
                    *("dataset", "cluster"),
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
        prompts = {spec.label for spec in self.prompts}
        labels, models = self.model_labels, {spec.model for spec in self.models}
        for i, candidate in enumerate(self.candidates):
            if candidate.model in labels or candidate.model in models:
                if candidate.options:
                    broken("belong to this model's entry in `models`", "candidates", i, "options")
            else:
                if "/" not in candidate.model:
                    broken(
                        f"{as_json(candidate.model)} is neither `provider/model` nor the label of "
                        f"one of `models`; {nearest(candidate.model, labels)}",
                        *("candidates", i, "model"),
                    )
                check_model_name(candidate.model, "candidates", i, "model")
            # A pattern of files has no label here, and any prompt may be one of its files. The name
            # is then checked when the files are read.
            if candidate.prompt not in prompts and None not in prompts:
                names = [name for name in prompts if name is not None]
                broken(
                    f"{as_json(candidate.prompt)} is not one of `prompts`; "
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
                f"is the second {what} called {as_json(label)}, after {key}[{first[label]}]; "
                "give it another label or name",
                *(key, i),
            )
