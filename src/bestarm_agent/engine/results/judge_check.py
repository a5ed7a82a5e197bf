"""A judge held against gold scores: how far it can be trusted.

The gold scores are a study's ``labels``, those that people gave in ``view`` (a file beside the
store), or a file that ``judge check`` names. A label is about the text of an answer, not its
candidate.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bestarm_agent.config.labels import Label, answer_digest, by_answer, load_labels
from bestarm_agent.domain.spend import Spend, usd
from bestarm_agent.errors import Blame, ConfigError
from bestarm_agent.stats.agreement import Measure, agreement, difference
from bestarm_agent.store.chunks import folded
from bestarm_agent.store.export import sole_writer, whole_file
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import Store, StorePlace, folder_of, open_store


def labels_path(where: StorePlace, run_id: str) -> Path:
    """Return the path of a run's labels: next to a store that is a file, else in this folder."""
    return folder_of(where) / f"{run_id}.labels.jsonl"


def human_labels(where: StorePlace, run_id: str) -> tuple[Label, ...]:
    """Read a run's labels; none if nobody gave any."""
    path = labels_path(where, run_id)
    return load_labels(path) if path.is_file() else ()


def put_label(
    where: StorePlace, run_id: str, example: str, answer: str, score: float | None
) -> None:
    """Store the score in [0, 1] of an answer in place of an earlier one; None takes it back."""
    digest = answer_digest(answer)
    label = Label(example=example, score=score or 0.0, answer=answer, answer_digest=digest)
    put_labels(where, run_id, [label], {digest} if score is None else ())


def put_labels(
    where: StorePlace, run_id: str, new: Sequence[Label], taken: Collection[str | None] = ()
) -> None:
    """Store labels in place of the same person's earlier ones of these answers.

    Those of an answer in ``taken`` are taken back. Several people may label one run at once, each
    by a page of a process of its own: the file is read and replaced under a lock, so that nobody's
    label is lost.

    Raises:
        StoreError: the file cannot be written.
    """
    path = labels_path(where, run_id)
    with sole_writer(path, "labels"):
        labels = {_whose(label): label for label in human_labels(where, run_id)}
        for label in new:
            if label.answer_digest in taken:
                labels.pop(_whose(label), None)
            else:
                labels[_whose(label)] = label
        with whole_file(path, "labels") as stream:
            stream.writelines(map(_line, labels.values()))
        # no file rather than an empty one: that is how a run without labels is known
        if not labels:
            path.unlink()


def _whose(label: Label) -> tuple[str, str | None, str | None]:
    return label.example, label.answer_digest, label.rater


def _line(label: Label) -> bytes:
    # a reader takes empty text for none, so an empty answer goes by its digest
    other = {"answer_digest" if label.answer else "answer"}
    return (json.dumps(label.model_dump(exclude_defaults=True, exclude=other)) + "\n").encode()


MEANINGS = {
    "agreement": "share judged good or bad as the labels say",
    "kappa": "agreement beyond chance; 100 % is perfect",
    "bias": "mean of judge minus label; above 0 is too kind",
    "sensitivity": "share of good answers judged good",
    "specificity": "share of bad answers judged bad",
    "length bias": "bias on longer answers minus that on shorter ones",  # in [-2, 2]
}


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """One answer that has both a judge's score and a gold score."""

    judged: float  # the judge's score, in [0, 1]
    gold: float  # the gold score, in [0, 1]
    n_chars: int  # length of the answer
    spend: Spend  # what judging it cost


@dataclass(frozen=True, slots=True)
class JudgedLabels:
    """The labels of a study or run, with the judge's scores of the same answers."""

    pairs: tuple[JudgedAnswer, ...]  # the answers; a label holds for all that are the same text
    n_labels: int  # how many labels there are
    n_void: int = 0  # labels of answers on which the judge failed, or that no budget was left for
    n_missing: int = 0  # labels of no answer that has a score
    why: str = ""  # what was said of the last of those
    priced: bool = True  # whether the prices of the judge's models are known
    by_models: bool = False  # whether it asks some, whose verdicts from the cache cost nothing

    @property
    def n_compared(self) -> int:
        """Number of labels that an answer was compared with."""
        return self.n_labels - self.n_void - self.n_missing


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """The accuracy of a judge, measured on gold scores."""

    comparison: JudgedLabels  # what was compared
    measures: Mapping[str, Measure]  # by name, as in ``MEANINGS``
    usd_per_1000: float | None  # dollars for a thousand judgements; None: not known, or none bought
    confidence: float  # of each interval by itself, in (0, 1)

    def lines(self) -> list[tuple[str, Measure, str]]:
        """Return the measures, each with its name and a description."""
        return [(name, measure, MEANINGS[name]) for name, measure in self.measures.items()]


