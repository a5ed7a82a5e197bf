"""A key that a server repeats, plain or encoded, is kept nowhere."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from bestarm_agent.config.load import study_from
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.setup.options import STORE_FILE
from bestarm_agent.errors import ConfigError
from tests.support.api_cases import VENDORS, asked, provider_of
from tests.support.api_studies import study_of
from tests.support.commands import invoke
from tests.support.fake_api import Answer, Call, FakeApi, Fault, in_thread
from tests.support.provider_calls import error, reply

KEY = "sk-proj-aB3/dE+f9hIjKlMnOpQrStUvWxYz0123"
SIGNATURE = "sv2022x7Yw9/Qk+3LmZpT8"


def encodings(secret: str) -> list[str]:
    """A secret, URL-encoded, and in base64 after any number of other bytes."""
    content = secret.encode()
    return [
        secret,
        quote(secret, safe=""),
        "".join(f"%{byte:02X}" for byte in content),
        *(b64encode(b"x" * n + content).decode() for n in range(3)),
        *(urlsafe_b64encode(b"x" * n + content).decode() for n in range(3)),
    ]


def forms(secret: str) -> list[str]:
    """What a byte search looks for: the secret, and what no encoding of it lacks."""
    plain, *encoded = encodings(secret)
    return [plain, *encoded[:2], *(text[4:-4] for text in encoded[2:])]


REPEATED = " ".join(encodings(KEY))


def found_in(content: bytes, secret: str = KEY) -> list[str]:
    return [form for form in forms(secret) if form.encode() in content]


def script(call: Call) -> Fault | None:
    return Fault.BAD_REQUEST if "fail" in call.question or call.model == "gamma" else None


def telltale(answer: Answer) -> FakeApi:
    """A server that repeats the key wherever it can."""
    return FakeApi(
        answer,
        script,
        key=KEY,
        request_id=lambda n: f"req-{n}-{KEY}",
        detail=f"Rejected: {REPEATED}",
    )


@pytest.mark.parametrize("vendor", VENDORS)
def test_no_reply_and_no_message_holds_the_key(vendor: str) -> None:
    with in_thread(telltale(lambda _: f"the key is {REPEATED}.")) as api:
        provider = provider_of(vendor, api, api_key=KEY)
        found = reply(provider, asked("say it"))
        assert found.text.startswith("the key is [redacted]")
        assert not found_in(repr(found).encode())
        failed = error(provider, asked("fail"))
        assert "Rejected: [redacted]" in str(failed)
        assert not found_in(f"{failed!r} {failed}".encode())


@pytest.mark.parametrize("fault", [Fault.LONG_HEADER, Fault.REDIRECT, Fault.RESET, Fault.SILENT])
def test_no_message_holds_what_the_address_signs(fault: Fault) -> None:
    """The HTTP libraries repeat addresses in their errors."""
    with in_thread(FakeApi(script=lambda _: fault, key=KEY)) as api:
        query = quote(SIGNATURE, safe="")
        options: dict[str, Json] = {"base_url": f"{api.openai_url}/?sig={query}", "api_key": KEY}
        if fault is Fault.SILENT:
            options["base_url"] = f"http://127.0.0.1:9/v1/?sig={query}"  # nobody listens
        found = error(provider_of("openai", api, **options), asked("2+3"))
    assert not found_in(f"{found!r} {found}".encode(), SIGNATURE)


@pytest.mark.slow
def test_a_run_leaves_no_trace_of_a_repeated_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In store, report and exports, and on the screen."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with in_thread(telltale(lambda call: f"{call.question} {REPEATED}")) as server:
        changes = {"models": ["openai/alpha", "openai/gamma"], "budget": {"calls": 20}}
        path = study_of(tmp_path / "study", server, server, n_examples=8, changes=changes)
        done = [invoke(capsys, "select", "-c", path, "--set", f"output_dir={tmp_path / 'out'}")]
    page = tmp_path / "page.html"
    commands = (["show"], ["report", "--out", page], ["export", "--texts", "--format", "json"])
    store = ("--store", tmp_path / "out" / STORE_FILE)
    done += [invoke(capsys, *command, *store) for command in commands]
    screen = "".join(one.out + one.err for one in done)
    assert "[redacted]" in screen
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {page, tmp_path / "out" / STORE_FILE} <= set(files)
    for file in files:
        assert not found_in(file.read_bytes()), file
    assert not found_in(screen.encode())


def test_two_keys_are_both_removed() -> None:
    header = "tok_9f8e7d6c5b4a3210"
    with in_thread(FakeApi(answer=lambda _: f"{KEY} and {header}", key=KEY)) as api:
        provider = provider_of("openai", api, api_key=KEY, headers={"x-team": f"Token {header}"})
        assert reply(provider, asked("say it")).text == "[redacted] and [redacted]"


@pytest.mark.parametrize(
    ("url", "is_refused"),
    [
        ("https://x.example/v1?sig=abc123", True),
        ("https://x.example/v1?page=2&X-Goog-Signature=abc123", True),
        ("https://x.example/v1?sig=${SIG}&api-version=2026-01-01", False),
    ],
)
def test_a_signature_does_not_belong_in_a_study_file(url: str, is_refused: bool) -> None:
    config: dict[str, Json] = {
        "models": ["openai/m"],
        "prompts": [{"p": "{{ q }}"}],
        "dataset": "none.jsonl",
        "scorer": "exact",
        "providers": {"openai": {"base_url": url}},
    }
    with ExitStack() as stack:
        if is_refused:
            stack.enter_context(pytest.raises(ConfigError, match="holds a secret in its URL"))
        study_from(config, environ={"SIG": "abc123"})
