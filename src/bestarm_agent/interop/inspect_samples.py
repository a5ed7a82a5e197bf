"""Inspect's samples as outcomes, and those that earlier logs hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime
from statistics import fmean
from typing import TYPE_CHECKING

from bestarm_agent.domain.outcome import Failed, Outcome, Scored
from bestarm_agent.domain.spend import Spend, nanos
from bestarm_agent.errors import Blame, ConfigError, FailureKind
from bestarm_agent.interop.inspect_logs import usage_in

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample, EvalSpec  # type: ignore[import-not-found, unused-ignore]


def void(message: str, spend: Spend = Spend(pulls=1)) -> Failed:  # noqa: B008 - frozen
    """Return the outcome of a sample that says nothing about its candidate."""
    return Failed(FailureKind.INTERNAL, Blame.HARNESS, message, spend)


def spend_of(sample: EvalSample | None) -> Spend:
    """Return a sample's tokens, and its dollars where Inspect knows the prices of all models."""
    if sample is None:
        return Spend(pulls=1)
    used = usage_in([usage.model_dump() for usage in sample.model_usage.values()])
    tokens = used["input_tokens"] + used["output_tokens"]
    return Spend(pulls=1, tokens=tokens, usd_nanos=nanos(used["usd"] or 0))


def reduce_epochs(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a pair: the mean of its epochs, or void if one of them is."""
    spend = replace(sum((one.spend for one in outcomes), Spend()), pulls=1)
    scored = [one for one in outcomes if isinstance(one, Scored)]
    if len(scored) == len(outcomes):
        value = fmean(one.value for one in scored)
        return replace(scored[0], value=value, spend=spend)
    failed = next(one for one in outcomes if not isinstance(one, Scored))
    return replace(failed, spend=spend)


async def earlier_samples(folder: str, spec: EvalSpec) -> AsyncIterator[EvalSample]:
    """Yield the scored samples that logs of the same task and model hold, the oldest log first.

    Raises ConfigError if a log has other samples, or the same in another order.
    """
    from inspect_ai.log import list_eval_logs_async, read_eval_log_async

    ids = [str(name) for name in spec.dataset.sample_ids or ()]
    for info in await list_eval_logs_async(
        folder,
        filter=lambda log: (
            log.eval.eval_id != spec.eval_id and likeness(log.eval) == likeness(spec)
        ),
        descending=False,
    ):
        log = await read_eval_log_async(info)
        if [str(name) for name in log.eval.dataset.sample_ids or ()] != ids:
            raise ConfigError(
                f"{info.name} has other samples, or another order of them; give the same samples "
                "and the same seed, or another folder"
            )
        for sample in log.samples or ():
            if sample.error is None and sample.scores:
                yield sample


def lifetime(sample: EvalSample) -> tuple[datetime, datetime]:
    """Return when a sample began and ended; raises ConfigError if its log does not say."""
    if sample.started_at is None or sample.completed_at is None:
        raise ConfigError(
            "its log does not say when samples began and ended; write it again with a current "
            "version of inspect-ai"
        )
    return datetime.fromisoformat(sample.started_at), datetime.fromisoformat(sample.completed_at)


def likeness(spec: EvalSpec) -> tuple[object, ...]:
    """Return what the logs of one candidate have in common."""
    return (spec.task, spec.model, spec.task_args, spec.solver, spec.solver_args)
