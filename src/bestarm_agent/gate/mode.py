"""The mode of a run that compares challengers with a baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.study.gate import GateSpec
from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.example import Example
from bestarm_agent.engine.mode import Mode, ModeResult
from bestarm_agent.engine.pair_source import PairSource
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run.event_log import Size
from bestarm_agent.engine.setup.selection import open_selection
from bestarm_agent.errors import ConfigError
from bestarm_agent.gate.pairs import GatePairs, Part
from bestarm_agent.gate.summary import TITLE_WIDTH, Compared, gate_result
from bestarm_agent.judges.base import Judge
from bestarm_agent.report.run_lines import run_json, run_lines
from bestarm_agent.stats.intervals.non_inferiority import Question, shown
from bestarm_agent.stats.models.history_validation import HistoryModel


@dataclass(frozen=True, slots=True)
class Gate:
    """Compares all candidates of a run with one of them."""

    spec: GateSpec
    seed: int

    @classmethod
    def of(cls, study: LoadedStudy) -> Gate:
        """Make the gate of a study; raises ConfigError if it has no ``gate`` section."""
        if study.config.gate is None:
            raise ConfigError(
                "no baseline is named; say --baseline LABEL, or write a `gate` section"
            )
        return cls(study.config.gate, study.config.selector.seed)

    def pairs(
        self, size: Size, candidates: Sequence[Candidate], history: HistoryModel | None = None
    ) -> GatePairs:
        """Make what asks for the pairs of a run."""
        labels = [candidate.label for candidate in candidates[: size.n_candidates]]
        spec = self.spec
        question = Question(
            margin=spec.margin_used,
            improve=spec.improve,
            alpha=1.0 - spec.confidence,
            n_challengers=max(1, len(labels) - 1),
            n_examples=size.n_examples,
            n_parts=1 + len(size.slices),
        )
        in_slice = replace(question, margin=spec.slice_margin_used, improve=False)
        slices = [(one, replace(in_slice, n_examples=len(one.examples))) for one in size.slices]
        problem, baseline = size.problem(per_dollar=False), labels.index(spec.baseline)
        return GatePairs(problem, baseline, question, self.seed, slices)

    def notices(self, pairs: PairSource, size: Size) -> tuple[str, ...]:
        """Warn of a budget that cannot suffice."""
        if not isinstance(pairs, GatePairs) or not pairs.challengers:
            return ()
        allowed, least = pairs.examples_allowed, examples_needed(pairs.parts)
        if allowed >= least:
            return ()
        return (
            f"gate: the budget pays {allowed:,} examples, and a challenger whose "
            f"scores are all those of the baseline needs {least:,}; raise the budget or the "
            f"margin",
        )

    def result(self, pairs: PairSource, standing: Standing) -> ModeResult | None:
        """Return the verdicts so far."""
        return _answer(pairs, standing) if isinstance(pairs, GatePairs) else None


def open_gate(
    study: LoadedStudy, examples: Sequence[Example], catalog: Catalog
) -> tuple[Mode, Judge]:
    """Open the gate of a study, with its scorer as the judge; raises ConfigError."""
    _, judge = open_selection(study, examples, catalog)
    return Gate.of(study), judge


def _answer(pairs: GatePairs, standing: Standing) -> ModeResult:
    labels = {row.index: row.candidate.label for row in standing.rows}
    problems = {row.problem for row in standing.rows if row.problem is not None}
    return gate_result(
        labels[pairs.baseline],
        pairs.parts[0].question,
        [_challenger(pairs, row, labels[row]) for row in pairs.challengers],
        remarks=[
            *run_lines(standing, TITLE_WIDTH),
            *(f"{'Problem:':<{TITLE_WIDTH}}{problem}" for problem in sorted(problems)),
        ],
        facts=run_json(standing),
    )


def _challenger(pairs: GatePairs, row: int, label: str) -> Compared:
    over_all, *slices = (_compared(pairs, row, part) for part in range(len(pairs.parts)))
    return replace(over_all, label=label, slices=tuple(slices))


def _compared(pairs: GatePairs, row: int, part: int) -> Compared:
    comparison = pairs.challengers[row].comparisons[part]
    gains, losses = np.array(comparison.gains), np.array(comparison.losses)
    lower, upper = comparison.interval()
    worse_after = comparison.worse_after
    return Compared(
        label=pairs.parts[part].name,
        question=comparison.question,
        alone=comparison.verdict,
        n=comparison.n,
        void=int((gains != -losses).sum()),
        difference=float((gains - losses).mean() / 2) if comparison.n else math.nan,
        lower=lower,
        upper=upper,
        better_on=int((gains > 0).sum()),
        worse_on=int((losses > 0).sum()),
        worse_after=int(worse_after) if math.isfinite(worse_after) else None,
    )


def examples_needed(parts: Sequence[Part]) -> int:
    """Return how many examples an answer takes on a challenger that scores as the baseline does."""
    needed = set[int]()
    for part in parts:
        nothing = np.zeros(len(part.examples))
        found = shown(nothing, nothing, part.question)
        least = min(float(found.passed), float(found.failed), len(part.examples))
        needed.update(part.examples[: int(least)])
    return len(needed)
