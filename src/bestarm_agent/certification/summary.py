"""The answer of a certification, for people and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter

from bestarm_agent.certification.certificate import Certificate, Screened, single_goal
from bestarm_agent.certification.pairs import CertificationPlan, goal_of, method_of
from bestarm_agent.domain.text import percent, safe
from bestarm_agent.engine.mode import ModeResult, ModeRow
from bestarm_agent.engine.results.decision import doubt, proved
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import counted
from bestarm_agent.report.words import plain, run_json, run_lines
from bestarm_agent.stats.non_inferiority import Conclusion

_COLUMNS = ("Candidate", "Good enough", "Labels", "e-value", "Needed", "Mean loss")
_MARKS = {
    Conclusion.PASSED: "proved",
    Conclusion.FAILED: "proved not to be",
    Conclusion.UNDECIDED: "not proved",
}
_WORDS = {  # in JSON
    Conclusion.PASSED: "certified",
    Conclusion.FAILED: "refuted",
    Conclusion.UNDECIDED: "undecided",
}


def certificate_result(plan: CertificationPlan, standing: Standing) -> ModeResult:
    """Return what is certified so far, or in the end."""
    names = [row.candidate.label for row in sorted(standing.rows, key=attrgetter("index"))]
    proof, others = plan.certificate(), plan.alternatives()
    return ModeResult(
        title="Certificate",
        note="In the order of testing.",
        ranking="The ranking shows the scores of the autoevaluator.",
        columns=_COLUMNS,
        rows=_rows(plan, proof, names),
        lines=tuple(_lines(plan, proof, others, names, standing)),
        verdict=Conclusion.UNDECIDED if proof.chosen is None else Conclusion.PASSED,
        marks=_MARKS,
        as_json={**_json(plan, proof, others, names), **run_json(standing)},
    )


def _lines(
    plan: CertificationPlan,
    proof: Certificate,
    others: Mapping[str, Certificate],
    names: Sequence[str],
    standing: Standing,
) -> list[str]:
    goal = goal_of(plan.spec)
    claim = f"for new examples like yours: mean loss at most {percent(goal.risk, exact=True)}"
    if proof.chosen is None:
        lines = [f"Chosen: {_statement(proof, names)} {claim}"]
    else:
        lines = [f"Chosen: {_statement(proof, names)}; {claim}: {proved(1.0 - goal.delta)}"]
    lines[:0] = filter(None, [doubt(standing.decision)])
    lines += [f"Labels used: {proof.n_labels:,}", *run_lines(standing)]
    lines.append("What each method would have needed:")
    lines += [f"  {name + ':':<13}{_needed(proof, other, names)}" for name, other in others.items()]
    return lines


def _rows(plan: CertificationPlan, proof: Certificate, names: Sequence[str]) -> tuple[ModeRow, ...]:
    goal = single_goal(goal_of(plan.spec), len(names), plan.spec.correction)
    rows = []
    for trial in proof.screened:
        cells = (
            safe(names[trial.candidate]),
            _MARKS[trial.verdict],
            f"{len(trial.examples):,}",
            e_value(trial.log_e_value),
            f"{1 / goal.delta:.3g}",
            percent(trial.mean_loss) if trial.examples else "-",
        )
        rows.append(ModeRow(cells, trial.verdict))
    return tuple(rows)


def _json(
    plan: CertificationPlan,
    proof: Certificate,
    others: Mapping[str, Certificate],
    names: Sequence[str],
) -> dict[str, object]:
    spec = plan.spec
    return {
        "chosen": _name(proof, names),
        "certified": [names[i] for i in proof.certified],
        "risk": spec.risk,
        "confidence": spec.confidence,
        "method": spec.method,
        "correction": spec.correction,
        "labels": proof.n_labels,
        "reliance": method_of(spec).reliance().tolist(),
        "candidates": [_screened_json(trial, names) for trial in proof.screened],
        "alternatives": {
            name: {
                "chosen": _name(other, names),
                "labels": other.n_labels,
                "labels_for_same": _labels_for_same(proof, other),
            }
            for name, other in others.items()
        },
    }


def _needed(proof: Certificate, other: Certificate, names: Sequence[str]) -> str:
    """Describe what another method would have done on the same examples."""
    ends = f"{other.n_labels:,} in the end: {_statement(other, names)}"
    if proof.chosen is None:
        return f"{counted(other.n_labels, 'label')}: {_statement(other, names)}"
    labels = _labels_for_same(proof, other)
    if labels is not None:
        return f"{counted(labels, 'label')} for the same; {ends}"
    return f"more than {counted(other.n_labels, 'label')} for the same"


def _labels_for_same(proof: Certificate, other: Certificate) -> int | None:
    return None if proof.chosen is None else other.labels_to_certify(proof.chosen)


def _statement(proof: Certificate, names: Sequence[str]) -> str:
    name = _name(proof, names)
    return "none is proved to be good enough" if name is None else safe(name)


def _name(proof: Certificate, names: Sequence[str]) -> str | None:
    return None if proof.chosen is None else names[proof.chosen]


def e_value(log_e: float) -> str:
    """Write an e-value, which may be larger than any float.

    Example:
        >>> e_value(0.0), e_value(7.0), e_value(2000.0)
        ('1', '1.1e+03', '1e869')
    """
    if log_e == math.inf:
        return "certain"
    return f"{math.exp(log_e):.2g}" if log_e < 500 else f"1e{log_e / math.log(10):.0f}"


def _screened_json(trial: Screened, names: Sequence[str]) -> dict[str, object]:
    """Return a test as JSON; logarithms are null where they are infinite."""
    return {
        "name": names[trial.candidate],
        "verdict": _WORDS[trial.verdict],
        "labels": len(trial.examples),
        "mean_loss": plain(trial.mean_loss),
        "log_e_value": plain(trial.log_e_value),
        "log_wealths": plain(trial.log_wealths),
        "weights": [[round(float(w), 6) for w in row] for row in trial.weights],
    }
