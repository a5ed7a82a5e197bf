"""The answers to the page's requests: JSON, and a stream of events for a run that goes on."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from aiohttp import web

from bestarm_agent.config.labels import by_answer
from bestarm_agent.engine.results.compare import compare_candidates
from bestarm_agent.engine.results.judge_check import human_labels, labels_path, put_label
from bestarm_agent.engine.results.labelling import Labelling, LabelQuestion, read_plan
from bestarm_agent.engine.results.pairs import PAGE, PairFilter, RunTexts
from bestarm_agent.errors import ConfigError, RunNotFoundError
from bestarm_agent.report.html_page import report_of
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.store.export import labels as names
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import Store, StorePlace
from bestarm_agent.view.documents import (
    Labels,
    comparison_page,
    labelling_page,
    neighbours,
    pair_document,
    question_document,
    run_line,
)
from bestarm_agent.view.followed_run import FollowedRun
from bestarm_agent.view.live import LiveRun

_OPEN_RUNS: Final = 4  # runs kept in memory
_FLIPS: Final = 20  # examples shown on which two candidates differ
_REPORT_POLICY: Final = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Endpoints:
    """Answers requests about the runs of some stores, which are numbered in this order."""

    def __init__(self, stores: Sequence[Store], places: Sequence[StorePlace]) -> None:
        self._stores = stores
        self._places = places
        self._open: dict[tuple[int, str], FollowedRun] = {}
        self._labellings: dict[FollowedRun, Labelling] = {}
        self._live: dict[FollowedRun, LiveRun] = {}  # of runs that pages are open of

    async def close(self, _app: web.Application) -> None:
        """End all streams."""
        for live in list(self._live.values()):
            live.close()

    async def runs(self, _request: web.Request) -> web.StreamResponse:
        """List all runs, those that began last first."""
        lines = [
            run_line(info, number, _shown(place))
            for number, (store, place) in enumerate(zip(self._stores, self._places, strict=True))
            for info in await store.runs()
        ]
        return web.json_response(sorted(lines, key=lambda line: str(line["at"]), reverse=True))

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Send where a run stands, now and whenever something is new, as server-sent events."""
        run, most = await self._run(request), _number(request, "rows", 60)
        live = self._live.setdefault(run, LiveRun(run))
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        transport = request.transport
        async with aclosing(live.texts(most)) as texts:
            async for text in texts:
                if transport is None or transport.is_closing():
                    break
                with suppress(ConnectionResetError):  # the page was left meanwhile
                    await stream.write(text.encode())
        if not live.is_watched:
            self._live.pop(run, None)
        return stream

    async def candidates(self, request: web.Request) -> web.StreamResponse:
        """List the labels of a run's candidates, and the names of its slices."""
        run = await self._run(request)
        async with run.refreshed() as state:
            slices = [part.name for part in state.slices]
            return web.json_response({"candidates": names(state), "slices": slices})

    async def pairs(self, request: web.Request) -> web.StreamResponse:
        """List the pairs that meet conditions, a page of them."""
        run, start = await self._run(request), _number(request, "start", 0)
        async with run.refreshed():
            texts = await run.texts()
            seqs = _filter(request).chosen(texts.state)
            labels = _labels(run)
            outcomes = await _outcomes(texts, seqs[start : start + PAGE])
        lines = [pair_document(outcome, labels) for outcome in outcomes]
        return web.json_response(
            {"count": len(seqs), "page": PAGE, "pairs": lines, "note": texts.note}
        )

    async def pair(self, request: web.Request) -> web.StreamResponse:
        """Send one pair in full, and its neighbours among those that meet the conditions."""
        run, seq = await self._run(request), _whole(request.match_info["seq"])
        async with run.refreshed():
            texts = await run.texts()
            document = pair_document(await _outcome(texts, seq), _labels(run))
            document["pictures"] = texts.pictures(seq)
            around = neighbours(_filter(request).chosen(texts.state), seq)
        # The page names the file, not its path: screenshots of it are shared.
        path = labels_path(run.place, run.run_id)
        return web.json_response({**document, **around, "note": texts.note, "labels": path.name})

    async def label(self, request: web.Request) -> web.StreamResponse:
        """Store the score that a person gives to a pair's answer; null takes it back."""
        run, seq = await self._run(request), _whole(request.match_info["seq"])
        score = _score(await request.text())
        async with run.refreshed():
            outcome = await _outcome(await run.texts(), seq)
            if outcome.reply is None:
                raise ConfigError(f"pair {seq} has no answer to label; label another one")
            label = (outcome.example, outcome.reply, score)
            # in a thread: another process may be changing the file, and is waited for
            await asyncio.to_thread(put_label, run.place, run.run_id, *label)
        return web.json_response({"score": score})

    async def labelling(self, request: web.Request) -> web.StreamResponse:
        """Send the next example to label, or a chosen one, and what the labels say so far."""
        run, query = await self._run(request), request.query
        async with run.refreshed():
            labelling = await self._labelling(run)
            stand = await labelling.stand()
            later = [int(text) for text in query.get("later", "").split(",") if text.isdecimal()]
            asked: LabelQuestion | None
            if "place" in query:
                asked = await labelling.question(_number(request, "place", 0), stand)
            else:
                asked = await labelling.next(query.get("rater"), later)
            question = None
            if asked is not None:
                texts = await run.texts()
                outcome = await _outcome(texts, asked.seq)
                question = question_document(outcome, asked, texts.pictures(asked.seq))
        return web.json_response(labelling_page(stand, question))

    async def scores(self, request: web.Request) -> web.StreamResponse:
        """Store a person's scores of all answers to the example of a place."""
        run, place = await self._run(request), int(request.match_info["place"])
        scores, rater, tie = _scores(await request.text())
        async with run.refreshed():
            labelling = await self._labelling(run)
            known = await labelling.question(place, await labelling.stand())
            # Two tabs may be open: an example that changed meanwhile (a candidate left the race)
            # must not take scores of answers that nobody was shown.
            if set(scores) - set(known.answers):
                raise ConfigError("these are not the answers of this example; load the page again")
            await labelling.put(place, scores, rater, tie=tie)
        return web.json_response({})

    async def _labelling(self, run: FollowedRun) -> Labelling:
        """Return the labelling of a run; its answers are read once while the run stays as it is."""
        texts = await run.texts()
        if run not in self._labellings or self._labellings[run].texts is not texts:
            plan = read_plan(run.place, run.run_id)
            if plan is None:
                raise ConfigError(f"begin with `bestarm-agent label {run.run_id}`: it fixes whom")
            self._labellings[run] = Labelling(texts, run.place, plan)
        return self._labellings[run]

    async def compare(self, request: web.Request) -> web.StreamResponse:
        """Compare two candidates on the same examples, of a run or of two of a store."""
        run, query = await self._run(request), request.query
        other = await self._run(request, query["other"]) if query.get("other") else run
        state, texts, a = await _side(run, query.get("a"))
        state_b, texts_b, b = await _side(other, query.get("b"))
        comparison = compare_candidates(state, a, b, other=None if other is run else state_b)
        comparison = replace(comparison, runs=(run.run_id, other.run_id))
        flipped = comparison.flips[:_FLIPS]
        one = await _outcomes(texts, [flip.seq_a for flip in flipped])
        two = await _outcomes(texts_b, [flip.seq_b for flip in flipped])
        flips = [[pair_document(side, {}) for side in both] for both in zip(one, two, strict=True)]
        return web.json_response(
            {**comparison_page(comparison), "flips": flips, "note": texts.note}
        )

    async def report(self, request: web.Request) -> web.StreamResponse:
        """Send the report of a run, as it stands now; the page brings its own policy."""
        run = await self._run(request)
        async with run.refreshed():
            standing, result = await run.standing()
            page = await report_of(await run.texts(), standing, None, result)
        headers = {"Content-Security-Policy": _REPORT_POLICY}
        return web.Response(text=page, content_type="text/html", headers=headers)

    async def _run(self, request: web.Request, other: str | None = None) -> FollowedRun:
        number, name = _whole(request.match_info["store"]), other or request.match_info["run"]
        if number >= len(self._stores):
            raise RunNotFoundError(f"there is no store {number}; go back to the list of runs")
        run_id = (await self._stores[number].find(name)).id
        key = number, run_id
        # A dict keeps its insertion order: taken out and put back, the run is the latest used, and
        # the first ones are those to forget.
        run = self._open.pop(key, None)
        if run is None:
            run = FollowedRun(self._stores[number], self._places[number], run_id)
        self._open[key] = run  # the last one is the latest used
        for old in list(self._open)[:-_OPEN_RUNS]:
            del self._open[old]
        return run


