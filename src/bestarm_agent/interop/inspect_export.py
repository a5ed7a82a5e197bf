"""Writes a run as Inspect logs, one per candidate, through inspect-ai's own writer."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bestarm_agent.domain.values import Candidate
from bestarm_agent.errors import StoreError
from bestarm_agent.plugins import optional
from bestarm_agent.store.export import AWAITED, PairOutcome, verdicts
from bestarm_agent.store.run_state import RunState


def write_inspect_logs(state: RunState, pairs: Iterable[PairOutcome], folder: Path) -> list[Path]:
    """Write a run's pairs for `inspect view`; return the files, one per candidate that was asked.

    Void pairs are samples with an error. Only what was asked is there: a log's mean is one over the
    examples that the rule chose, and its header counts those of the whole data set.

    Args:
        state: the run.
        pairs: all of its pairs, with their texts.
        folder: made if it is not there; `.eval` files of the same names are replaced.

    Raises:
        ConfigError: inspect-ai is not installed.
        StoreError: the files cannot be written.
    """
    log = optional("inspect_ai.log", "inspect", "writing Inspect logs")
    asked: dict[str, list[PairOutcome]] = defaultdict(list)
    for record in pairs:
        if record.state not in AWAITED:
            asked[record.candidate].append(record)
    rows = {candidate.id: candidate for candidate in state.candidates}
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A number first, since two labels may become one name once odd characters are replaced.
        for number, (label, records) in enumerate(asked.items()):
            path = folder / f"{number:03d}_{re.sub(r'[^A-Za-z0-9.=-]+', '_', label)[:80]}.eval"
            made = _log(state, rows[records[0].candidate_id], records)
            log.write_eval_log(made, str(path), format="eval")
            written.append(path)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be written ({error.strerror}); give another folder"
        ) from error
    return written


def _log(state: RunState, candidate: Candidate, records: Sequence[PairOutcome]) -> Any:  # noqa: ANN401 - inspect-ai is an extra
    from inspect_ai import log
    from inspect_ai.model import GenerateConfig

    started = state.started
    known = {k: v for k, v in candidate.params.items() if k in GenerateConfig.model_fields}
    n_examples = len(state.example_ids)
    scores = [record.score for record in records if record.score is not None]
    mean = {"mean": log.EvalMetric(name="mean", value=sum(scores) / len(scores))} if scores else {}
    scored = log.EvalScore(name="score", scorer="score", scored_samples=len(scores), metrics=mean)
    return log.EvalLog(
        status="success",
        eval=log.EvalSpec(
            created=started.at,
            task=started.name,
            task_id=f"{started.name}-{candidate.id}",
            task_args={"candidate": records[0].candidate},
            dataset=log.EvalDataset(
                name=started.name,
                samples=n_examples,
                sample_ids=[record.example for record in records],
            ),
            model=_model(records[0]),
            model_generate_config=GenerateConfig(**known),
            config=log.EvalConfig(),
            packages={"bestarm_agent": started.version},
        ),
        results=log.EvalResults(
            total_samples=n_examples, completed_samples=len(scores), scores=[scored]
        ),
        samples=[_sample(record) for record in records],
    )


def _sample(record: PairOutcome) -> Any:  # noqa: ANN401
    from inspect_ai.log import EvalError, EvalSample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput, ModelUsage
    from inspect_ai.scorer import Score

    prompt, reply = record.prompt or "", record.reply or ""
    messages = [ChatMessageUser(content=prompt), ChatMessageAssistant(content=reply)]
    sent, received = record.input_tokens or 0, record.output_tokens or 0
    usage = ModelUsage(input_tokens=sent, output_tokens=received, total_tokens=sent + received)
    verdict: dict[str, Any] = {}
    if record.score is None:
        message = f"{record.failure}: {record.message or ''}"
        verdict["error"] = EvalError(message=message, traceback="", traceback_ansi="")
    else:
        why = verdicts(record.votes) or record.message
        score = Score(value=record.score, answer=record.answer, explanation=why)
        verdict["scores"] = {"score": score}
    return EvalSample(
        id=record.example,
        epoch=1,
        input=prompt,
        target=record.target.splitlines() if record.target else "",
        messages=messages if record.reply is not None else messages[:1],
        output=ModelOutput.from_content(_model(record), reply),
        model_usage={_model(record): usage},
        total_time=record.seconds,
        **verdict,
    )


def _model(record: PairOutcome) -> str:
    """Return the model as `developer/model`; the provider stands in for an unnamed developer."""
    return record.model if "/" in record.model else f"{record.provider}/{record.model}"
