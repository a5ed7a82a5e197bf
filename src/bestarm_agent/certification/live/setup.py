"""Setting up a certification: its target, its judges, its labels, its order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from bestarm_agent.certification.evidence import Goal, Method
from bestarm_agent.certification.label_plan import plan_pool, plan_rounds
from bestarm_agent.certification.live.trials import Plan
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets.gold_labels import load_labels
from bestarm_agent.config.datasets.load import load_examples
from bestarm_agent.config.datasets.rows import Columns
from bestarm_agent.config.study.certify import CertifySpec
from bestarm_agent.config.study.load import LoadedStudy
from bestarm_agent.config.study.schema import StudyConfig
from bestarm_agent.config.yaml.documents import placing
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.judges.audit.audited import AuditedJudge
from bestarm_agent.judges.audit.human_scores import HumanScores
from bestarm_agent.judges.audit.side_by_side import SideBySide
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import check_examples, create_judge
from bestarm_agent.stats.keyed_random import KeyedRandom


@dataclass(frozen=True, slots=True)
class Audit:
    """A certification, as its driver needs it."""

    goal: Goal  # what is to be shown
    method: Method  # how evidence is gathered
    order: str  # "cost", "prompt" or "given"
    plan: Plan  # which examples are labelled, and which are only guessed
    correction: str = "sequence"  # for many candidates
    n_autoevaluators: int = 1  # how many judges guess
    max_labels: int | None = None  # most labels that may be used, as configured


def set_up_audit(
    study: LoadedStudy, examples: Sequence[Example], catalog: Catalog
) -> tuple[Audit, Judge]:
    """Read the labels, plan the rounds, and make the judge that scores both ways."""
    config, spec = study.config, study.config.certify
    if spec is None:
        raise ValueError("the study has no `certify` section")
    with placing(partial(study.places.where, "scorer")):
        trusted = _trusted(config, spec, study.base_dir, catalog)
    floor = config.limits.failed_score
    with placing(partial(_judge_place, study.places)):
        autoevaluator = _autoevaluator(spec, examples, catalog, floor)
    labelled = _labelled(spec, examples, study.base_dir, trusted)
    audit = audit_of(spec, _plan(config, spec, examples, labelled))
    due = [examples[j] for j in audit.plan.labelled]
    chosen = {example.id: labelled[example.id] for example in due}
    check_examples(trusted, chosen.values())
    return audit, AuditedJudge(autoevaluator, trusted, chosen, floor)


def _judge_place(places: Places, *path: str | int) -> str:
    return places.where("certify", "judge", *(path or ("name",)))


def audit_of(spec: CertifySpec, plan: Plan) -> Audit:
    """Return the certification that a section describes."""
    goal = Goal(spec.risk, 1.0 - spec.confidence)
    method = Method(spec.method, spec.betting, n_factors=spec.factors, horizon=spec.max_labels)
    n_judges = 1 + len(spec.more_judges)
    return Audit(goal, method, spec.order, plan, spec.correction, n_judges, spec.max_labels)


def trial_order(
    by: str, candidates: Sequence[Candidate], costs: Sequence[float | None]
) -> list[int]:
    """Put candidates in the order in which they are tried; raises ConfigError.

    By "cost" of a call, at most (most expensive first; all must be known), "prompt" (longest first)
    or "given".
    """
    if by == "given":
        return list(range(len(candidates)))
    if by == "prompt":
        keys = [float(_length(candidate)) for candidate in candidates]
    else:
        unknown = [c.label for c, cost in zip(candidates, costs, strict=True) if cost is None]
        if unknown:
            raise ConfigError(
                f"certify.order is `cost`, but the prices of {len(unknown)} of {len(candidates)} "
                f"candidates are not known, such as {unknown[0]!r}; give their models prices, or "
                f"list the candidates from the most expensive to the cheapest and say "
                f"`order: given` or --order given"
            )
        keys = [cost or 0.0 for cost in costs]
        if wrong := [c.label for c, key in zip(candidates, keys, strict=True) if math.isnan(key)]:
            raise ConfigError(
                f"certify.order is `cost`, but the price of candidate {wrong[0]!r} is not a "
                f"number; correct it, or say `order: given`"
            )
    return [int(i) for i in np.argsort(-np.array(keys), kind="stable")]


def _length(candidate: Candidate) -> int:
    prompt = candidate.prompt
    return len(prompt.text or "") + sum(len(message.content) for message in prompt.messages)


def _trusted(config: StudyConfig, spec: CertifySpec, base_dir: Path, catalog: Catalog) -> Judge:
    """Create the trusted judge, with scores given by people before it if asked for."""
    judge = create_judge(config.scorer.name, config.scorer.options, catalog)
    if not spec.people:
        return judge
    if config.labels is None:
        raise ConfigError(
            "certify.people needs scores that people gave; name their file as the study's `labels`"
        )
    scores = {}
    for label in load_labels(base_dir / config.labels):
        if label.answer_digest is None:
            raise ConfigError(
                f"{Path(config.labels).name}: the score of example {label.example!r} names only "
                f"the candidate {label.candidate!r}, whose next answer may be another one; "
                f"certify.people needs `answer` or `answer_digest`"
            )
        scores[label.example, label.answer_digest] = label.score
    return HumanScores(judge, scores)


def _autoevaluator(
    spec: CertifySpec, examples: Sequence[Example], catalog: Catalog, floor: float
) -> Judge:
    """Create the autoevaluator; several score side by side."""
    judges = [
        create_judge(one.name, one.options, catalog) for one in (spec.judge, *spec.more_judges)
    ]
    for judge in judges:
        check_examples(judge, examples)
    return judges[0] if len(judges) == 1 else SideBySide(judges, floor)


def _plan(
    config: StudyConfig,
    spec: CertifySpec,
    examples: Sequence[Example],
    labelled: Mapping[str, Example],
) -> Plan:
    has_label = np.array([example.id in labelled for example in examples])
    labels, others = np.flatnonzero(has_label), np.flatnonzero(~has_label)
    rng = KeyedRandom(config.selector.seed, "certify-order").at(0)
    try:
        if spec.pool:
            return plan_pool(labels, others, rng, max_labels=spec.max_labels)
        ratio = spec.per_label or _ratio(len(labels), len(others), spec.max_labels)
        return plan_rounds(labels, others, rng, ratio=ratio, max_labels=spec.max_labels)
    except ValueError as error:
        raise ConfigError(f"certify: {error}; label more, or give `labels`") from error


def _ratio(n_labelled: int, n_others: int, max_labels: int | None) -> int | None:
    """Return a number of guessed examples per label that lets as many labels be used as allowed."""
    if max_labels is None or n_others or max_labels >= n_labelled:
        return None
    return max(1, (n_labelled - max_labels) // max_labels)


def _labelled(
    spec: CertifySpec, examples: Sequence[Example], base_dir: Path, trusted: Judge
) -> dict[str, Example]:
    """Return by id the examples that have or can get a label, which is their reference."""
    if spec.labels is None:
        return {
            example.id: example
            for example in examples
            if example.reference is not None or not trusted.needs_reference
        }
    path = base_dir / spec.labels
    by_id = {example.id: example for example in examples}
    found = {}
    for row in load_examples(path, Columns("id", "target"), format="jsonl"):
        if row.id not in by_id:
            raise ConfigError(
                f"{path.name} labels example {row.id!r}, which the dataset does not hold; "
                f"{nearest(row.id, by_id)}"
            )
        found[row.id] = replace(by_id[row.id], reference=row.reference)
    return found