async def _side(run: FollowedRun, name: str | None) -> tuple[RunState, RunTexts, str]:
    """Return a run's state and texts, and the candidate of that name, or else its winner."""
    async with run.refreshed() as state:
        winner = (await run.standing())[0].winner
        if not name and winner is None:
            raise ConfigError(f"run {run.run_id} has no score yet; compare it later")
        return state, await run.texts(), name or names(state)[winner.index if winner else 0]


async def _outcomes(texts: RunTexts, seqs: Sequence[int]) -> list[PairOutcome]:
    return [outcome async for page in texts.pages(seqs) for outcome in page]


async def _outcome(texts: RunTexts, seq: int) -> PairOutcome:
    if seq >= texts.state.n_asked:
        raise ConfigError(f"the run has no pair {seq}; it has asked {texts.state.n_asked} so far")
    [outcome] = await _outcomes(texts, [seq])
    return outcome


def _labels(run: FollowedRun) -> Labels:
    return by_answer(human_labels(run.place, run.run_id))


def _filter(request: web.Request) -> PairFilter:
    query = request.query
    return PairFilter(
        candidate=query.get("candidate") or None,
        example=query.get("example") or None,
        wrong="wrong" in query,
        failed="failed" in query,
        slice=query.get("slice") or None,
    )


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, "")
    return _whole(text) if text.isdecimal() else default


def _whole(digits: str) -> int:
    """Return a number in an address; Python reads at most 4,300 digits, and none is so large."""
    return int(digits) if len(digits) < 19 else sys.maxsize


def _score(text: str) -> float | None:
    try:
        score = json.loads(text)
    except (ValueError, RecursionError):
        score = text
    if score is None or (type(score) in (int, float) and 0 <= score <= 1):
        return None if score is None else float(score)
    raise ConfigError(f"a label is a score between 0 and 1, or null, got {score!r:.60}")


def _scores(text: str) -> tuple[dict[str, float | None], str, bool]:
    """Read what the page sends of an example: scores by answer, whose they are, if it is a tie."""
    try:
        given = json.loads(text)
        scores = {str(key): _score(json.dumps(score)) for key, score in given["scores"].items()}
        return scores, str(given.get("rater") or ""), given.get("tie") is True
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ConfigError(f"these are no scores of answers: {error!r}") from error


def _shown(place: StorePlace) -> str:
    """Name a store without a password."""
    scheme, separator, rest = str(place).partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if separator else scheme
