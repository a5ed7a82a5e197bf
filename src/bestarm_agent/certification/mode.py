"""The mode that certifies: it finds the last candidate, in an order, that is good enough.

``open_certification`` reads what a study's section asks for: the judges, the labels, the order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from bestarm_agent.certification.certificate import (
    Rounds,
    Screen,
    in_order_of_trying,
    plan_rounds,
    single_goal,
)
from bestarm_agent.certification.pairs import (
    LABEL,
    CertificationPairs,
    CertificationPlan,
    goal_of,
    method_of,
)
from bestarm_agent.certification.summary import certificate_result, e_value
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.file_errors import options_at
from bestarm_agent.config.goal_specs import CertifySpec
from bestarm_agent.config.input_specs import DatasetSpec
from bestarm_agent.config.labels import load_labels
from bestarm_agent.config.load import LoadedStudy
from bestarm_agent.config.study import StudyConfig
from bestarm_agent.domain.events import Asked, Event
from bestarm_agent.domain.values import Candidate, Example
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.record import Size
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import ConfigError, counted, nearest
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.groups import AuditedJudge
from bestarm_agent.judges.registry import check_examples, create_judge
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.stats.arrays import IntArray
from bestarm_agent.stats.history import HistoryModel
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.non_inferiority import Conclusion

_MOST_LABELS = 10_000  # how far to look for a number that suffices


@dataclass(frozen=True, slots=True)
class Certification:
    """Tests candidates one after the other on labelled examples."""

    spec: CertifySpec  # what is to be certified, and how
    plan: Rounds  # which examples are labelled, and which are only guessed
    # of the candidates, from the most likely to be good to the nicest to have; None: by the study's
    # settings
    order: tuple[int, ...] | None = None

    @classmethod
    def recorded(
        cls, spec: CertifySpec, n_candidates: int, events: Sequence[Event]
    ) -> Certification:
        """Rebuild the mode of a stored run from its log alone.

        Candidates that were never asked come last. All follow one plan, so the one that was asked
        most shows as much of it as any needs.
        """
        asks: dict[int, list[Asked]] = {}
        for event in events:
            if isinstance(event, Asked):
                asks.setdefault(event.candidate, []).append(event)
        # A stored run can be shown without its dataset and its prices: the order of the trials is
        # that in which candidates were first asked, and the plan is what was asked.
        tried = [*asks, *(i for i in range(n_candidates) if i not in asks)]
        order = in_order_of_trying(tried, spec.correction)
        longest = max(asks.values(), key=len, default=[])
        return cls(spec, _recorded_plan(longest, spec.per_label), tuple(order))

    def pairs(
        self, size: Size, candidates: Sequence[Candidate], history: HistoryModel | None = None
    ) -> Pairs:
        """Make what asks for the pairs of a run.

        Raises:
            ConfigError: candidates are tried by their price, and one is not known.
        """
        order = self.order or trial_order(self.spec.order, candidates, size.costs or ())
        problem = size.problem(per_dollar=False)
        return CertificationPairs(CertificationPlan(problem, self.spec, self.plan, order))

    def notices(self, pairs: Pairs, size: Size) -> tuple[str, ...]:
        """Warn of too few labels and of an order that prices do not give."""
        return warnings(self.spec, self.plan, size.costs or [None] * size.n_candidates)

    def result(self, pairs: Pairs, standing: Standing) -> ModeResult | None:
        """Return what is certified so far, or in the end."""
        if not isinstance(pairs.rule, CertificationPlan):
            return None
        return certificate_result(pairs.rule, standing)


def open_certification(
    study: LoadedStudy,
    spec: CertifySpec,
    examples: Sequence[Example],
    catalog: Catalog,
    independent: Sequence[int],
) -> tuple[Certification, Judge]:
    """Open the certification that a section of a study asks for.

    Raises:
        ConfigError: a label or a judge is missing or wrong, or there are too few examples.
    """
    plan, judge = set_up(study, spec, examples, catalog, independent)
    return Certification(spec, plan), judge


def _recorded_plan(asks: Sequence[Asked], ratio: int | None) -> Rounds:
    """Return the rounds that were asked of a candidate; the last one is filled up with anything.

    Without a second label the length of a round may be unknown; then none is complete.
    """
    starts = [place for place, ask in enumerate(asks) if ask.reason == LABEL]
    # The reason of an ask says where a round begins, so its width is the distance of two labels.
    # Filled places at the end are never told, so that round never counts.
    if ratio is not None:
        width = 1 + ratio
    else:
        width = starts[1] if len(starts) > 1 else 1 + max(1, len(asks))
    examples = [ask.example for ask in asks]
    examples += [0] * (-len(examples) % width)
    plan = np.array(examples, dtype=np.intp).reshape(-1, width)
    return Rounds(plan[:, 0], plan[:, 1:])


def warnings(spec: CertifySpec, plan: Rounds, costs: Sequence[float | None]) -> tuple[str, ...]:
    """Return what should be known before a call is paid for, a sentence each.

    ``costs`` are the highest ones of a call, by candidate.
    """
    warned = [_too_few_labels(spec, plan, len(costs)), _fewer_than_allowed(spec, plan)]
    if spec.order == "cost" and len(costs) > 1 and len(set(costs)) == 1:
        warned.append(
            "certify.order is `cost`, and all candidates cost the same: their order is that of the "
            "file; list them from the most to the least likely to be good enough, or say "
            "`order: prompt`"
        )
    return tuple(text for text in warned if text is not None)


def _too_few_labels(spec: CertifySpec, plan: Rounds, n_candidates: int) -> str | None:
    """Warn if not even a candidate without an error could be certified."""
    goal = single_goal(goal_of(spec), n_candidates, spec.correction)
    n, best = len(plan.labelled), 0.0
    screen = Screen(goal, method_of(spec))
    # A candidate without any error earns the most that is possible, so this is the least number of
    # labels that can ever certify: the test's own wealth is run ahead instead of a formula.
    while screen.verdict is Conclusion.UNDECIDED and screen.n < max(n, _MOST_LABELS):
        screen.push(0.0)
        if screen.n == n:
            best = screen.log_e_value
    if screen.verdict is Conclusion.PASSED and screen.n <= n:
        return None
    needed = (
        f"; at least {counted(screen.n, 'label')} {'is' if screen.n == 1 else 'are'} needed"
        if screen.verdict is Conclusion.PASSED
        else ""
    )
    return (
        f"certify: {counted(n, 'label')} cannot suffice: a candidate without a single error "
        f"reaches an e-value of {e_value(best)}, and {math.exp(goal.enough):.3g} is needed"
        f"{needed}, or a higher `risk`, or a lower `confidence`"
    )


def _fewer_than_allowed(spec: CertifySpec, plan: Rounds) -> str | None:
    """Warn if unlabelled examples run out before the labels do."""
    n, most = len(plan.labelled), spec.max_labels
    if most is None or n >= most:
        return None
    return (
        f"certify.max_labels is {most}, and only {counted(n, 'label')} will be used: each takes "
        f"{counted(plan.width - 1, 'further example')}, only guessed, and there are "
        f"{plan.sequence.size} examples in the plan; add examples, or lower `per_label`"
    )


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
    place = study.positions.describe
    with options_at(partial(place, "scorer")):
        trusted = create_judge(config.scorer.name, config.scorer.options, catalog)
        people = _scores_of_people(config, study.base_dir) if spec.people else {}
    with options_at(lambda *path: place("certify", "judge", *(path or ("name",)))):
        autoevaluator = create_judge(spec.judge.name, spec.judge.options, catalog)
        check_examples(autoevaluator, examples)
    labelled = _labelled(spec, examples, study.base_dir, trusted)
    own = np.array(independent or range(len(examples)))
    plan = _plan(config.selector.seed, spec, examples, labelled, own)
    # Only examples whose label the plan uses are checked: a dataset may hold labels that the
    # trusted scorer cannot read, as long as nobody asks for them.
    asked = [examples[j] for j in plan.labelled]
    chosen = {example.id: labelled[example.id] for example in asked}
    check_examples(trusted, chosen.values())
    floor = config.limits.failed_score
    return plan, AuditedJudge(autoevaluator, trusted, chosen, floor=floor, people=people)


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
    labelled = {}
    dataset = DatasetSpec(path=str(path), format="jsonl", id="id", target="target")
    for row in read_examples(dataset, Path()):
        if row.id not in by_id:
            raise ConfigError(
                f"{path.name} labels example {row.id!r}, which the dataset does not hold; "
                f"{nearest(row.id, by_id)}"
            )
        labelled[row.id] = replace(by_id[row.id], reference=row.reference)
    return labelled
