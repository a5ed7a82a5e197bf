"""The result of a certification, in words and as JSON: for the terminal and the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from bestarm_agent.certification.certificate import Certificate, Screened
from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.portfolio_prior import FloatArray
from bestarm_agent.report.text import safe


@dataclass(frozen=True, slots=True)
class CertificateSummary:
    """A certificate with everything that its description needs."""

    certificate: Certificate  # what was found
    names: tuple[str, ...]  # of the K candidates
    goal: Goal  # what was to be shown
    method: Method  # how
    correction: str  # for many candidates
    reliance: FloatArray  # (S, A) reliance factors of the method
    alternatives: Mapping[str, Certificate]  # what each method would have found, by its name
    # whether there would have been more labels than the alternatives could use
    goes_on: bool = False
    remarks: tuple[str, ...] = ()  # lines to add, such as what was spent
    facts: Mapping[str, object] = field(default_factory=dict)  # entries to add to the JSON object

    title: ClassVar[str] = "Certificate"
    note: ClassVar[str] = "In the order of testing."
    ranking: ClassVar[str] = "The ranking shows the scores of the autoevaluator."
    columns: ClassVar[tuple[str, ...]] = (
        "Candidate",
        "Verdict",
        "Labels",
        "e-value",
        "Needed",
        "Mean loss",
    )

    @property
    def is_answered(self) -> bool:
        """Return whether a candidate is certified."""
        return self.certificate.chosen is not None

    def lines(self) -> list[str]:
        """Describe the result in a few lines."""
        certificate = self.certificate
        lines = [f"Chosen:      {self._statement(certificate)}"]
        if self.is_answered:
            lines.append(f"Guarantee:   {self._promise()}")
        lines.append(f"Labels used: {certificate.n_labels:,}")
        lines += self.remarks
        if self.alternatives:
            lines.append("What each method would have needed:")
        for name, other in self.alternatives.items():
            lines.append(f"  {name + ':':<13}{self._needed(other)}")
        return lines

    def rows(self) -> list[tuple[str, ...]]:
        """Return name, verdict, labels, e-value, e-value needed and mean loss of those tested."""
        n_tested = 1 if self.correction == "sequence" else len(self.names)
        return [
            (
                safe(self.names[one.candidate]),
                one.verdict.value,
                f"{len(one.examples):,}",
                e_value(one.log_e_value),
                f"{n_tested / self.goal.delta:.3g}",
                f"{one.mean_loss:.4f}",
            )
            for one in self.certificate.screened
        ]

    def as_json(self) -> dict[str, object]:
        """Return the result as a JSON object."""
        certificate = self.certificate
        return {
            "chosen": self._name(certificate),
            "certified": [self.names[i] for i in certificate.certified],
            "risk": self.goal.risk,
            "confidence": 1.0 - self.goal.delta,
            "method": self.method.name,
            "correction": self.correction,
            "labels": certificate.n_labels,
            "reliance": self.reliance.tolist(),
            "candidates": [_screened_json(one, self.names) for one in certificate.screened],
            "alternatives": {
                name: {
                    "chosen": self._name(other),
                    "labels": other.n_labels,
                    "labels_for_same": self._labels_for_same(other),
                }
                for name, other in self.alternatives.items()
            },
            **self.facts,
        }

    def _promise(self) -> str:
        if self.correction == "e-bh":
            promise = "the expected share of bad ones among those certified is at most"
        else:
            promise = "the probability that a bad one was certified is at most"
        goal = self.goal
        return f"risk at most {goal.risk:g}; {promise} {goal.delta:.3g}, whenever one looked"

    def _needed(self, other: Certificate) -> str:
        """Describe what another method would have done on the same examples."""
        ends = f"{other.n_labels:,} in the end: {self._statement(other)}"
        if not self.is_answered:
            return f"{other.n_labels:,} labels: {self._statement(other)}"
        labels = self._labels_for_same(other)
        if labels is not None:
            return f"{labels:,} labels for the same; {ends}"
        return (
            f"more than {other.n_labels:,} labels for the same"
            if self.goes_on
            else f"not the same; {ends}"
        )

    def _labels_for_same(self, other: Certificate) -> int | None:
        chosen = self.certificate.chosen
        return None if chosen is None else other.labels_to_certify(chosen)

    def _statement(self, found: Certificate) -> str:
        name = self._name(found)
        return "none is shown to be good enough" if name is None else safe(name)

    def _name(self, found: Certificate) -> str | None:
        return None if found.chosen is None else self.names[found.chosen]


def e_value(log_e: float) -> str:
    """Write an e-value, which may be larger than any float.

    Example:
        >>> e_value(0.0), e_value(7.0), e_value(2000.0)
        ('1', '1.1e+03', '1e869')
    """
    if log_e == math.inf:
        return "certain"
    return f"{math.exp(log_e):.2g}" if log_e < 500 else f"1e{log_e / math.log(10):.0f}"


def _screened_json(one: Screened, names: tuple[str, ...]) -> dict[str, object]:
    """Return a test as JSON; logarithms are null where they are infinite."""
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
