"""One run as one HTML file: opens offline, loads nothing, evaluates no text, escapes everything.

``report_of`` collects what is shown. The page's script draws one JSON object: candidates by
examples, one character a cell; quantities of candidates against each other; estimates over the run.
As many texts of pairs travel with it as fit, the most telling ones first.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.resources import files
from math import isfinite, isnan

import numpy as np
from jinja2 import Environment, StrictUndefined, Template, select_autoescape
from markupsafe import Markup, escape
from numpy.typing import NDArray

from bestarm_agent.domain.events import Told
from bestarm_agent.domain.spend import NANOS_PER_USD
from bestarm_agent.domain.text import cost_text, money, percent, points, safe
from bestarm_agent.domain.values import Json, Vote
from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.effects import AxisEffects, axis_effects
from bestarm_agent.engine.results.from_log import CALLS, FailureLine, failures_of
from bestarm_agent.engine.results.judge_check import JudgeCheck
from bestarm_agent.engine.results.pairs import RunTexts, scores_of
from bestarm_agent.engine.results.standing import Row, Standing, Status, estimate, interval, seen
from bestarm_agent.report import words
from bestarm_agent.report.words import marked, question_of
from bestarm_agent.selectors.types import Guarantee, State
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.arrays import FloatArray
from bestarm_agent.stats.betting import mean_interval
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.store.run_state import RunState, Session

# One character for each cell, since a matrix of 200 x 400 travels within the page: as numbers in
# JSON it would be several times as long. The other codes are scores, 0 to 9 for 0 to 1.
NOT_ASKED, PENDING, UNFINISHED, VOID, FAILED = ".puvf"
_CODES = {State.PENDING: PENDING, State.VOID: VOID, State.FAILED: FAILED}
_MOST_ROWS = 200
_MOST_COLUMNS = 400


@dataclass(frozen=True, slots=True)
class Matrix:
    """The cells of the candidates with the highest estimates and of examples of all difficulties.

    Attributes:
        rows: rows of the log, best first.
        columns: columns of the log, the easiest example first.
        cells: a string for each row.
    """

    rows: Sequence[int]
    columns: Sequence[int]
    cells: Sequence[str]


def matrix_of(state: RunState, ranking: Sequence[int]) -> Matrix:
    """Draw the pairs that were asked; large studies are sampled evenly over the difficulties."""
    rows = list(ranking[:_MOST_ROWS])
    place = {row: k for k, row in enumerate(rows)}
    row, example = state.asks["candidate"], state.asks["example"]
    asked = np.isin(row, rows)
    columns = _by_difficulty(state, set(example[asked].tolist()))
    if len(columns) > _MOST_COLUMNS:
        columns = [columns[k] for k in np.linspace(0, len(columns) - 1, _MOST_COLUMNS).astype(int)]
    column = {j: k for k, j in enumerate(columns)}
    cells = np.full((len(rows), len(columns)), NOT_ASKED)
    for seq in np.flatnonzero(asked & np.isin(example, columns)).tolist():
        cells[place[int(row[seq])], column[int(example[seq])]] = _code(state, seq)
    return Matrix(rows, columns, ["".join(line) for line in cells.tolist()])


def _by_difficulty(state: RunState, examples: set[int]) -> list[int]:
    """Sort examples, the easiest first, whoever was asked on them."""
    score = state.told["score"]
    seen, n = ~np.isnan(score), len(state.example_ids)
    example, row, score = state.asks["example"][seen], state.asks["candidate"][seen], score[seen]
    of_row = np.bincount(row, score) / np.maximum(1, np.bincount(row))
    # Rules ask good candidates more often, so that the plain mean of an example would tell who was
    # asked about it. So a score is compared with the mean of its candidate, and the mean of these
    # differences is drawn towards 0 as if there were one more of 0: an example that few were asked
    # about stands in the middle.
    above = np.bincount(example, score - of_row[row], n) / (np.bincount(example, minlength=n) + 1)
    return sorted(examples, key=lambda j: (-above[j], j))


def _code(state: RunState, seq: int) -> str:
    outcome = state.told[seq]
    code, score = _CODES.get(State(outcome["state"])), float(outcome["score"])
    if code is None and isnan(score):
        code = PENDING  # it was answered, and people have yet to score it
    elif code == PENDING and state.end is not None:
        code = UNFINISHED
    return str(round(9 * score)) if code is None else code


_MOST_PAIRS = 3000
_MOST_CHARACTERS = 3_000_000  # of all texts
_LONGEST = 6000  # characters of one text
_LARGEST_PICTURE = 200_000  # bytes
_MOST_OF_PICTURES = 8_000_000  # characters of all
_MOST_DIFFERING = 100
_MOST_FAILED = 100


@dataclass(frozen=True, slots=True)
class PairSample:
    """Pairs with their texts."""

    pairs: dict[int, PairOutcome]  # by ask number
    differing: Sequence[tuple[int, int]]  # asks of best and runner-up on examples they split
    n_differing: int  # such examples in all
    note: str = ""  # on prompts and targets that are missing
    pictures: Mapping[int, Sequence[str]] = field(default_factory=dict)  # data URLs, by ask number


async def sample_pairs(texts: RunTexts, standing: Standing, matrix: Matrix) -> PairSample:
    """Read the texts of the pairs that tell most, up to a few megabytes."""
    # In the order of what people look for: where the two best differ, what failed, then the rest of
    # the matrix. Texts that several pairs share, such as a target, count and travel once.
    split = _differing(texts.state, standing)
    wanted = [seq for both in split[:_MOST_DIFFERING] for seq in both]
    wanted += texts.state.failed()[-_MOST_FAILED:].tolist()
    wanted = list(dict.fromkeys([*wanted, *_asks_of(texts.state, matrix)]))[:_MOST_PAIRS]
    pairs: dict[int, PairOutcome] = {}
    remaining, known = _MOST_CHARACTERS, set[str | None]()
    async for page in texts.pages(wanted):
        for pair in page:
            for text in (pair.prompt, pair.reply, pair.target, str(pair.inputs)):
                remaining -= min(_LONGEST, len(text or "")) if text not in known else 0
                known.add(text)
            pairs[pair.seq] = pair
        if remaining <= 0:
            break
    kept = [both for both in split if both[0] in pairs and both[1] in pairs]
    return PairSample(pairs, kept, len(split), texts.note, _pictures(texts, pairs))


def _pictures(texts: RunTexts, seqs: Iterable[int]) -> dict[int, list[str]]:
    """Return the small images in the prompts of some asks, up to a few megabytes in all."""
    pictures, known, remaining = dict[int, list[str]](), set[str](), _MOST_OF_PICTURES
    for seq in seqs:
        new = set(urls := texts.pictures(seq, _LARGEST_PICTURE)) - known
        remaining -= sum(map(len, new))
        if remaining < 0:
            break
        known |= new
        pictures[seq] = urls
    return pictures


def cut(text: str | None) -> str | None:
    """Shorten a text that is too long for the report, and say so."""
    if text is None or len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]} ... [{len(text) - _LONGEST:,} more characters]"


def _differing(state: RunState, standing: Standing) -> list[tuple[int, int]]:
    """Return the asks of winner and runner-up on the examples that they score differently."""
    # where an objective names another than the best, the best is whom it is compared with
    others = [row for row in standing.rows if row.n and row is not standing.winner]
    if standing.winner is None or not others:
        return []
    a, b = scores_of(state, standing.winner.index), scores_of(state, others[0].index)
    common = [(a[j], b[j]) for j in a if j in b and abs(a[j][1] - b[j][1]) > 0]
    common.sort(key=lambda both: (both[0][1] - both[1][1], both[0][0]))  # where it loses, first
    return [(a[0], b[0]) for a, b in common]


def _asks_of(state: RunState, matrix: Matrix) -> list[int]:
    """Return the asks in the matrix, spread evenly over the run."""
    is_inside = np.isin(state.asks["candidate"], matrix.rows)
    is_inside &= np.isin(state.asks["example"], matrix.columns)
    seqs = np.flatnonzero(is_inside).tolist()
    if len(seqs) <= _MOST_PAIRS:
        return seqs
    return [seqs[k] for k in np.linspace(0, len(seqs) - 1, _MOST_PAIRS).astype(int)]


_MEASURE = "measure: "  # keeps the names of measures apart from the others
_AXES = (
    ("price", "dollars for 1,000 calls", True),
    ("tokens", "tokens of an answer", True),
    ("latency", "seconds of a call, median", True),
    ("length", "tokens of a reply, mean", True),
    ("estimate", "estimate of the mean score", False),
)


def values_of(row: Row) -> Mapping[str, float | None]:
    """Return a candidate's quantities by name; amounts of 0 count as unknown."""
    # 0 mostly means that nothing was counted: at the end of an axis such a candidate would be drawn
    # as the cheapest or the fastest
    tokens = row.spend.tokens / row.spend.answers if row.spend.answers else None
    return {
        "price": row.usd_per_1000 or None,
        "tokens": tokens or None,
        "latency": row.p50_seconds or None,
        "length": row.output_tokens,
        "estimate": row.estimate,
        **{f"{_MEASURE}{m.name}": m.mean for m in row.measures},
    }


