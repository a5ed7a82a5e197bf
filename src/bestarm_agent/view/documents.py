"""JSON for the page: a run's standing, its pairs, a comparison. Texts go as they are."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias

from bestarm_agent.config.labels import Label, answer_digest
from bestarm_agent.domain.text import cost_text, percent, safe
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.compare import PairedComparison
from bestarm_agent.engine.results.labelling import LabelQuestion
from bestarm_agent.engine.results.people import ByPeople
from bestarm_agent.engine.results.standing import Row, Standing, estimate, interval, seen
from bestarm_agent.errors import counted
from bestarm_agent.report import words
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.store.store import RunInfo

Object: TypeAlias = dict[str, Json]
Labels: TypeAlias = Mapping[tuple[str, str], Label]


def run_line(info: RunInfo, store: int, place: str) -> Object:
    """Describe a run in the list of runs; ``store`` is the number of its store."""
    end = words.ending(info.stopped, info.n_asked)
    return {**asdict(info), "state": end, "store": store, "place": place}


def standing_page(
    standing: Standing, result: ModeResult | None, names: Sequence[str], most_rows: int
) -> Object:
    """Describe where a run stands.

    Args:
        standing: where it stands.
        result: the answer of a mode that has one of its own.
        names: (K,) labels of the candidates, made unique.
        most_rows: candidates shown at most, the best.
    """
    (rows, others), winner = standing.parted(most_rows), standing.winner
    # a mode with an answer of its own gives verdicts, and the states of candidates are not shown
    said = [*(() if result is None else result.lines), *standing.said]
    verdict, *sentences = said or ("",)
    return {
        "winner": None if winner is None else names[winner.index],
        "score": "" if winner is None else f"{estimate(winner)}, {interval(winner)}",
        "run": standing.run_id,
        "name": standing.name,
        "running": standing.end is None,
        "ending": words.ending(standing.end, standing.asked),
        "verdict": verdict,
        "judged_by_mode": result is not None,
        "lines": [
            *sentences,
            *(f"{title}: {text}." for title, text in words.facts(standing)),
        ],
        "pairs": f"{standing.asked:,} of {standing.grid:,}",
        "share": f"{percent(standing.share)} of all answers{standing.further}",
        "dollars": cost_text(standing.spent.usd_nanos, priced=standing.priced),
        "time": words.time_used(standing),
        "left": words.time_left(standing),
        "used": words.most_used(standing)[0],
        "used_line": words.used_line(standing),
        "spent": words.budget_line(standing),
        "failures": words.failures_line(standing),
        "problems": words.problem_lines(standing),
        "latest_failure": safe(standing.latest_failure),
        "seen_title": standing.seen_title,
        "rows": [_row(row, names[row.index], graded=standing.graded) for row in rows],
        "hidden": others,
    }


def _row(row: Row, name: str, *, graded: bool) -> Object:
    return {
        "index": row.index,
        "label": name,
        "seen": seen(row, graded=graded),
        "estimate": estimate(row),
        "interval": interval(row),
        "value": row.estimate,
        "lower": row.lower,
        "upper": row.upper,
        "status": row.status.name.lower(),
        "state": words.state(row),
        "cost": words.use_text(row),
    }


def pair_document(outcome: PairOutcome, labels: Labels) -> Object:
    """Describe a pair with all its texts and the score that a person gave to it, or None."""
    reply = outcome.reply
    label = None if reply is None else labels.get((outcome.example, answer_digest(reply)))
    given = None if label is None else label.score
    return {**asdict(outcome), "failure": outcome.failed_as, "label": given}


def question_document(
    outcome: PairOutcome, question: LabelQuestion, images: Sequence[str]
) -> Object:
    """Describe an example to label, without a word about whose answers these are."""
    return {
        "place": question.place,
        "example": outcome.example,
        "inputs": dict(outcome.inputs),
        "target": outcome.target,
        "pictures": list(images),
        "answers": list(question.answers),
    }


def labelling_page(stand: ByPeople, question: Object | None) -> Object:
    """Describe how far labelling has come; who is ahead is said at its end alone."""
    raced, rest = stand.raced, stand.of - stand.raced.n
    more = f"about {raced.more} more" if raced.more and raced.more < rest else ""
    parts = [f"{counted(stand.n, 'example')} labelled"]
    if not stand.proved:
        parts += [f"{len(raced.alive)} candidates left", more or f"at most {rest} more"]
        parts += [f"{stand.later} left for later"] if stand.later else []
    return {
        "progress": "; ".join(parts) + ".",
        "proved": stand.proved,
        "said": [] if question else list(stand.said),
        "question": question,
    }


def neighbours(seqs: Sequence[int], seq: int) -> Object:
    """Return where a pair lies among the chosen ones, which are in the order of asking."""
    place = bisect_left(seqs, seq)
    after = place + 1 if place < len(seqs) and seqs[place] == seq else place
    return {
        "place": place + 1,
        "count": len(seqs),
        "previous": seqs[place - 1] if place else None,
        "next": seqs[after] if after < len(seqs) else None,
    }


def comparison_page(c: PairedComparison) -> Object:
    """Describe a comparison, without the examples on which the two differ."""
    numbers = {key: value for key, value in asdict(c).items() if key != "flips"}
    who = {"names": words.compared_names(c), "lines": words.paired_lines(c)}
    said = {"here": words.seen_line(c), "said": words.comparison_line(c)}
    return {**numbers, "n": c.n, "n_flips": len(c.flips), **who, **said}
