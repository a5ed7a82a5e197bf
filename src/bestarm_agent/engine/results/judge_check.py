"""A judge held against gold scores: how far it can be trusted, and what its errors may change.

The gold scores are a study's ``labels``, those that people gave in ``view`` (a file beside the
store), or a file that ``judge check`` names. A label is about the text of an answer, not its
candidate.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bestarm_agent.config.datasets.gold_labels import Label, answer_digest, by_answer, load_labels
from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.digest import Json
from bestarm_agent.domain.events import Started
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.outcome import Failed, Scored, Vote
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.domain.spend import Spend, usd
from bestarm_agent.engine.call import BudgetEndedError, ReplyCache
from bestarm_agent.engine.judging import JudgeCalls, JudgeUnavailableError
from bestarm_agent.engine.ledger import Ledger, SharedReserve
from bestarm_agent.engine.results.standing import Row, Standing
from bestarm_agent.engine.setup.open_run import Options, store_of
from bestarm_agent.engine.setup.parts import StudyParts, prepare
from bestarm_agent.errors import Blame, ConfigError, JudgeError, StoreError, nearest
from bestarm_agent.stats.agreement import (
    Agreement,
    Measure,
    agreement,
    corrected,
    difference,
    mean,
    share,
    shifted,
)
from bestarm_agent.store.export import whole_file
from bestarm_agent.store.run_state import RunState, folded
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
    """Store the score in [0, 1] of an answer in place of an earlier one; None takes it back.

    Raises:
        StoreError: the file cannot be written.
    """
    digest = answer_digest(answer)
    others = [
        label
        for label in human_labels(where, run_id)
        if (label.example, label.answer_digest) != (example, digest)
    ]
    fresh = [] if score is None else [Label(example, score, answer=answer, answer_digest=digest)]
    path, lines = labels_path(where, run_id), list(_lines([*others, *fresh]))
    try:
        if lines:
            with whole_file(path) as stream:
                stream.writelines(lines)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"the labels {path} cannot be written ({error.strerror}); make the folder writable"
        ) from error


def _lines(labels: Iterable[Label]) -> Iterable[bytes]:
    for label in labels:
        row: dict[str, Json] = {"example": label.example, "score": label.score}
        # a reader takes empty text for none, so an empty answer goes by its digest
        if label.answer:
            row["answer"] = label.answer
        else:
            row["answer_digest"] = label.answer_digest
        yield (json.dumps(row) + "\n").encode()


@dataclass(frozen=True, slots=True)
class Compared:
    """One answer that has both a judge's score and a gold score."""

    candidate: int | None  # row of the candidate, or None
    judged: float  # the judge's score, in [0, 1]
    gold: float  # the gold score, in [0, 1]
    n_chars: int  # length of the answer
    spend: Spend  # what judging it cost
    votes: tuple[Vote, ...] = ()  # the judgements that the score is made of


@dataclass(frozen=True, slots=True)
class Comparison:
    """All answers that could be compared."""

    pairs: tuple[Compared, ...]  # those that were
    n_labels: int  # how many labels there are
    n_void: int = 0  # labelled answers on which the judge failed, or that no budget was left for
    why: str = ""  # what was said of the last of those
    priced: bool = True  # whether the prices of the judge's models are known


@dataclass(frozen=True, slots=True)
class MeasureLine:
    """One measure, for people."""

    name: str
    measure: Measure
    meaning: str


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """The accuracy of a judge, measured on gold scores."""

    comparison: Comparison  # what was compared
    agreement: Agreement  # agreement, kappa, bias, sensitivity, specificity
    # for comparisons in both orders: how often the answer in the first place wins beyond one half,
    # in [-1/2, 1/2]; 0 is fair. None for other judges
    place: Measure | None
    # share of those answers whose verdict turns with the order; None for other judges
    flips: Measure | None
    # bias on the longer half of the answers minus bias on the shorter half, in [-2, 2]; above 0,
    # length is rewarded beyond what the gold scores say
    length: Measure
    usd_per_1000: float | None  # dollars for a thousand judgements; None: not known
    confidence: float  # of each interval by itself, in (0, 1)

    def lines(self) -> list[MeasureLine]:
        """Return the measures with a description of each."""
        found, line = self.agreement, MeasureLine
        lines = [
            line("agreement", found.agreement, "share judged good or bad as the labels say"),
            line("kappa", found.kappa, "agreement beyond chance; 1 is perfect"),
            line("bias", found.bias, "mean of judge minus label; above 0 is too kind"),
            line("sensitivity", found.sensitivity, "share of good answers judged good"),
            line("specificity", found.specificity, "share of bad answers judged bad"),
            line("length bias", self.length, "bias on longer answers minus that on shorter ones"),
        ]
        if self.place is not None:
            lines.append(line("place bias", self.place, "how far the first place is favoured"))
        if self.flips is not None:
            lines.append(line("flips", self.flips, "share of verdicts that turn with the order"))
        return lines


