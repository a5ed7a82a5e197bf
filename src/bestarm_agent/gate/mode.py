"""The mode of a run that compares challengers with a baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.study.gate import GateSpec
from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import usd
from bestarm_agent.engine.mode import Mode
from bestarm_agent.engine.pair_source import PairSource
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run.event_log import Size
from bestarm_agent.engine.setup.selection import open_selection
from bestarm_agent.errors import ConfigError
from bestarm_agent.gate.evidence import Comparison, Question
from bestarm_agent.gate.forecast import least_examples
from bestarm_agent.gate.pairs import GatePairs
from bestarm_agent.gate.summary import Compared, GateSummary
from bestarm_agent.judges.base import Judge
from bestarm_agent.report.caveats import passed_caps
from bestarm_agent.report.progress_text import budget_line, ending, what_next
from bestarm_agent.report.text import duration
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
        question = Question(
            margin=self.spec.margin_used,
            improve=self.spec.improve,
            alpha=1.0 - self.spec.confidence,
            n_challengers=max(1, len(labels) - 1),
            n_examples=size.n_examples,
        )
        problem = size.problem(per_dollar=False)
        return GatePairs(problem, labels.index(self.spec.baseline), question, self.seed)

    def notices(self, pairs: PairSource, size: Size) -> tuple[str, ...]:
        """Warn of a budget that cannot suffice."""
        if not isinstance(pairs, GatePairs) or not pairs.comparisons:
            return ()
        least = least_examples(next(iter(pairs.comparisons.values())))
        if pairs.examples_allowed >= min(least, size.n_examples):
            return ()
        return (
            f"gate: the budget pays {pairs.examples_allowed:,} examples, and a challenger whose "
            f"scores are all those of the baseline needs {least:,.0f}; raise the budget or the "
            f"margin",
        )

    def result(self, pairs: PairSource, standing: Standing) -> GateSummary | None:
        """Return the verdicts so far."""
        return _summary(pairs, standing) if isinstance(pairs, GatePairs) else None


def open_gate(
    study: LoadedStudy, examples: Sequence[Example], catalog: Catalog
) -> tuple[Mode, Judge]:
    """Open the gate of a study, with its scorer as the judge; raises ConfigError."""
    _, judge = open_selection(study, examples, catalog)
    return Gate.of(study), judge


def _summary(pairs: GatePairs, standing: Standing) -> GateSummary:
    labels = {row.index: row.candidate.label for row in standing.rows}
    spent = standing.spent
    ended = f"{ending(standing.end)}{what_next(standing.end)}"
    remarks = [f"CAP PASSED: {text}" for text in passed_caps(standing)]
    remarks.append(f"Spent:     {budget_line(standing)}, {duration(standing.seconds)}")
    remarks.append(f"Run:       {standing.run_id}, {ended}")
    problems = {row.problem for row in standing.rows if row.problem is not None}
    remarks += [f"Problem:   {problem}" for problem in sorted(problems)]
    return GateSummary(
        baseline=labels[pairs.baseline],
        question=pairs.question,
        compared=tuple(_compared(pairs, row, labels[row]) for row in pairs.comparisons),
        name=standing.name,
        remarks=tuple(remarks),
        facts={
            "run": standing.run_id,
            "ended": standing.end,
            "spent": {
                "pulls": spent.pulls,
                "calls": spent.calls,
                "tokens": spent.tokens,
                "usd": usd(spent.usd_nanos) if standing.priced else None,
                "seconds": standing.seconds,
            },
        },
    )


def _compared(pairs: GatePairs, row: int, label: str) -> Compared:
    comparison = pairs.comparisons[row]
    gains, losses = np.array(comparison.gains), np.array(comparison.losses)
    lower, upper = comparison.interval()
    return Compared(
        label=label,
        verdict=comparison.verdict,
        n=comparison.n,
        void=int((gains != -losses).sum()),
        difference=float((gains - losses).mean() / 2) if comparison.n else math.nan,
        lower=lower,
        upper=upper,
        better_on=int((gains > 0).sum()),
        worse_on=int((losses > 0).sum()),
        worse_after=_count(comparison.worse_after),
        given_up=row in pairs.given_up,
        forecast=_forecast(pairs, row, comparison),
    )


def _forecast(pairs: GatePairs, row: int, comparison: Comparison) -> int | None:
    if comparison.is_decided or not comparison.n:
        return None
    return _count(pairs.forecast(row, pairs.problem.n_examples).examples)


def _count(examples: float) -> int | None:
    return int(examples) if math.isfinite(examples) else None