def chart_axes(standing: Standing) -> list[dict[str, object]]:
    """Return the quantities that two candidates or more have, with whether less is better.

    Of a measure that is limited from above less is better, of others more.
    """
    values_by_row = [values_of(row) for row in standing.rows]
    limited = [] if standing.objective is None else standing.objective.spec.constraints
    low = {m.name for m in limited if m.at_most}
    names = [m.name for m in standing.rows[0].measures] if standing.rows else []
    axes = [*_AXES, *((f"{_MEASURE}{name}", f"{name}, mean", name in low) for name in names)]
    return [
        {"key": key, "label": label, "low": is_low}
        for key, label, is_low in axes
        if sum(values[key] is not None for values in values_by_row) > 1
    ]


_RACERS = 5
_MOMENTS = 32  # of a course


@dataclass(frozen=True, slots=True)
class Details:
    """Contents of the report beyond the standing."""

    state: RunState
    matrix: Matrix
    sample: PairSample
    verdicts: Sequence[VerdictLine]  # the latest of a judge, the newest first


def page_data(standing: Standing, details: Details) -> str:
    """Return the data as JSON that may stand inside a script element."""
    ids, matrix = details.state.example_ids, details.matrix
    content = {
        "graded": standing.graded,
        "states": {status.name.lower(): status for status in Status},
        "candidates": [_candidate(row, graded=standing.graded) for row in standing.rows],
        "axes": chart_axes(standing),
        "matrix": {
            "rows": matrix.rows,
            "examples": [ids[j] for j in matrix.columns],
            "cells": matrix.cells,
        },
        "race": _race(standing, details.state),
        **_pairs(details),
    }
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # In a script element "</script>" and "<!--" would end it or change how it is read, whatever
    # stands around them; the two separators end a line in older JavaScript. As escapes in strings
    # of JSON they mean the same, and nowhere else can they stand.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _candidate(row: Row, *, graded: bool) -> dict[str, object]:
    return {
        "row": row.index,
        "label": row.candidate.label or row.candidate.id,
        "state": row.status.name.lower(),
        "seen": seen(row, graded=graded),
        "estimate": _number(row.estimate),
        "lower": _number(row.lower),
        "upper": _number(row.upper),
        "values": {name: _number(value) for name, value in values_of(row).items()},
    }


