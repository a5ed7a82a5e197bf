"""The mode of a run that compares challengers with a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.config.study import GateSpec, SelectorSpec, StopSpec
from bestarm_agent.domain.values import Candidate, Example
from bestarm_agent.engine.mode import Mode, ModeResult
from bestarm_agent.engine.record import Size
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.selection import open_selection
from bestarm_agent.errors import ConfigError
from bestarm_agent.gate.pairs import GatePlan, Part
from bestarm_agent.gate.summary import TITLE_WIDTH, gate_result
from bestarm_agent.judges.base import Judge
from bestarm_agent.report.words import run_json, run_lines
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.stats.history import HistoryModel
from bestarm_agent.stats.non_inferiority import Question, shown


@dataclass(frozen=True, slots=True)
class GateMode:
    """Compares all candidates of a run with one of them."""

    spec: GateSpec
    seed: int
    on_new: bool = False  # whether its verdicts are about new examples, else about the study's
    repeats: int = 1  # draws of every example

    @classmethod
    def of(cls, study: LoadedStudy) -> GateMode:
        """Make the gate of a study; raises ConfigError if it has no ``gate`` section."""
        config = study.config
        if config.gate is None:
            raise ConfigError(
                "no baseline is named; say --baseline LABEL, or write a `gate` section"
            )
        return cls(config.gate, config.selector.seed, config.stop.for_ == "new", config.repeats)

    @classmethod
    def recorded(cls, config: Mapping[str, Any]) -> GateMode:
        """Rebuild the mode of a stored run from the configuration in its log."""
        seed = SelectorSpec.model_validate(config.get("selector", {})).seed
        on_new = StopSpec.model_validate(config.get("stop", {})).for_ == "new"
        return cls(GateSpec.model_validate(config["gate"]), seed, on_new, config.get("repeats", 1))

    def pairs(
        self, size: Size, candidates: Sequence[Candidate], history: HistoryModel | None = None
    ) -> Pairs:
        """Make what asks for the pairs of a run."""
        labels = [candidate.label for candidate in candidates]
        spec, slices = self.spec, list(size.slices)
        own: Sequence[int] = range(size.n_examples)
        # For new examples, draws of one example and examples of one cluster are no independent
        # evidence: one of each enters. A slice that is left without any has no verdict of its own.
        if self.on_new:  # of draws of one example, and examples of one cluster, one
            own = size.independent or own[: len(own) // self.repeats]
            kept = [tuple(sorted({*own}.intersection(one.examples))) for one in slices]
            parts = zip(slices, kept, strict=True)
            slices = [replace(one, examples=left) for one, left in parts if left]
        # The error probability is shared among challengers and parts by the question itself, so all
        # verdicts hold together at the confidence.
        question = Question(
            margin=spec.margin_used,
            improve=spec.improve,
            alpha=1.0 - spec.confidence,
            n_challengers=max(1, len(labels) - 1),
            n_examples=len(own),
            n_parts=1 + len(slices),
            on_new=self.on_new,
        )
        in_slice = replace(question, margin=spec.slice_margin_used, improve=False)
        asked = [(one, replace(in_slice, n_examples=len(one.examples))) for one in slices]
        problem, baseline = size.problem(per_dollar=False), labels.index(spec.baseline)
        return Pairs(GatePlan(problem, baseline, question, self.seed, asked, own))

    def notices(self, pairs: Pairs, size: Size) -> tuple[str, ...]:
        """Warn of a budget that cannot suffice."""
        plan = pairs.rule
        if not isinstance(plan, GatePlan) or not plan.challengers:
            return ()
        allowed, least = plan.examples_allowed, examples_needed(plan.parts)
        if allowed >= least:
            return ()
        return (
            f"gate: the budget pays {allowed:,} examples, and a challenger whose "
            f"scores are all those of the baseline needs {least:,}; raise the budget or the "
            f"margin",
        )

    def result(self, pairs: Pairs, standing: Standing) -> ModeResult | None:
        """Return the verdicts so far."""
        plan = pairs.rule
        if not isinstance(plan, GatePlan):
            return None
        labels = {row.index: row.candidate.label for row in standing.rows}
        problems = {row.problem for row in standing.rows if row.problem is not None}
        return gate_result(
            labels[plan.baseline],
            {labels[row]: one for row, one in plan.challengers.items()},
            remarks=[
                *run_lines(standing, TITLE_WIDTH),
                *(f"{'Problem:':<{TITLE_WIDTH}}{problem}" for problem in sorted(problems)),
            ],
            facts=run_json(standing),
        )


def open_gate(
    study: LoadedStudy, examples: Sequence[Example], catalog: Catalog, independent: Sequence[int]
) -> tuple[Mode, Judge]:
    """Open the gate of a study, with its scorer as the judge; raises ConfigError."""
    _, judge = open_selection(study, examples, catalog)
    return GateMode.of(study), judge


def examples_needed(parts: Sequence[Part]) -> int:
    """Return how many examples an answer takes on a challenger that scores as the baseline does."""
    needed = set[int]()
    for part in parts:
        nothing = np.zeros(len(part.examples))
        found = shown(nothing, nothing, part.question)
        least = min(float(found.passed), float(found.failed), len(part.examples))
        needed.update(part.examples[: int(least)])
    return len(needed)