def check_judge(comparison: JudgedLabels, confidence: float) -> JudgeCheck:
    """Measure a judge; raise ConfigError if nothing could be compared."""
    pairs, alpha = comparison.pairs, 1.0 - confidence
    if comparison.n_void and not pairs:
        raise ConfigError(
            f"the judge scored none of the {comparison.n_labels} labelled answers; it failed on "
            f"{comparison.n_void} of them, the last time: {comparison.why}"
        )
    if not pairs:
        raise ConfigError(
            f"none of {comparison.n_labels} labels is about an answer that the judge scored; "
            f"labels name an example's id with a candidate's label or the answer"
        )
    judged, gold = np.array([(p.judged, p.gold) for p in pairs]).T
    lengths = np.array([p.n_chars for p in pairs])
    longer, agreed = lengths > np.median(lengths), agreement(judged, gold, alpha)
    measures = {name: getattr(agreed, name) for name in list(MEANINGS)[:5]}
    measures["length bias"] = difference(
        (judged - gold)[longer], (judged - gold)[~longer], -1.0, 1.0, alpha
    )
    bought = [p.spend for p in pairs if p.spend.calls or not comparison.by_models]
    paid = usd(sum(spend.usd_nanos for spend in bought))
    per_1000 = 1000 * paid / len(bought) if comparison.priced and bought else None
    return JudgeCheck(comparison, measures, per_1000, confidence)


async def compare_run(
    store: Store, run_id: str, state: RunState, labels: Sequence[Label]
) -> JudgedLabels:
    """Put a run's scores with gold scores; no call is made."""
    wanted = by_answer(labels)
    examples = {label.example for label in labels}
    pairs, void, scored, failed = [], [], set[tuple[str, str]](), set[tuple[str, str]]()
    labelled = np.isin(
        state.asks["example"],
        [column for column, example in enumerate(state.example_ids) if example in examples],
    )
    seqs = state.order[labelled[state.order]]
    for told in await store.told(run_id, state.told["event"][seqs].tolist()):
        outcome, (row, column, *_) = told.outcome, state.asks[told.seq].tolist()
        example = state.example_ids[column]
        if outcome.reply_key is None:
            continue
        # a label of the answer's text holds for every candidate that gave it; one by the name of a
        # candidate, as in a file written by hand, comes first
        reply = await store.get_reply(outcome.reply_key)
        text = reply.said if reply is not None else ""
        name = state.candidates[row].label
        keys = (example, name), (example, answer_digest(text))
        key = next((key for key in keys if key in wanted), None)
        if key is None:
            continue
        label = wanted[key]
        cost, score, failure = outcome.judge_spend, outcome.score, outcome.failure
        if score is not None:
            pairs.append(JudgedAnswer(score.value, label.score, len(text), cost))
            scored.add(key)
        if failure is not None and failure.blame is Blame.JUDGE:
            void.append(failure.message)
            failed.add(key)
    why, priced = void[-1] if void else "", state.started.judge_priced
    by_models = state.started.scored_by.startswith("judge ")
    known = [label for label in labels if not label.tie]
    n_scored, n_told = (
        sum(map(partial(_is_in, keys), known)) for keys in (scored, scored | failed)
    )
    counts = len(labels), n_told - n_scored, len(labels) - n_told
    return JudgedLabels(tuple(pairs), *counts, why, priced, by_models)


def _is_in(keys: Collection[tuple[str, str | None]], label: Label) -> bool:
    """Tell whether an answer was found by a label, by its candidate or its text."""
    return any((label.example, whose) in keys for whose in (label.candidate, label.answer_digest))


async def check_run(
    store: Store, run_id: str, state: RunState, labels: Sequence[Label], confidence: float
) -> JudgeCheck | None:
    """Measure a run's judge on gold scores; None if none of them is about a scored answer."""
    comparison = await compare_run(store, run_id, state, labels)
    return check_judge(comparison, confidence) if comparison.pairs else None


def run_labels(state: RunState, where: StorePlace, run_id: str) -> tuple[Label, ...]:
    """Read a stored run's gold scores: its study's, if they are still there, and ``view``'s."""
    own: tuple[Label, ...] = ()
    if name := state.started.config.get("labels"):
        path = folder_of(where) / state.started.base / name
        own = load_labels(path) if path.is_file() else ()
    return (*own, *human_labels(where, run_id))


async def compare_stored(
    where: str | Path, run: str, labels: Sequence[Label] | None = None
) -> JudgedLabels:
    """Put the scores of a stored run with gold scores; None: those that the run has.

    Raises:
        ConfigError: the run has none.
    """
    async with open_store(where, create=False) as store:
        run_id = (await store.find(run)).id
        state = await folded(store, run_id)
        if labels is None:
            labels = run_labels(state, where, run_id)
        if not labels:
            raise ConfigError(
                f"run {run_id} has no labels; give some in `bestarm-agent view`, or name a file"
            )
        return await compare_run(store, run_id, state, labels)
