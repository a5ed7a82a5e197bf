"""The mode of a run that compares challengers with a baseline, and which candidates these are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.goal_specs import GateSpec, SelectorSpec, StopSpec
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.domain.values import Candidate, Example
from bestarm_agent.engine.mode import Mode, ModeResult
from bestarm_agent.engine.record import Size
from bestarm_agent.engine.results.decision import doubt
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import changed_study
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.engine.setup.selection import open_selection
from bestarm_agent.errors import ConfigError, StoreError, counted, nearest
from bestarm_agent.gate.pairs import GatePlan, Part
from bestarm_agent.gate.summary import gate_result
from bestarm_agent.judges.base import Judge
from bestarm_agent.report.words import run_json, run_lines
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.stats.history import HistoryModel
from bestarm_agent.stats.non_inferiority import Question, when_proved

# reads a stored run: where it stands, and its result where it does not look for the best
ReadRun: TypeAlias = Callable[[str], Awaitable[tuple[Standing, ModeResult | None]]]


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
            kept = [tuple(sorted({*own}.intersection(group.examples))) for group in slices]
            parts = zip(slices, kept, strict=True)
            slices = [replace(group, examples=members) for group, members in parts if members]
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
        asked = [(group, replace(in_slice, n_examples=len(group.examples))) for group in slices]
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
            f"gate: the budget pays {counted(allowed, 'example')}, and a challenger whose "
            f"scores are all those of the baseline needs {least:,}; raise the budget or the "
            f"margin",
        )

    def result(self, pairs: Pairs, standing: Standing) -> ModeResult | None:
        """Return the verdicts so far."""
        plan = pairs.rule
        if not isinstance(plan, GatePlan):
            return None
        labels = {row.index: row.candidate.label for row in standing.rows}
        return gate_result(
            labels[plan.baseline],
            {labels[row]: rival for row, rival in plan.challengers.items()},
            remarks=run_lines(standing),
            facts=run_json(standing),
            doubt=doubt(standing.decision),
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
        result = when_proved(nothing, nothing, part.question)
        least = min(float(result.passed), float(result.failed), len(part.examples))
        needed.update(part.examples[: int(least)])
    return len(needed)


async def gate_parts(parts: StudyParts, read_run: ReadRun) -> StudyParts:
    """Return the parts of a study with a ``gate`` section, with its candidates as the gate's.

    Args:
        parts: the study's, with all its candidates.
        read_run: reads a stored run, which the baseline may name.

    Raises:
        ConfigError: there is no such baseline or challenger.
    """
    spec = GateMode.of(parts.study).spec
    baseline = await _baseline(spec.baseline, parts.candidates, read_run)
    candidates = _chosen(parts.candidates, spec, baseline)
    study = changed_study(parts.study, {"gate.baseline": baseline.label})
    return replace(
        parts,
        study=study,
        candidates=candidates,
        budget=parts.config.budget.caps(len(candidates) * len(parts.examples)),
        mode=GateMode.of(study),
    )


async def _baseline(name: str, candidates: Sequence[Candidate], read_run: ReadRun) -> Candidate:
    """Find the candidate with this label or id, or the one that a stored run arrived at."""
    for candidate in candidates:
        if name in (candidate.label, candidate.id):
            return candidate
    try:
        standing, result = await read_run(name)
    except StoreError as error:
        labels = [candidate.label for candidate in candidates]
        raise ConfigError(
            f"gate: the baseline {name!r} is neither a candidate of the study nor a stored run "
            f"({error}); {nearest(name, labels)}"
        ) from error
    answer = _answer_of(standing, result, name)
    for candidate in candidates:
        if candidate.id == answer.id:
            return candidate
    # The stored winner is another candidate under a label that the study uses, too: two rows of one
    # name could not be told apart in the verdict.
    if any(candidate.label == answer.label for candidate in candidates):
        return replace(answer, label=f"{answer.label} of run {standing.run_id}")
    return answer


def _answer_of(standing: Standing, result: ModeResult | None, name: str) -> Candidate:
    """Return the winner of a run; of a gate its baseline, which is what was in use."""
    # A gate is run before a change; what it named its baseline is what is in use after a failed
    # one.
    if result is not None and "baseline" in result.as_json:
        label = result.as_json["baseline"]
        return next(row.candidate for row in standing.rows if row.candidate.label == label)
    winner = standing.winner
    if winner is None:
        raise ConfigError(
            f"gate: run {name!r} has no winner to be the baseline; name a candidate of the study"
        )
    return winner.candidate


def _chosen(
    candidates: Sequence[Candidate], spec: GateSpec, baseline: Candidate
) -> tuple[Candidate, ...]:
    """Return the baseline, then the challengers."""
    others = [rival for rival in candidates if rival.id != baseline.id]
    labels = [rival.label for rival in others]
    for label in spec.challengers:
        if label not in labels:
            raise ConfigError(f"gate: there is no challenger {label!r}; {nearest(label, labels)}")
    chosen = [rival for rival in others if not spec.challengers or rival.label in spec.challengers]
    if not chosen:
        raise ConfigError(
            f"gate: no candidate differs from the baseline {baseline.label!r}; add a model, a "
            f"prompt or other parameters to be compared with it"
        )
    return baseline, *chosen
