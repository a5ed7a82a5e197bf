"""Sends a run's pairs as OTLP traces, with OpenTelemetry's attributes of generative AI.

Names are those of the semantic conventions `gen_ai` (in development, as of 1.45): a span
`chat MODEL` for each pair, with an event `gen_ai.evaluation.result`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.interop.stored_runs import scorer_of, usage_of
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.score_export_rows import Record, Texts, records

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_BATCH = 500
_PARAMS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "frequency_penalty")


def send_traces(state: RunState, texts: Iterable[Texts] | None, endpoint: str) -> int:
    """Send a run's pairs that have an outcome, and return their number.

    Times are seconds of work on the run after its beginning: pauses between sessions are left out.

    Args:
        state: the run.
        texts: one per ask, to send prompts, answers and verdicts too; None sends none.
        endpoint: base URL of a collector, such as "http://localhost:4318". Headers, for keys, are
            those of OTEL_EXPORTER_OTLP_HEADERS.

    Raises:
        ConfigError: the extra `otel` is not installed, or the address is none of the web.
        StoreError: the collector did not take them.
    """
    base = endpoint.rstrip("/").removesuffix("/v1/traces")
    if not base.startswith(("http://", "https://")):
        raise ConfigError(
            f"traces are sent over HTTP, and the endpoint is {endpoint!r}; name an address such as "
            f"http://localhost:4318"
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError:
        raise ConfigError("sending traces needs: pip install 'bestarm-agent[otel]'") from None
    exporter: Any = OTLPSpanExporter(endpoint=f"{base}/v1/traces")
    spans = _spans(state, texts)
    number = -1  # the last one is the run's
    try:
        while batch := list(islice(spans, _BATCH)):
            if exporter.export(batch) is not SpanExportResult.SUCCESS:
                raise StoreError(
                    f"{endpoint} did not take the traces; check that a collector listens there"
                )
            number += len(batch)
    finally:
        exporter.shutdown()
    return number


def _spans(state: RunState, texts: Iterable[Texts] | None) -> Iterator[ReadableSpan]:
    """Yield a span for each pair with an outcome, then that of the run, which holds them."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

    started = state.started
    assert started is not None  # the log of a run begins with it
    resource = Resource.create({"service.name": "bestarm-agent"})
    tracer = TracerProvider(resource=resource, shutdown_on_exit=False).get_tracer(
        "bestarm_agent", started.version
    )
    began = datetime.fromisoformat(started.at).timestamp()
    ends = dict(zip(state.told, (began + state.told.at).tolist(), strict=True))
    run: Any = tracer.start_span(f"run {started.name}", start_time=_nanos(began))
    for one in records(state, texts=texts):
        if one.seq not in ends:
            continue
        end = _nanos(ends[one.seq])
        span: Any = tracer.start_span(
            f"chat {one.model}",
            context=set_span_in_context(run),
            kind=SpanKind.CLIENT,
            start_time=end - _nanos(one.seconds or 0.0),
            attributes=_attributes(state, one),
        )
        if one.score is not None:
            result = _result(one, scorer_of(started))
            span.add_event("gen_ai.evaluation.result", result, timestamp=end)
        if one.failure is not None:
            span.set_status(StatusCode.ERROR, one.message)
        span.end(end)
        yield span
    run.end(_nanos(max(ends.values(), default=began)))
    yield run


def _nanos(seconds: float) -> int:
    return round(seconds * 1e9)


def _attributes(state: RunState, one: Record) -> dict[str, Any]:
    params = state.candidates[state.asks.pair(one.seq)[0]].params
    usage = usage_of(state, one)
    return _known(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": one.provider,
            "gen_ai.request.model": one.model,
            **{f"gen_ai.request.{name}": params.get(name) for name in _PARAMS},
            "gen_ai.usage.input_tokens": usage and usage.input,
            "gen_ai.usage.output_tokens": usage and usage.output,
            "gen_ai.input.messages": _messages("user", one.prompt),
            "gen_ai.output.messages": _messages("assistant", one.reply),
            "error.type": one.failure,
            "bestarm.candidate": one.candidate,
            "bestarm.example": one.example,
            "bestarm.cost_usd": one.cost,
        }
    )


def _result(one: Record, scorer: str) -> dict[str, Any]:
    return _known(
        {
            "gen_ai.evaluation.name": scorer,
            "gen_ai.evaluation.score.value": one.score,
            "gen_ai.evaluation.explanation": one.verdicts,
        }
    )


def _messages(role: str, text: str | None) -> str | None:
    """Return a message as the conventions have it, in JSON; a prompt's messages are one text."""
    if text is None:
        return None
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
