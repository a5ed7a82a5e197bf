"""The `budget`, `selector` and `limits` parts of a study."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue, Strict, field_validator

from bestarm_agent.config.fields import StudyModel
from bestarm_agent.config.study.models_and_prompts import check_model_name
from bestarm_agent.config.study.rate_limits import ProviderRateSpec, RateSpec
from bestarm_agent.config.study.value_types import (
    Count,
    Dollars,
    Flag,
    GridShare,
    Positive,
    Share,
    Text,
)
from bestarm_agent.domain.spend import Budget, nanos

_SECONDS_PER_MINUTE = 60
_DEFAULT_LEVEL = 0.95


class BudgetSpec(StudyModel):
    """Hard caps of a run: the first one reached ends it; without any, the whole grid is run."""

    usd: Dollars | None = Field(
        None, description='Dollars, judges and retries included; 5 or "$5". Needs known prices.'
    )
    pulls: Count | None = Field(
        None, description="(candidate, example) pairs evaluated, cached replies included."
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
        None, description='Share of the candidates x examples grid, in (0, 1]; 0.1 or "10%".'
    )

    def caps(self, cells: int) -> Budget:
        """Return the caps of a run on a grid of ``cells`` (candidate, example) pairs.

        Example:
            >>> BudgetSpec(share=0.1).caps(cells=30_000).pulls
            3000
        """
        return Budget(
            usd_nanos=None if self.usd is None else nanos(self.usd),
            pulls=self._pulls(cells),
            calls=self.calls,
            tokens=self.tokens,
            gpu_seconds=_seconds(self.gpu_minutes),
            seconds=_seconds(self.minutes),
        )

    def _pulls(self, cells: int) -> int | None:
        caps = [] if self.pulls is None else [self.pulls]
        if self.share is not None:
            exact = Decimal(str(self.share)) * cells  # 0.29 * 100 is 28.99... in binary
            caps.append(max(1, int(exact.to_integral_value(rounding=ROUND_FLOOR))))
        return min(caps, default=None)


def _seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * _SECONDS_PER_MINUTE


class StopSpec(StudyModel):
    """When a run may stop though the best is not established."""

    within: Annotated[float, Strict(), Field(gt=0, lt=1)] | None = Field(
        None,
        description="Stop once the leading candidate is shown to be at most this far below the "
        "best, in (0, 1), at the confidence of `selector`.",
    )


class SelectorSpec(StudyModel):
    """The selection rule, or just its name."""

    short_form: ClassVar[str | None] = "name"

    name: Text = Field("auto", description="Name of the selection rule.")
    params: dict[str, JsonValue] = Field(
        default_factory=dict, description="Parameters of the rule, such as `eta: 1.0`."
    )
    history: tuple[Text, ...] = Field(
        (),
        description="Earlier runs (id or name) and score files to learn from, for rules that can: "
        "`auto` and `pulse`. Examples are recognised by content in runs, by id in files.",
    )
    seed: Annotated[int, Strict(), Field(ge=0)] = Field(
        0, description="Seed of all random choices, >= 0."
    )
    per: Literal["call", "dollar"] = Field(
        "call",
        description="Unit in which the rule saves: calls, or dollars. Per dollar, expensive "
        "candidates are pulled less (docs/costs.md); needs known prices.",
    )
    confidence: Annotated[float, Strict(), Field(gt=0, lt=1)] | None = Field(
        None,
        description="Confidence in (0, 1) that the answer must have; a run whose budget ends "
        "before exits with code 3. Left out: none is asked for, intervals are stated at 0.95.",
    )
    stop_when_separated: Flag = Field(
        True,
        description="Whether to stop before the budget is spent, once the best candidate is "
        "established at this confidence.",
    )

    @property
    def level(self) -> float:
        """Return the confidence of intervals, in (0, 1)."""
        return _DEFAULT_LEVEL if self.confidence is None else self.confidence


class ProviderLimits(ProviderRateSpec):
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
        5, description="Attempts at one call before its pair is reported as not measurable."
    )
    failed_score: Share = Field(
        0.0,
        description="Score in [0, 1] of a reply on which the candidate itself failed (refusal, "
        "nothing to read in it, too long).",
    )
    max_failed_share: Share = Field(
        0.5, description="Share in [0, 1] of pairs not measurable above which the run stops."
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
        for name in models:
            check_model_name(name, name)
        return models
