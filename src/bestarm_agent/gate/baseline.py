"""The parts of a gate: the study's, with the baseline found and the challengers chosen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from bestarm_agent.config.study import GateSpec
from bestarm_agent.domain.values import Candidate
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import changed_study
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.errors import ConfigError, StoreError, nearest
from bestarm_agent.gate.mode import GateMode

# reads a stored run: where it stands, and its result where it does not look for the best
ReadRun: TypeAlias = Callable[[str], Awaitable[tuple[Standing, ModeResult | None]]]


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


async def _baseline(
    name: str,
    candidates: Sequence[Candidate],
    read_run: ReadRun,
) -> Candidate:
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
    found = _answer_of(standing, result, name)
    for candidate in candidates:
        if candidate.id == found.id:
            return candidate
    # The stored winner is another candidate under a label that the study uses, too: two rows of one
    # name could not be told apart in the verdict.
    if any(candidate.label == found.label for candidate in candidates):
        return replace(found, label=f"{found.label} of run {standing.run_id}")
    return found


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
    others = [one for one in candidates if one.id != baseline.id]
    labels = [one.label for one in others]
    for label in spec.challengers:
        if label not in labels:
            raise ConfigError(f"gate: there is no challenger {label!r}; {nearest(label, labels)}")
    chosen = [one for one in others if not spec.challengers or one.label in spec.challengers]
    if not chosen:
        raise ConfigError(
            f"gate: no candidate differs from the baseline {baseline.label!r}; add a model, a "
            f"prompt or other parameters to be compared with it"
        )
    return baseline, *chosen