@dataclass(frozen=True, slots=True)
class CorrectedRow:
    """A candidate's mean, corrected for the judge's measured errors."""

    row: Row  # the candidate as the run has it
    alike: Measure  # its mean if the judge errs alike on all candidates' answers
    own: Measure  # its mean corrected by the judge's bias on its own labelled answers
    n_own: int  # how many of those there are


def check_judge(comparison: Comparison, confidence: float) -> JudgeCheck:
    """Measure a judge; raise ConfigError if nothing could be compared."""
    pairs, alpha = comparison.pairs, 1.0 - confidence
    if not pairs:
        raise ConfigError(_nothing_compared(comparison))
    firsts = [wins for pair in pairs if (wins := _first_wins(pair.votes)) is not None]
    swings = [abs(first - second) > 0.5 for first, second in _orders(pairs)]
    return JudgeCheck(
        comparison=comparison,
        agreement=agreement([p.judged for p in pairs], [p.gold for p in pairs], alpha),
        place=mean(np.array(firsts) - 0.5, -0.5, 0.5, alpha) if firsts else None,
        flips=share(sum(swings), len(swings), alpha) if swings else None,
        length=_length_bias(pairs, alpha),
        usd_per_1000=_usd_per_1000(pairs) if comparison.priced else None,
        confidence=confidence,
    )


def _usd_per_1000(pairs: Sequence[Compared]) -> float:
    return 1000 * usd(sum(pair.spend.usd_nanos for pair in pairs)) / len(pairs)


def _nothing_compared(comparison: Comparison) -> str:
    if comparison.n_void:
        return (
            f"the judge scored none of the {comparison.n_labels} labelled answers; it failed on "
            f"{comparison.n_void} of them, the last time: {comparison.why}"
        )
    return (
        f"none of {comparison.n_labels} labels is about an answer that the judge scored; "
        f"labels name an example's id with a candidate's label or the answer"
    )


def corrected_rows(standing: Standing, check: JudgeCheck) -> list[CorrectedRow]:
    """Correct the candidates' means by the judge's measured errors.

    Scores of 0 and 1 are corrected by sensitivity and specificity, others by the bias. Every
    interval takes the run's and the check's error probabilities together.
    """
    pairs = check.comparison.pairs
    binary = all(value in (0.0, 1.0) for pair in pairs for value in (pair.judged, pair.gold))
    found = []
    for row in standing.rows:
        if row.estimate is None:
            continue
        observed = Measure(row.estimate, row.lower, row.upper)
        errors = [p.judged - p.gold for p in pairs if p.candidate == row.index]
        own = shifted(observed, mean(errors, -1.0, 1.0, 1.0 - check.confidence))
        alike = shifted(observed, check.agreement.bias)
        if binary:
            alike = corrected(observed, check.agreement.sensitivity, check.agreement.specificity)
        found.append(CorrectedRow(row, alike, own, len(errors)))
    return found


def _orders(pairs: Iterable[Compared]) -> list[tuple[float, float]]:
    """Return the mean values in first and in second place, of pairs judged in both orders."""
    from bestarm_agent.judges.pairwise import position_of

    found = []
    for pair in pairs:
        first = [vote.value for vote in pair.votes if position_of(vote) == "first"]
        second = [vote.value for vote in pair.votes if position_of(vote) == "second"]
        if first and second:
            found.append((float(np.mean(first)), float(np.mean(second))))
    return found


def _first_wins(votes: Sequence[Vote]) -> float | None:
    """Return how often the answer in first place wins; None unless judged in both orders."""
    for first, second in _orders([Compared(None, 0.0, 0.0, 0, Spend(), tuple(votes))]):
        return (first + 1.0 - second) / 2
    return None


def _length_bias(pairs: Sequence[Compared], alpha: float) -> Measure:
    errors = np.array([pair.judged - pair.gold for pair in pairs])
    lengths = np.array([pair.n_chars for pair in pairs])
    longer = lengths > np.median(lengths)
    return difference(errors[longer], errors[~longer], -1.0, 1.0, alpha)