def _race(standing: Standing, state: RunState) -> dict[str, object]:
    # the one to take comes first: it has the green, thick line, wherever it ranks
    ranked = (*filter(None, [standing.winner]), *standing.rows)
    racers = list(dict.fromkeys(row.index for row in ranked if row.n))[:_RACERS]
    is_valid = standing.guarantee is not Guarantee.HEURISTIC
    alpha = (1.0 - standing.confidence) / (2 * len(standing.rows)) if is_valid else 0.0
    courses = [course(state, row, alpha) for row in racers]
    return {
        "told": courses[0][0] if courses else [],
        "rows": racers,
        **{
            key: [[_number(mean[k]) for mean in means] for _, means in courses]
            for k, key in enumerate(("mean", "lower", "upper"))
        },
        "left": sorted(departures(standing, state).values()),
    }


def course(state: RunState, row: int, alpha: float) -> tuple[list[int], list[Measure]]:
    """Return numbers of outcomes, evenly over a run, and a candidate's mean after each of them.

    The intervals are those of draws without replacement (``betting``): scores enter them in the
    order of asking, up to the first that was pending. They err with probability ``alpha``; none
    are stated for 0.
    """
    n_told = state.n_told
    moments = np.linspace(0, n_told, min(_MOMENTS, n_told) + 1).astype(int)[1:].tolist()
    seqs, means = np.flatnonzero(state.asks["candidate"] == row), []
    place, seen_scores = _places(state)[seqs], state.told["score"][seqs]
    for moment in moments:
        scores: FloatArray = np.where(place < moment, seen_scores, np.nan)
        seen, ends = scores[~np.isnan(scores)], (0.0, 1.0)
        if alpha:
            # Only scores before the first that was still pending then: outcomes come in an order
            # that may depend on the scores (a right answer may be the shorter one), the order of
            # asking does not. One that is void may have had any score.
            late = np.flatnonzero(place >= moment)
            known = scores[: late[0]] if len(late) else scores
            low, high = np.nan_to_num(known, nan=0.0), np.nan_to_num(known, nan=1.0)
            ends = mean_interval(low, high, alpha, len(state.example_ids))
        means.append(Measure(float(seen.mean()) if len(seen) else float("nan"), *ends))
    return moments, means


