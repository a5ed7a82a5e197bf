"""What ``certify`` says: a few lines for people, or one JSON object."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rich.table import Table

from bestarm_agent.certification.certificate import Certificate, Screened
from bestarm_agent.cli.results import stdout_console
from bestarm_agent.simulation.certifying import Terms
from bestarm_agent.simulation.losses import LossTable
from bestarm_agent.wording import safe

_SHOWN_ROWS = 12


def print_certificate(
    found: Certificate, table: LossTable, terms: Terms, others: Mapping[str, Certificate]
) -> None:
    """Print a certificate."""
    console = stdout_console()
    console.print(_screened_table(found, table.names, terms))
    hidden = len(found.screened) - _SHOWN_ROWS
    if hidden > 0:
        console.print(f"... after {hidden} more", style="dim")
    console.print()
    for line in _lines(found, table.names, terms, others):
        console.print(line, markup=False, soft_wrap=True)


def _screened_table(found: Certificate, names: tuple[str, ...], terms: Terms) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("candidate")
    for column in ("verdict", "labels", "e-value", "needed", "mean loss"):
        table.add_column(column, justify="right")
    n_tested = 1 if terms.correction == "sequence" else len(names)
    for one in found.screened[-_SHOWN_ROWS:]:
        table.add_row(
            safe(names[one.candidate]),
            one.verdict.value,
            f"{len(one.examples):,}",
            e_value(one.log_e_value),
            f"{n_tested / terms.goal.delta:.3g}",
            f"{one.mean_loss:.4f}",
        )
    return table


def _lines(
    found: Certificate, names: tuple[str, ...], terms: Terms, others: Mapping[str, Certificate]
) -> list[str]:
    goal = terms.goal
    lines = [f"Chosen:      {statement(found, names)}"]
    if found.chosen is not None:
        promise = (
            "the expected share of bad ones among those certified is at most"
            if terms.correction == "e-bh"
            else "the probability that a bad one was certified is at most"
        )
        lines.append(
            f"Guarantee:   risk at most {goal.risk:g}; {promise} {goal.delta:.3g}, "
            f"whenever one looked"
        )
    lines.append(f"Labels used: {found.n_labels:,}")
    if others:
        lines.append("What each method would have needed:")
    lines += [f"  {name + ':':<13}{_needed(found, other, names)}" for name, other in others.items()]
    return lines


def _needed(found: Certificate, other: Certificate, names: tuple[str, ...]) -> str:
    """What another method would have done on the same examples."""
    ends = f"ends with {statement(other, names)} after {other.n_labels:,}"
    if found.chosen is None:
        return ends
    labels = other.labels_to_certify(found.chosen)
    return f"{'not the same' if labels is None else f'{labels:,} labels for the same'}; {ends}"


def statement(found: Certificate, names: tuple[str, ...]) -> str:
    """Which candidate was chosen, in words."""
    if found.chosen is None:
        return "none is shown to be good enough"
    return safe(names[found.chosen])


def e_value(log_e: float) -> str:
    """An e-value for people; it may be beyond any float.

    Example:
        >>> e_value(0.0), e_value(7.0), e_value(2000.0)
        ('1', '1.1e+03', '1e868')
    """
    if log_e == math.inf:
        return "certain"
    return f"{math.exp(log_e):.2g}" if log_e < 500 else f"1e{log_e / math.log(10):.0f}"


def certificate_json(
    found: Certificate, table: LossTable, terms: Terms, others: Mapping[str, Certificate]
) -> dict[str, object]:
    """A certificate as a JSON object."""
    names = table.names
    return {
        "chosen": None if found.chosen is None else names[found.chosen],
        "certified": [names[i] for i in found.certified],
        "risk": terms.goal.risk,
        "confidence": 1.0 - terms.goal.delta,
        "method": terms.method.name,
        "correction": terms.correction,
        "labels": found.n_labels,
        "reliance": terms.method.reliance(len(table.guesses)).tolist(),
        "candidates": [_screened_json(one, names) for one in found.screened],
        "alternatives": {
            name: {
                "chosen": None if other.chosen is None else names[other.chosen],
                "labels": other.n_labels,
                "labels_for_same": (
                    None if found.chosen is None else other.labels_to_certify(found.chosen)
                ),
            }
            for name, other in others.items()
        },
    }


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
