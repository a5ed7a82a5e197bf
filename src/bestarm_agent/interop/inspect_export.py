"""Writes a run as Inspect logs, one per candidate, through inspect-ai's own writer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from bestarm_agent.domain.candidate import Candidate
from bestarm_agent.domain.events import Started
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.domain.spend import Usage
from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.store.export import Record, Texts, records
from bestarm_agent.store.run_state import RunState


def scorer_of(started: Started) -> str:
    """Return the name of a run's scorer."""
    config = started.config
    scorer = config.get("scorer") if isinstance(config, Mapping) else None
    return str(scorer.get("name") if isinstance(scorer, Mapping) else scorer)


def model_of(record: Record) -> str:
    """Return the model as `developer/model`; the provider stands in for an unnamed developer."""
    return record.model if "/" in record.model else f"{record.provider}/{record.model}"


def usage_of(state: RunState, record: Record) -> Usage | None:
    """Return the tokens of the answered call; None if it was not scored, or none are known."""
    told = state.told.get(record.seq)
    if told is None or not isinstance(told.outcome, Scored) or not told.outcome.usage.total:
        return None
    return told.outcome.usage


def write_inspect_logs(state: RunState, texts: Iterable[Texts], folder: Path) -> list[Path]:
    """Write a run's pairs for `inspect view`; return the files, one per candidate that was asked.

    Void pairs are samples with an error. Only what was asked is there: a log's mean is one over the
    examples that the rule chose, and its header counts those of the whole data set.

    Args:
        state: the run.
        texts: one per ask.
        folder: made if it is not there; `.eval` files of the same names are replaced.

    Raises:
        ConfigError: inspect-ai is not installed.
        StoreError: the files cannot be written.
    """
    log = _inspect_log()
    asked: dict[str, list[Record]] = defaultdict(list)
    for record in records(state, texts=texts):
        if record.state != "pending":
            asked[record.candidate].append(record)
    rows = {candidate.id: candidate for candidate in state.candidates}
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, (label, found) in enumerate(asked.items()):
            path = folder / f"{number:03d}_{re.sub(r'[^A-Za-z0-9.=-]+', '_', label)[:80]}.eval"
            made = _log(state, label, rows[found[0].candidate_id], found)
            log.write_eval_log(made, str(path), format="eval")
            written.append(path)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be written ({error.strerror}); give another folder"
        ) from error
    return written


def _inspect_log() -> ModuleType:
    try:
        from inspect_ai import log
    except ImportError:
        raise ConfigError(
            "writing Inspect logs needs inspect-ai: pip install 'bestarm-agent[inspect]'"
        ) from None
    module: ModuleType = log
    return module


def _log(state: RunState, label: str, candidate: Candidate, found: Sequence[Record]) -> Any:  # noqa: ANN401 - inspect-ai is an extra
    log, started = _inspect_log(), state.started
    assert started is not None  # there are records
    samples = [_sample(state, started, record) for record in found]
    return log.EvalLog(
        status="success",
        eval=_spec(state, started, label, candidate, found),
        results=_results(state, started, found),
        stats=log.EvalStats(started_at=started.at, completed_at=started.at),
        samples=samples,
    )


def _spec(
    state: RunState, started: Started, label: str, candidate: Candidate, found: Sequence[Record]
) -> Any:  # noqa: ANN401
    from inspect_ai.model import (
        GenerateConfig,
    )

    log = _inspect_log()
    known = {k: v for k, v in candidate.params.items() if k in GenerateConfig.model_fields}
    return log.EvalSpec(
        created=started.at,
        task=started.name,
        task_id=f"{started.name}-{candidate.id}",
        run_id=f"{started.name}-{started.at}",
        eval_id=f"{started.name}-{candidate.id}-{started.at}",
        task_args={"candidate": label},
        dataset=log.EvalDataset(
            name=started.name,
            samples=len(state.example_ids),
            sample_ids=[record.example for record in found],
        ),
        model=model_of(found[0]),
        model_generate_config=GenerateConfig(**known),
        config=log.EvalConfig(),
        packages={"bestarm_agent": started.version},
    )


def _results(state: RunState, started: Started, found: Sequence[Record]) -> Any:  # noqa: ANN401
    log, name = _inspect_log(), scorer_of(started)
    scores = [record.score for record in found if record.score is not None]
    metrics = {}
    if scores:
        metrics["mean"] = log.EvalMetric(name="mean", value=sum(scores) / len(scores))
    return log.EvalResults(
        total_samples=len(state.example_ids),
        completed_samples=len(scores),
        scores=[log.EvalScore(name=name, scorer=name, scored_samples=len(scores), metrics=metrics)],
    )


def _sample(state: RunState, started: Started, record: Record) -> Any:  # noqa: ANN401
    from inspect_ai.model import (
        ChatMessageAssistant,
        ChatMessageUser,
        ModelOutput,
    )

    prompt, reply = record.prompt or "", record.reply or ""
    messages = [ChatMessageUser(content=prompt), ChatMessageAssistant(content=reply)]
    return _inspect_log().EvalSample(
        id=record.example,
        epoch=1,
        input=prompt,
        target=record.target.splitlines() if record.target else "",
        messages=messages if record.reply is not None else messages[:1],
        output=ModelOutput.from_content(model_of(record), reply),
        model_usage=_usage(state, record),
        total_time=record.seconds,
        **_verdict(record, scorer_of(started)),
    )


def _usage(state: RunState, record: Record) -> Mapping[str, Any]:
    from inspect_ai.model import (
        ModelUsage,
    )

    used = usage_of(state, record)
    if used is None:
        return {}
    tokens = {"input_tokens": used.input, "output_tokens": used.output, "total_tokens": used.total}
    return {model_of(record): ModelUsage(**tokens)}


def _verdict(record: Record, scorer: str) -> dict[str, Any]:
    if record.score is None:
        message = f"{record.failure}: {record.message or ''}"
        error = _inspect_log().EvalError(message=message, traceback="", traceback_ansi="")
        return {"error": error}
    from inspect_ai.scorer import (
        Score,
    )

    why = record.verdicts or record.message
    return {"scores": {scorer: Score(value=record.score, answer=record.answer, explanation=why)}}
