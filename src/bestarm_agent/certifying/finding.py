"""What a certification has found, in words and as JSON: for the terminal and the report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bestarm_agent.certification.certificate import Certificate, Screened
from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.priors import FloatArray
from bestarm_agent.certification.rounds import Rounds
from bestarm_agent.certifying.driver import CertifyingSelector
from bestarm_agent.course import budget_line, ending, what_next
from bestarm_agent.domain.spend import usd
from bestarm_agent.endings import End
from bestarm_agent.standing import Row, Standing
from bestarm_agent.wording import (
    duration,
    safe,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A certificate with all that is needed to speak about it.

    Attributes:
        certificate: what was found.
        names: of the K candidates.
        goal: what was to be shown.
        method: how.
        correction: for many candidates.
        reliance: (S, A) reliance factors of the method.
        alternatives: what each method would have found, by its name.
        goes_on: whether there would have been more labels than the alternatives could use.
        remarks: lines to add, such as what was spent.
        facts: entries to add to the JSON object.
    """

    certificate: Certificate
    names: tuple[str, ...]
    goal: Goal
    method: Method
    correction: str
    reliance: FloatArray
    alternatives: Mapping[str, Certificate]
    goes_on: bool = False
    remarks: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)


def finding_of(driver: CertifyingSelector, standing: Standing) -> Finding:
    """What a run with real calls has found, so far or in the end."""
    method = driver.audit.method
    spent = f"{budget_line(standing)}, {duration(standing.seconds)}"
    ended = f"{ending(standing.end)}{what_next(standing.end)}"
    remarks = [f"Spent:       {spent}", f"Run:         {standing.run_id}, {ended}"]
    if standing.end not in (End.VERDICT, None):
        remarks.append("The run ended before the last verdict was in.")
    return Finding(
        certificate=driver.certificate(),
        names=tuple(row.candidate.label for row in sorted(standing.rows, key=_index)),
        goal=driver.audit.goal,
        method=method,
        correction=driver.audit.correction,
        reliance=method.reliance(driver.audit.n_autoevaluators),
        alternatives=driver.alternatives(),
        goes_on=isinstance(driver.audit.plan, Rounds),  # all labels of a pool are in
        remarks=tuple(remarks),
        facts={
            "run": standing.run_id,
            "ended": standing.end,
            "spent": {
                "pulls": standing.spent.pulls,
                "calls": standing.spent.calls,
                "tokens": standing.spent.tokens,
                "usd": usd(standing.spent.usd_nanos),
                "seconds": standing.seconds,
            },
        },
    )


def _index(row: Row) -> int:
    return row.index


def finding_lines(found: Finding) -> list[str]:
    """A finding in a few lines for people."""
    goal, certificate = found.goal, found.certificate
    lines = [f"Chosen:      {_statement(certificate, found.names)}"]
    if certificate.chosen is not None:
        promise = (
            "the expected share of bad ones among those certified is at most"
            if found.correction == "e-bh"
            else "the probability that a bad one was certified is at most"
        )
        lines.append(
            f"Guarantee:   risk at most {goal.risk:g}; {promise} {goal.delta:.3g}, whenever one "
            f"looked"
        )
    lines.append(f"Labels used: {certificate.n_labels:,}")
    lines += found.remarks
    if found.alternatives:
        lines.append("What each method would have needed:")
    for name, other in found.alternatives.items():
        lines.append(f"  {name + ':':<13}{_needed(found, other)}")
    return lines


def _needed(found: Finding, other: Certificate) -> str:
    """What another method would have done on the same examples."""
    chosen = found.certificate.chosen
    ends = f"{other.n_labels:,} in the end: {_statement(other, found.names)}"
    if chosen is None:
        return f"{other.n_labels:,} labels: {_statement(other, found.names)}"
    labels = other.labels_to_certify(chosen)
    if labels is not None:
        return f"{labels:,} labels for the same; {ends}"
    return (
        f"more than {other.n_labels:,} labels for the same"
        if found.goes_on
        else f"not the same; {ends}"
    )


def screened_rows(found: Finding) -> Iterator[tuple[str, ...]]:
    """Name, verdict, labels, e-value, what was needed and mean loss of those looked at."""
    n_tested = 1 if found.correction == "sequence" else len(found.names)
    for one in found.certificate.screened:
        yield (
            safe(found.names[one.candidate]),
            one.verdict.value,
            f"{len(one.examples):,}",
            e_value(one.log_e_value),
            f"{n_tested / found.goal.delta:.3g}",
            f"{one.mean_loss:.4f}",
        )


def _statement(found: Certificate, names: tuple[str, ...]) -> str:
    if found.chosen is None:
        return "none is shown to be good enough"
    return safe(names[found.chosen])


def e_value(log_e: float) -> str:
    """An e-value for people; it may be beyond any float.

    Example:
        >>> e_value(0.0), e_value(7.0), e_value(2000.0)
        ('1', '1.1e+03', '1e869')
    """
    if log_e == math.inf:
        return "certain"
    return f"{math.exp(log_e):.2g}" if log_e < 500 else f"1e{log_e / math.log(10):.0f}"


def finding_json(found: Finding) -> dict[str, object]:
    """A finding as a JSON object."""
    certificate, names = found.certificate, found.names
    return {
        "chosen": _name(certificate, names),
        "certified": [names[i] for i in certificate.certified],
        "risk": found.goal.risk,
        "confidence": 1.0 - found.goal.delta,
        "method": found.method.name,
        "correction": found.correction,
        "labels": certificate.n_labels,
        "reliance": found.reliance.tolist(),
        "candidates": [_screened_json(one, names) for one in certificate.screened],
        "alternatives": {
            name: {
                "chosen": _name(other, names),
                "labels": other.n_labels,
                "labels_for_same": (
                    None
                    if certificate.chosen is None
                    else other.labels_to_certify(certificate.chosen)
                ),
            }
            for name, other in found.alternatives.items()
        },
        **found.facts,
    }


def _name(found: Certificate, names: tuple[str, ...]) -> str | None:
    return None if found.chosen is None else names[found.chosen]


def _screened_json(one: Screened, names: tuple[str, ...]) -> dict[str, object]:
    """Logarithms are null where they are infinite: JSON has no such number."""
    return {
        "name": names[one.candidate],
        "verdict": one.verdict.value,
        "labels": len(one.examples),
        "mean_loss": _finite(one.mean_loss),
        "log_e_value": _finite(one.log_e_value),
        "log_wealths": [_finite(log) for log in one.log_wealths],
        "weights": [[round(float(w), 6) for w in row] for row in one.weights],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