def _places(state: RunState) -> NDArray[np.int32]:
    """Return how many outcomes came before that of each ask; of a pending one, how many came."""
    n_before = np.full(state.n_asked, state.n_told, dtype=np.int32)
    n_before[state.order] = np.arange(state.n_told, dtype=np.int32)
    return n_before


def _number(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(f"{value:.4g}")


def _pairs(details: Details) -> dict[str, object]:
    """Write pairs with their texts; a text that several pairs share is written once."""
    rows, columns = (details.state.asks[name].tolist() for name in ("candidate", "example"))
    ids, texts, pictures = details.state.example_ids, dict[str, int](), details.sample.pictures

    def text(value: str | None) -> int | None:
        return None if value is None else texts.setdefault(cut(value) or "", len(texts))

    pairs = [
        {
            "seq": seq,
            "row": rows[seq],
            "example": ids[columns[seq]],
            "prompt": text(pair.prompt),
            "target": text(pair.target),
            "reasoning": text(pair.reasoning),
            "reply": text(pair.reply),
            "answer": text(pair.answer),
            "message": text(pair.message),
            "pictures": [texts.setdefault(url, len(texts)) for url in pictures.get(seq, ())],
            **_facts(pair),
            "votes": [
                [vote.by, vote.said or f"{vote.value:g}", vote.value, vote.why]
                for vote in pair.votes
            ],
        }
        for seq, pair in details.sample.pairs.items()
    ]
    return {"pairs": pairs, "texts": list(texts), "differing": details.sample.differing}


def _facts(pair: PairOutcome) -> dict[str, object]:
    return {
        "state": pair.state,
        "score": _number(pair.score),
        "finish": pair.finish,
        "attempts": pair.attempts,
        "tokens": pair.tokens,
        "usd": _number(pair.usd),
        "seconds": _number(pair.seconds),
        "cached": pair.cached,
        "failure": pair.failed_as,
    }


_SHORT = 400  # characters of a text in a table


@dataclass(frozen=True, slots=True)
class Difference:
    """One example with both answers."""

    question: str
    winner: PairOutcome
    other: PairOutcome

    @property
    def answers(self) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
        """Return both replies, each as what comes before, within and after what is marked.

        That is their difference; where this is most of a text, the target if it stands in it.
        """
        # A short and a long reply have little in common but may agree in what counts, so that a
        # difference that is most of a text is not marked, but the target.
        winner, other = parts = marked(_reply(self.winner), _reply(self.other))
        if all(len(before) + len(after) >= len(inside) for before, inside, after in parts):
            return winner, other
        target = self.winner.target or ""
        return _around("".join(winner), target), _around("".join(other), target)


def differences(details: Details) -> Iterator[Difference]:
    """Iterate over the examples, those first on which the winner is worse."""
    for ask, other in details.sample.differing:
        pair = details.sample.pairs[ask]
        yield Difference(short(question_of(pair)), pair, details.sample.pairs[other])


def _around(text: str, target: str) -> tuple[str, str, str]:
    """Part a text at the last place of the target; mark nothing if it is not there."""
    start = text.rfind(target) if target else -1
    return (text, "", "") if start < 0 else (text[:start], target, text[start + len(target) :])


def _reply(pair: PairOutcome) -> str:
    return short(pair.reply or pair.answer or pair.message or "")


def short(text: str) -> str:
    """Shorten a text for a table."""
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 4]} ..."


def departures(standing: Standing, state: RunState) -> dict[int, int]:
    """Return after how many outcomes candidates were asked no more, by row."""
    # no event says that a rule asks a candidate no more: it left after its last outcome
    last = np.zeros(len(state.candidates), int)
    np.maximum.at(last, state.asks["candidate"], _places(state) + 1)
    gone = [row for row in standing.rows if row.problem or row.status is Status.WORSE]
    return {row.index: int(last[row.index]) for row in gone}


_LEADERS = 4  # of which slices are shown


@dataclass(frozen=True, slots=True)
class SliceLine:
    """The leading candidates on the examples of a slice, by what was seen of them."""

    name: str
    n: int  # examples
    labels: Sequence[str]  # of the candidates
    cells: Sequence[tuple[str, float]]  # for each, for people, and as a number to sort by


