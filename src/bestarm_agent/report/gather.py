"""Collects what a run's report shows."""

from __future__ import annotations

import numpy as np

from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.engine.results.judge_check import JudgeCheck, corrected_rows
from bestarm_agent.engine.results.pairs import RunTexts
from bestarm_agent.engine.results.standing import Standing, failures_of
from bestarm_agent.engine.results.trajectory import Trajectory
from bestarm_agent.report.html_page import JudgeSection, Session, render_report
from bestarm_agent.report.matrix import matrix_of
from bestarm_agent.report.page_data import Details
from bestarm_agent.report.pair_sample import sample_pairs
from bestarm_agent.store.run_state import RunState


async def report_of(
    texts: RunTexts,
    trajectory: Trajectory,
    standing: Standing,
    check: JudgeCheck | None = None,
    result: ModeResult | None = None,
) -> str:
    """Render a run's report as HTML."""
    state = texts.state
    matrix = matrix_of(state, [row.index for row in standing.rows])
    sample = await sample_pairs(texts, standing, matrix)
    return render_report(
        standing,
        config=state.started.config if state.started else None,
        failures=failures_of(state),
        sessions=[
            Session(s.at, s.version, s.stopped.reason if s.stopped else None)
            for s in state.sessions
        ],
        judge=None if check is None else JudgeSection(check, corrected_rows(standing, check)),
        result=result,
        remarks=_remarks(state),
        details=Details(state, trajectory, matrix, sample, outcomes_over_time(state)),
    )


def _remarks(state: RunState) -> list[str]:
    stops = [session.stopped for session in state.sessions if session.stopped is not None]
    return list(dict.fromkeys(remark for stop in stops for remark in stop.remarks))


_BINS = 60


def outcomes_over_time(state: RunState) -> tuple[list[float], list[float]]:
    """Return the middles of equal stretches of working time, in s, and outcomes per s in each."""
    at = state.told.at
    end = float(at.max(initial=0.0))
    if end <= 0:
        return [], []
    counts, edges = np.histogram(at, bins=_BINS, range=(0.0, end))
    width = edges[1] - edges[0]
    return (edges[:-1] + width / 2).tolist(), (counts / width).tolist()
