"""A run as OTLP traces, received by a server on the loopback interface."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.commands import invoke

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs the extra `otel`")


class Collector(HTTPServer):
    """Keeps the spans that it is sent; answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[Any] = []
        self.paths: set[str] = set()
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.paths.add(self.path)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def values(attributes: Any) -> dict[str, Any]:  # noqa: ANN401 - made by protobuf
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def test_a_span_for_each_pair_with_its_score(
    folder: Path, collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    done = invoke(capsys, "export", "--format", "otlp", "--endpoint", collector.url, folder=folder)
    assert done.code == 0, done.err
    *pairs, run = collector.spans
    assert done.out == f"sent: {len(pairs)} pairs to {collector.url}\n"
    assert collector.paths == {"/v1/traces"}
    assert {span.parent_span_id for span in pairs} == {run.span_id}
    assert {span.trace_id for span in pairs} == {run.trace_id}
    assert all(run.start_time_unix_nano <= span.end_time_unix_nano for span in pairs)
    assert max(span.end_time_unix_nano for span in pairs) == run.end_time_unix_nano

    found = {(a["bestarm.candidate"], a["bestarm.example"]): a for a in attributes_of(pairs)}
    one = found["c1", "e0"]
    assert (one["gen_ai.operation.name"], one["gen_ai.request.model"]) == ("chat", "c1")
    assert (one["gen_ai.usage.input_tokens"], one["gen_ai.usage.output_tokens"]) == (5, 2)
    assert found["c0", "e1"]["error.type"]
    assert not any("messages" in name for a in found.values() for name in a)
    scored = [span for span in pairs if span.events]
    assert len(scored) == len(pairs) - 1, "a void pair has no result"
    assert {event.name for span in scored for event in span.events} == {"gen_ai.evaluation.result"}
    result = values(scored[0].events[0].attributes)
    assert result["gen_ai.evaluation.name"] == "recorded"
    assert 0 <= result["gen_ai.evaluation.score.value"] <= 1


def attributes_of(spans: list[Any]) -> list[dict[str, Any]]:
    return [values(span.attributes) for span in spans]


def test_prompts_and_answers_only_if_asked_for(
    folder: Path, collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--format", "otlp", "--texts", "--endpoint", f"{collector.url}/v1/traces/")
    assert invoke(capsys, "export", *arguments, folder=folder).code == 0
    said = [a.get("gen_ai.output.messages") for a in attributes_of(collector.spans[:-1])]
    (message,) = {text for text in said if text}
    assert json.loads(message) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "so be it"}]}
    ]


def test_a_missing_endpoint_a_refusal_and_the_extra_are_named(
    folder: Path,
    collector: Collector,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def said(*arguments: str, fmt: str = "otlp") -> str:
        done = invoke(capsys, "export", "--format", fmt, *arguments, folder=folder)
        assert done.code != 0
        return " ".join(done.err.split())

    assert "--format otlp --endpoint http://localhost:4318" in said()
    assert "name both, the format and the address" in said("--endpoint", "x", fmt="csv")
    for wrong in ("", "localhost:4318", "ftp://x"):
        assert f"the endpoint is {wrong!r}; name an address" in said("--endpoint", wrong)
    collector.status = 400
    assert "did not take the traces" in said("--endpoint", collector.url)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    assert "pip install 'bestarm-agent[otel]'" in said("--endpoint", collector.url)