def slices_of(standing: Standing, state: RunState) -> list[SliceLine]:
    """Return the slices of a study with what was seen of the leaders in each."""
    leaders, lines = [row for row in standing.rows if row.n][:_LEADERS], []
    row, score = state.asks["candidate"], state.told["score"]
    for part in state.slices:
        inside = np.isin(state.asks["example"], part.examples) & ~np.isnan(score)
        cells = [
            slice_cell(score[inside & (row == leader.index)], graded=standing.graded)
            for leader in leaders
        ]
        labels = [leader.candidate.label for leader in leaders]
        lines.append(SliceLine(part.name, len(part.examples), labels, cells))
    return lines


def slice_cell(scores: FloatArray, *, graded: bool) -> tuple[str, float]:
    """Write what was seen as people read it; nothing where nobody asked."""
    if not len(scores):
        return "-", -1.0
    mean = float(scores.mean())
    return f"{percent(mean) if graded else f'{scores.sum():.0f}'} of {len(scores):,}", mean


_SHOWN_ROWS = 500
_SHOWN_LEVELS = 12


def render_report(
    standing: Standing,
    *,
    config: Json,
    failures: Sequence[FailureLine],
    sessions: Sequence[Session],
    judge: JudgeCheck | None = None,
    result: ModeResult | None = None,
    remarks: Sequence[str] = (),
    details: Details | None = None,
) -> str:
    """Render the report of a run: an HTML document that uses nothing outside it.

    Args:
        standing: the ranking and the spend.
        config: the resolved configuration.
        failures: what went wrong, most frequent first.
        sessions: when the run was worked on.
        judge: how the judge fares on gold scores, if there are any.
        result: the answer of a mode that has one of its own.
        remarks: what the replies showed that users should know, such as what servers ignored.
        details: the run and its pairs; None leaves charts and answers out.
    """
    style = _asset("uplot/uPlot.min.css") + _asset("base.css") + _asset("report.css")
    charts = f"/*\n{_asset('uplot/LICENSE')}*/\n{_asset('uplot/uPlot.iife.min.js')}"
    script = _asset("base.js") + _asset("report.js")
    shown, others = standing.parted(_SHOWN_ROWS)
    return _page().render(
        s=standing,
        style=Markup(style),
        scripts=[] if details is None else [Markup(charts), Markup(script)],
        policy=_policy(style, [] if details is None else [charts, script]),
        data=None if details is None else Markup(page_data(standing, details)),
        rows=shown,
        measured=standing.rows[0].measures if standing.rows else (),
        hidden=others,
        effects=axis_effects(standing) if result is None else [],
        config=json.dumps(config, indent=2, ensure_ascii=False),
        seed=_seed(config),
        failures=failures,
        sessions=sessions,
        judge=judge,
        verdicts=[] if details is None else details.verdicts,
        remarks=remarks,
        mode=result,
        details=details,
        slices=slices_of(standing, details.state) if details and result is None else [],
        differing=[] if details is None else list(differences(details)),
        # in the order of their best candidates
        prompts=list(dict.fromkeys(row.candidate.prompt for row in standing.rows)),
        departures=departures(standing, details.state) if details else {},
    )


@cache
def _asset(name: str) -> str:
    return files("bestarm_agent.report").joinpath("page", name).read_text(encoding="utf-8")


