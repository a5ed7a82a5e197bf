"""The mode that certifies: it finds the last candidate, in an order, that is good enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from bestarm_agent.certification.label_plan import PoolPlan, Rounds
from bestarm_agent.certification.live.feasibility import warnings
from bestarm_agent.certification.live.pairs import LABEL, CertificationPairs, in_order_of_trying
from bestarm_agent.certification.live.setup import Audit, audit_of, set_up_audit, trial_order
from bestarm_agent.certification.live.trials import Plan
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.study.certify import CertifySpec
from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import Asked, Event
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import usd
from bestarm_agent.engine.mode import Mode
from bestarm_agent.engine.pair_source import PairSource
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.run.event_log import Size
from bestarm_agent.engine.run.stopping import End
from bestarm_agent.engine.setup.selection import open_selection
from bestarm_agent.judges.base import Judge
from bestarm_agent.report.caveats import passed_caps
from bestarm_agent.report.certificate import CertificateSummary
from bestarm_agent.report.progress_text import budget_line, ending, what_next
from bestarm_agent.report.text import duration
from bestarm_agent.stats.models.history_validation import HistoryModel


@dataclass(frozen=True, slots=True)
class Certification:
    """Tests candidates one after the other on labelled examples."""

    audit: Audit  # what is to be certified
    # of the candidates, from the most likely to be good to the nicest to have; None: by the study's
    # settings
    order: tuple[int, ...] | None = None

    @classmethod
    def recorded(
        cls, spec: CertifySpec, n_candidates: int, n_examples: int, events: Sequence[Event]
    ) -> Certification:
        """Rebuild the mode of a stored run from its log alone."""
        audit = audit_of(spec, recorded_plan(spec, n_examples, events))
        return cls(audit, recorded_order(spec, n_candidates, events))

    def pairs(
        self, size: Size, candidates: Sequence[Candidate], history: HistoryModel | None = None
    ) -> CertificationPairs:
        """Make what asks for the pairs of a run.

        Raises:
            ConfigError: candidates are tried by their price, and one is not known.
        """
        there = candidates[: size.n_candidates]
        order = self.order or trial_order(self.audit.order, there, size.costs or ())
        return CertificationPairs(size.problem(per_dollar=False), self.audit, order)

    def notices(self, pairs: PairSource, size: Size) -> tuple[str, ...]:
        """Warn of too few labels and of an order that prices do not give."""
        return warnings(self.audit, size.n_candidates, size.costs or ())

    def result(self, pairs: PairSource, standing: Standing) -> CertificateSummary | None:
        """Summarise what is certified so far, or in the end."""
        return _summary(pairs, standing) if isinstance(pairs, CertificationPairs) else None


def open_mode(
    study: LoadedStudy, examples: Sequence[Example], catalog: Catalog
) -> tuple[Mode, Judge]:
    """Open a certification if the study has a ``certify`` section, else a selection.

    Raises:
        ConfigError: a label or a judge is missing or wrong, or there are too few examples.
    """
    if study.config.certify is None:
        return open_selection(study, examples, catalog)
    audit, judge = set_up_audit(study, examples, catalog)
    return Certification(audit), judge


def _summary(pairs: CertificationPairs, standing: Standing) -> CertificateSummary:
    method = pairs.audit.method
    spent = f"{budget_line(standing)}, {duration(standing.seconds)}"
    ended = f"{ending(standing.end)}{what_next(standing.end)}"
    remarks = [f"CAP PASSED: {text}" for text in passed_caps(standing)]
    remarks += [f"Spent:       {spent}", f"Run:         {standing.run_id}, {ended}"]
    if standing.end not in (End.VERDICT, None):
        remarks.append("The run ended before the last verdict was in.")
    return CertificateSummary(
        certificate=pairs.certificate(),
        names=tuple(row.candidate.label for row in sorted(standing.rows, key=attrgetter("index"))),
        goal=pairs.audit.goal,
        method=method,
        correction=pairs.audit.correction,
        reliance=method.reliance(pairs.audit.n_autoevaluators),
        alternatives=pairs.alternatives(),
        goes_on=isinstance(pairs.audit.plan, Rounds),  # all labels of a pool are in
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


def recorded_order(
    spec: CertifySpec, n_candidates: int, events: Sequence[Event]
) -> tuple[int, ...]:
    """Return the order of the candidates, by their first asks; those never asked come last."""
    asked = list(_asks(events))
    rest = [i for i in range(n_candidates) if i not in asked]
    return tuple(in_order_of_trying([*asked, *rest], spec.correction))


def recorded_plan(spec: CertifySpec, n_examples: int, events: Sequence[Event]) -> Plan:
    """Return the plan of labels and guesses, as far as the log shows it.

    All candidates follow one plan, so the one that was asked most shows as much as any needs.
    """
    longest = max(_asks(events).values(), key=len, default=[])
    return _pool(longest, n_examples) if spec.pool else _rounds(longest, spec.per_label)


def _asks(events: Sequence[Event]) -> Mapping[int, list[Asked]]:
    asks: dict[int, list[Asked]] = {}
    for event in events:
        if isinstance(event, Asked):
            asks.setdefault(event.candidate, []).append(event)
    return asks


def _pool(asks: Sequence[Asked], n_examples: int) -> PoolPlan:
    """Return the plan of a pool; its end may be any, for nothing counts before all was asked."""
    labelled = [ask.example for ask in asks if ask.reason == LABEL]
    guessed = [ask.example for ask in asks if ask.reason != LABEL]
    rest = sorted(set(range(n_examples)).difference(labelled, guessed))
    return PoolPlan(np.array(labelled, dtype=np.intp), np.array(guessed + rest, dtype=np.intp))


def _rounds(asks: Sequence[Asked], ratio: int | None) -> Rounds:
    """Return the rounds that were asked; the last one is filled up with anything.

    Without a second label the length of a round may be unknown; then none is complete.
    """
    starts = [place for place, ask in enumerate(asks) if ask.reason == LABEL]
    if ratio is not None:
        width = 1 + ratio
    else:
        width = starts[1] if len(starts) > 1 else 1 + max(1, len(asks))
    examples = [ask.example for ask in asks]
    examples += [0] * (-len(examples) % width)
    plan = np.array(examples, dtype=np.intp).reshape(-1, width)
    return Rounds(plan[:, 0], plan[:, 1:])