async def compare_run(store: Store, state: RunState, labels: Sequence[Label]) -> Comparison:
    """Put a run's scores with gold scores; no call is made."""
    wanted = by_answer(labels)
    examples = {label.example for label in labels}
    pairs, void = [], []
    for seq in state.told:
        row, column = state.asks.pair(seq)
        example = state.example_ids[column]
        if example not in examples or (outcome := state.told[seq].outcome).reply_key is None:
            continue
        reply = await store.get_reply(outcome.reply_key)
        text = reply.text if reply is not None else ""
        name = state.candidates[row].label
        label = wanted.get((example, name)) or wanted.get((example, answer_digest(text)))
        if label is None:
            continue
        if isinstance(outcome, Scored):
            found = (
                outcome.value,
                label.score,
                len(text),
                outcome.judge_spend,
                outcome.votes,
            )
            pairs.append(Compared(row, *found))
        if isinstance(outcome, Failed) and outcome.blame is Blame.JUDGE:
            void.append(outcome.message)
    why, priced = void[-1] if void else "", state.started is None or state.started.judge_priced
    return Comparison(tuple(pairs), len(labels), len(void), why, priced)


async def check_run(
    store: Store, state: RunState, labels: Sequence[Label], confidence: float
) -> JudgeCheck | None:
    """Measure a run's judge on gold scores; None if none of them is about a scored answer."""
    comparison = await compare_run(store, state, labels)
    return check_judge(comparison, confidence) if comparison.pairs else None


def run_labels(started: Started, where: StorePlace, run_id: str) -> tuple[Label, ...]:
    """Read a stored run's gold scores: its study's, and those given in ``view``."""
    return (*stored_labels(started, where), *human_labels(where, run_id))


def stored_labels(started: Started, where: StorePlace) -> tuple[Label, ...]:
    """Read the gold scores that a stored run's study names; none if the file is gone."""
    name = started.config.get("labels") if isinstance(started.config, Mapping) else None
    if not isinstance(name, str):
        return ()
    path = folder_of(where) / started.base / name
    return load_labels(path) if path.is_file() else ()


async def compare_stored(
    where: str | Path, run: str, labels: Sequence[Label] | None = None
) -> Comparison:
    """Put the scores of a stored run with gold scores; None: those that the run has.

    Raises:
        ConfigError: the run has none.
    """
    async with open_store(where, create=False) as store:
        run_id = (await store.find(run)).id
        state = await folded(store, run_id)
        gold = labels
        if gold is None:
            gold = () if state.started is None else run_labels(state.started, where, run_id)
        if not gold:
            raise ConfigError(
                f"run {run_id} has no labels; give some in `bestarm-agent view`, or name a file"
            )
        return await compare_run(store, state, gold)


async def compare_answers(
    parts: StudyParts, options: Options, labels: Sequence[Label]
) -> Comparison:
    """Let a study's judge score labelled answers, within its budget and from its reply cache.

    Raises:
        ConfigError: a label lacks the answer's text, or its example is not in the dataset.
        ProviderError: the judge's model cannot be called.
    """
    examples = _examples(parts, labels)
    ledger = Ledger(parts.budget)
    judge_client = prepare(parts, (), ledger, options.clock).judge_client
    gate = asyncio.Semaphore(parts.config.limits.in_flight)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(store_of(parts.study, options)))
        for provider in judge_client.providers:
            await stack.enter_async_context(provider)
        replies = ReplyCache(store, ledger, use_cache=options.use_cache)

        async def judged(label: Label) -> Compared | JudgeError | BudgetEndedError:
            reserve, answer = SharedReserve(ledger), label.answer or ""
            calls = JudgeCalls(judge_client, replies, reserve, label.candidate or "labelled")
            async with gate:
                try:
                    score = await calls.score(examples[label.example], Reply(answer))
                except (JudgeError, BudgetEndedError) as error:
                    return error
            spend, votes = reserve.spent, score.votes
            return Compared(None, score.value, label.score, len(answer), spend, votes)

        try:
            found = await together(judged(label) for label in labels)
        except JudgeUnavailableError as unavailable:
            raise unavailable.error from unavailable
    void = [why for one in found if (why := _not_judged(one))]
    return Comparison(
        tuple(one for one in found if isinstance(one, Compared)),
        len(labels),
        len(void),
        void[-1] if void else "",
        parts.judge_priced,
    )


def _not_judged(found: Compared | JudgeError | BudgetEndedError) -> str:
    """Say why an answer got no score by the judge's doing; "" if it was the answer's own."""
    if isinstance(found, BudgetEndedError):
        return "the study's budget ended"
    return str(found) if isinstance(found, JudgeError) and found.blame is Blame.JUDGE else ""


def _examples(parts: StudyParts, labels: Sequence[Label]) -> Mapping[str, Example]:
    examples = {example.id: example for example in parts.examples}
    for label in labels:
        if label.answer is None:
            raise ConfigError(
                f"the label of example `{label.example}` holds no `answer` to be judged; add the "
                f"text, or check a stored run instead"
            )
        if label.example not in examples:
            known = nearest(label.example, examples)
            raise ConfigError(f"the dataset has no example `{label.example}`; {known}")
    return examples