def _policy(style: str, scripts: Sequence[str]) -> str:
    """Allow what is written here to run, by its digest, and nothing else."""
    # Replies of models stand in the page. All are escaped; should one not be, the browser still
    # runs no script and no style but those with these digests, and loads nothing from anywhere.
    allowed = " ".join(_digest(script) for script in scripts) or "'none'"
    return (
        f"default-src 'none'; style-src {_digest(style)}; img-src data:; script-src {allowed}; "
        f"base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _seed(config: Json) -> Json:
    selector = config.get("selector") if isinstance(config, dict) else None
    return selector.get("seed") if isinstance(selector, dict) else None


@cache
def _page() -> Template:
    """Compile the page's template, once per process."""
    # All values are escaped unless marked as ``Markup``; a name that the template misspells is an
    # error and not an empty text; tags of blocks leave no blank lines.
    environment = Environment(
        autoescape=select_autoescape(default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        safe_text=safe,
        # may break after its slashes
        label=lambda text: escape(safe(text)).replace("/", Markup("/<wbr>")),
        cost=cost_text,
        estimate=estimate,
        interval=interval,
        percent=percent,
        points=_points,
        sentence=lambda text: text[:1].upper() + text[1:],
    )
    environment.globals.update(
        points_text=points,
        bar=_bar,
        effect_bar=_effect_bar,
        effect_title=_effect_title,
        full_grid=_full_grid,
        seen=seen,
        words=words,
        shown_levels=_SHOWN_LEVELS,
    )
    return environment.from_string(_asset("page.html.j2"))


def _points(value: float, width: float = 1.0) -> str:
    """Write a difference of shares in points with its sign."""
    # intervals narrower than two points need a decimal, or both ends may look the same
    digits = 0 if width >= 0.02 else 1
    text = f"{100 * abs(value):.{digits}f}"
    return f"{'+' if value >= 0 else '−'}{text}" if float(text) else text


def _bar(row: Row) -> dict[str, str]:
    """Place a row's interval and estimate on a 0..100 axis, as SVG coordinates."""
    mean = row.lower if row.estimate is None else row.estimate
    return {
        "x": f"{100 * row.lower:.2f}",
        # 0.4 of 100 is what one still sees, of an interval of no width
        "width": f"{max(0.4, 100 * (row.upper - row.lower)):.2f}",
        "mean": f"{100 * mean:.2f}",
    }


def _effect_bar(value: float, effects: Sequence[AxisEffects]) -> str:
    """Place an effect on a 0..100 axis that all axes share; 50 stands for no effect."""
    # 49 and not 50: the longest interval ends just inside the picture
    most = max(max(-x.effect.lower, x.effect.upper) for axis in effects for x in axis.levels)
    return f"{50 + 49 * value / max(most, 1e-9):.2f}"


def _effect_title(axis: AxisEffects) -> str:
    """Say what an axis is seen to do, as a heading."""
    name = axis.axis.replace("_", " ").capitalize()
    if not axis.is_clear:
        return f"{name}: no clear difference"
    return f"{name}: {points(axis.spread)} between best and worst"


def _full_grid(standing: Standing) -> str:
    """Say what all answers would cost; "" where nothing is known, or all is free.

    An answer costs what those of its candidate cost so far, judging included, and at least the
    candidate's price of use, since replies from the cache cost the run nothing.
    """
    used, scale = NANOS_PER_USD / CALLS, len(standing.rows) * standing.n_examples
    known = [
        max(row.spend.usd_nanos / row.spend.answers, used * (row.usd_per_1000 or 0.0))
        for row in standing.rows
        if row.spend.answers
    ]
    # candidates that were never called count with the mean of the others
    return money(round(scale * sum(known) / len(known))) if standing.priced and any(known) else ""


async def report_of(
    texts: RunTexts,
    standing: Standing,
    check: JudgeCheck | None = None,
    result: ModeResult | None = None,
) -> str:
    """Render a run's report as HTML."""
    state = texts.state
    matrix = matrix_of(state, [row.index for row in standing.rows])
    sample = await sample_pairs(texts, standing, matrix)
    outcomes = await texts.told(state.order[: -LOOKED_AT - 1 : -1].tolist())
    verdicts = latest_verdicts(state, outcomes.values())
    stops = [session.stopped for session in state.sessions if session.stopped is not None]
    return render_report(
        standing,
        config=state.started.config,
        failures=failures_of(state),
        sessions=state.sessions,
        judge=check,
        result=result,
        remarks=list(dict.fromkeys(remark for stop in stops for remark in stop.remarks)),
        details=Details(state, matrix, sample, verdicts),
    )


_SHOWN_VERDICTS = 100

LOOKED_AT = 1000  # outcomes: a judge that asks a model says something of each that it scores


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """One judgement."""

    label: str  # the candidate's label
    example: str  # the example's id
    vote: Vote  # what the judge said
    seq: int  # number of the ask


def latest_verdicts(state: RunState, latest: Iterable[Told]) -> list[VerdictLine]:
    """Return the judgements of outcomes, the newest of which is first; none where a rule scores."""
    lines: list[VerdictLine] = []
    for outcome in latest:
        if (score := outcome.outcome.score) is not None:
            row, column, *_ = state.asks[outcome.seq].tolist()
            label, example = state.candidates[row].label, state.example_ids[column]
            lines += [VerdictLine(label, example, vote, outcome.seq) for vote in score.votes]
        if len(lines) >= _SHOWN_VERDICTS:
            break
    return lines[:_SHOWN_VERDICTS]
