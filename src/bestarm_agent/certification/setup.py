"""Setting up a certification: its judges, its labels, its order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from bestarm_agent.certification.certificate import Rounds, plan_rounds
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets import load_labels, read_examples
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.config.study import CertifySpec, DatasetSpec, StudyConfig
from bestarm_agent.config.yaml import Places, locating_options
from bestarm_agent.domain.values import Candidate, Example
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.groups import AuditedJudge
from bestarm_agent.judges.registry import check_examples, create_judge
from bestarm_agent.stats.arrays import IntArray
from bestarm_agent.stats.keyed_random import KeyedRandom


def set_up(
    study: LoadedStudy,
    spec: CertifySpec,
    examples: Sequence[Example],
    catalog: Catalog,
    independent: Sequence[int],
) -> tuple[Rounds, Judge]:
    """Read the labels, plan the rounds, and make the judge that scores both ways.

    Of equal examples only those of ``independent`` are asked; all, if it is empty.

    Raises:
        ConfigError: a label or a judge is missing or wrong, or there are too few examples.
    """
    config = study.config
    with locating_options(partial(study.places.where, "scorer")):
        trusted = create_judge(config.scorer.name, config.scorer.options, catalog)
        people = _scores_of_people(config, study.base_dir) if spec.people else {}
    with locating_options(partial(_judge_place, study.places)):
        autoevaluator = create_judge(spec.judge.name, spec.judge.options, catalog)
        check_examples(autoevaluator, examples)
    labelled = _labelled(spec, examples, study.base_dir, trusted)
    own = np.array(independent or range(len(examples)))
    plan = _plan(config.selector.seed, spec, examples, labelled, own)
    # Only examples whose label the plan uses are checked: a dataset may hold labels that the
    # trusted scorer cannot read, as long as nobody asks for them.
    due = [examples[j] for j in plan.labelled]
    chosen = {example.id: labelled[example.id] for example in due}
    check_examples(trusted, chosen.values())
    floor = config.limits.failed_score
    return plan, AuditedJudge(autoevaluator, trusted, chosen, floor=floor, people=people)


def _judge_place(places: Places, *path: str | int) -> str:
    return places.where("certify", "judge", *(path or ("name",)))


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
                f"`order: given`"
            )
        keys = [cost or 0.0 for cost in costs]
        if wrong := [c.label for c, key in zip(candidates, keys, strict=True) if math.isnan(key)]:
            raise ConfigError(
                f"certify.order is `cost`, but the price of candidate {wrong[0]!r} is not a "
                f"number; correct it, or say `order: given`"
            )
    # The dearest model and the longest prompt are the most likely to be good enough; the last one
    # that still passes is the cheapest. A stable sort keeps the file's order among equals.
    return [int(i) for i in np.argsort(-np.array(keys), kind="stable")]


def _length(candidate: Candidate) -> int:
    prompt = candidate.prompt
    alone = len(prompt.text or "") + sum(len(message.text) for message in prompt.messages)
    return alone * (1 + (prompt.n_shots or 0))


def _scores_of_people(config: StudyConfig, base_dir: Path) -> dict[tuple[str, str], float]:
    """Return the scores that people gave, by example and digest of the answer."""
    if config.labels is None:
        raise ConfigError(
            "certify.people needs scores that people gave; name their file as the study's `labels`"
        )
    scores = {}
    for label in load_labels(base_dir / config.labels):
        # A score belongs to a text. A candidate that is asked again, or at another temperature,
        # gives another one, which nobody scored.
        if label.answer_digest is None:
            raise ConfigError(
                f"{Path(config.labels).name}: the score of example {label.example!r} names only "
                f"the candidate {label.candidate!r}, whose next answer may be another one; "
                f"certify.people needs `answer` or `answer_digest`"
            )
        scores[label.example, label.answer_digest] = label.score
    return scores


def _plan(
    seed: int,
    spec: CertifySpec,
    examples: Sequence[Example],
    labelled: Mapping[str, Example],
    own: IntArray,
) -> Rounds:
    has_label = np.array([examples[number].id in labelled for number in own])
    labels, others = own[has_label], own[~has_label]
    ratio, most = spec.per_label, spec.max_labels
    # All examples have labels and only some may be used: the labels that are left over serve as
    # unlabelled examples, shared out evenly among the rounds.
    if ratio is None and most is not None and not len(others) and most < len(labels):
        ratio = max(1, (len(labels) - most) // most)  # as many labels are used as allowed
    rng = KeyedRandom(seed, "certify-order").at(0)
    try:
        return plan_rounds(labels, others, rng, ratio=ratio, max_labels=most)
    except ValueError as error:
        raise ConfigError(f"certify: {error}; label more, or give `labels`") from error


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
    dataset = DatasetSpec(path=str(path), format="jsonl", id="id", target="target")
    for row in read_examples(dataset, Path()):
        if row.id not in by_id:
            raise ConfigError(
                f"{path.name} labels example {row.id!r}, which the dataset does not hold; "
                f"{nearest(row.id, by_id)}"
            )
        found[row.id] = replace(by_id[row.id], reference=row.reference)
    return found
