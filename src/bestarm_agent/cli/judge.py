"""``judge check``: how far a judge can be trusted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.output import Column, print_json, print_table, say, stderr_console
from bestarm_agent.cli.progress import busy
from bestarm_agent.cli.stores import default_store
from bestarm_agent.config.labels import load_labels
from bestarm_agent.domain.spend import NANOS_PER_USD
from bestarm_agent.domain.text import money, percent, safe
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.results.judge_check import (
    JudgeCheck,
    JudgedLabels,
    check_judge,
    compare_stored,
)
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.engine.single_calls import compare_answers
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.report.words import measure, plain
from bestarm_agent.study import open_mode

_CONFIDENCE = 0.95  # of each interval
_STUDIES = (".yaml", ".yml", ".json")


def check(given: Given, source: str, gold: Path | None) -> None:
    """Compare the scores of a stored run, or of a study's judge, with gold scores."""
    measured = check_judge(_compared(given, source, gold), _CONFIDENCE)
    if given.as_json:
        print_json(_as_json(measured))
        return
    say(_counts(measured.comparison))
    per_1000 = measured.usd_per_1000
    cost = "unknown" if per_1000 is None else money(round(per_1000 * NANOS_PER_USD))
    print_table(
        ["measure", "value", "interval", Column("meaning", "start")],
        [
            *([name, *measure(value), meaning] for name, value, meaning in measured.lines()),
            ["price per 1,000", cost, "", "what judging 1,000 answers cost"],
        ],
    )
    say(f"Each interval holds by itself at {percent(_CONFIDENCE)}.")


def _compared(given: Given, source: str, gold: Path | None) -> JudgedLabels:
    labels = None if gold is None else load_labels(gold)
    if Path(source).suffix not in _STUDIES:
        return asyncio.run(compare_stored(default_store(given.store), source, labels))
    if labels is None:
        raise ConfigError(f"name a file of labelled answers for the judge of {source}")
    with busy(stderr_console(), f"judging {len(labels)} answers"):
        options, study = given.options(), replace(given, study=Path(source)).load()
        parts = assemble(study, options.catalog(study), open_mode)
        return asyncio.run(compare_answers(parts, options, labels))


def _counts(comparison: JudgedLabels) -> str:
    n = len(comparison.pairs)
    answers = f" with {counted(n, 'answer')}" if n != comparison.n_compared else ""
    why = f"; the last failure: {safe(comparison.why)}" if comparison.n_void else ""
    return (
        f"{comparison.n_compared} of {counted(comparison.n_labels, 'label')} compared{answers}, "
        f"{comparison.n_missing} without a score, {comparison.n_void} on which the judge "
        f"failed{why}"
    )


def _as_json(check: JudgeCheck) -> Json:
    comparison = check.comparison
    return {
        "labels": comparison.n_labels,
        "compared": comparison.n_compared,
        "answers": len(comparison.pairs),
        "judge_failed": comparison.n_void,
        "confidence": check.confidence,
        "usd_per_1000": check.usd_per_1000,
        "measures": {name: plain(value) for name, value, _ in check.lines()},
    }
