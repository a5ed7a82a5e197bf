"""How far a request got: what never left the machine costs nothing, and the message says why."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Reply
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.failures import failed_spend
from tests.support.api_cases import PRICE, asked
from tests.support.provider_calls import attempt

Handle: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE")
ANSWER = {
    "choices": [{"finish_reason": "stop", "message": {"content": "fine"}}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
}


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@asynccontextmanager
async def serving(handle: Handle, **how: Any) -> AsyncIterator[int]:  # noqa: ANN401
    """Serve connections on a port of the loopback interface."""

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handle(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            writer.close()

    server = await asyncio.start_server(closing, "127.0.0.1", 0, **how)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def read_request(reader: asyncio.StreamReader) -> str:
    """Read one request; return its head."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = head.lower().splitlines()
    length = next((int(one.split(":")[1]) for one in lines if one.startswith("content-length")), 0)
    await reader.readexactly(length)
    return head


def answered(headers: str = "") -> bytes:
    body = json.dumps(ANSWER).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{headers}\r\n".encode() + body


async def call(url: str, n: int = 1) -> list[Reply | ProviderError]:
    options = {"base_url": url, "api_key": "none", "price": PRICE}
    async with OpenAIProvider.create("openai", options, Path()) as provider:
        return [await attempt(provider, asked(f"{i}+1")) for i in range(n)]


def unsent(found: Reply | ProviderError, *, permanent: bool) -> str:
    """Check that a call was not sent and costs nothing; return its message."""
    assert isinstance(found, ProviderError), found
    assert (found.kind, found.transient, found.fatal) == (
        FailureKind.UNREACHABLE,
        not permanent,
        permanent,
    )
    assert failed_spend(found, Spend(calls=1, tokens=500, usd_nanos=70)) == Spend(calls=1)
    assert "nothing was sent" in str(found)
    return str(found)


@pytest.mark.parametrize(("status", "permanent"), [(407, True), (403, True), (502, False)])
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "ALL_PROXY"])
async def test_a_proxy_that_refuses_the_tunnel(
    monkeypatch: pytest.MonkeyPatch, variable: str, status: int, permanent: bool
) -> None:
    heads: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_request(reader))
        writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    async with serving(refuse) as port:
        monkeypatch.setenv(variable, f"http://me:secret%40word@127.0.0.1:{port}")
        (found,) = await call("https://api.example.com/v1")
    said = unsent(found, permanent=permanent)
    assert f"the proxy of {variable} answered {status}" in said
    assert "NO_PROXY" in said
    assert "secret" not in said
    assert heads[0].startswith("CONNECT api.example.com:443")
    assert "Basic bWU6c2VjcmV0QHdvcmQ=" in heads[0], "name and password, decoded"


@pytest.mark.parametrize("named", ["proxy:3128", "socks5://proxy:1080", "http://", "http://h:x"])
@pytest.mark.parametrize("variable", ["https_proxy", "ALL_PROXY"])
async def test_a_variable_that_names_no_proxy(
    monkeypatch: pytest.MonkeyPatch, variable: str, named: str
) -> None:
    monkeypatch.setenv(variable, named)
    (found,) = await call("https://api.example.com/v1")
    assert f"{variable} must name a proxy as http://HOST:PORT" in unsent(found, permanent=True)


async def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    (found,) = await call("https://api.example.com/v1")
    assert "this is the proxy of HTTPS_PROXY" in unsent(found, permanent=False)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY", "all_proxy"])
async def test_calls_go_through_the_proxy_unless_the_host_is_in_no_proxy(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    by_proxy: list[str] = []
    direct: list[str] = []

    def noting(heads: list[str]) -> Handle:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await read_request(reader))
            writer.write(answered("Connection: close\r\n"))
            await writer.drain()

        return answer

    async with serving(noting(by_proxy)) as proxy, serving(noting(direct)) as port:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy}")
        url = f"http://127.0.0.1:{port}/v1"
        assert isinstance((await call(url))[0], Reply)
        assert (len(by_proxy), len(direct)) == (1, 0)
        assert by_proxy[0].startswith(f"POST {url}/chat/completions")
        monkeypatch.setenv("NO_PROXY", "example.com,127.0.0.1")
        assert isinstance((await call(url))[0], Reply)
        assert (len(by_proxy), len(direct)) == (1, 1)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that nobody trusts, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl")
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(["openssl", *made], check=True, capture_output=True)
    return cert, key


async def test_a_certificate_that_is_not_trusted_names_ssl_cert_file(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secured.load_cert_chain(*certificate)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answered())
        await writer.drain()

    async with serving(answer, ssl=secured) as port:
        (found,) = await call(f"https://127.0.0.1:{port}/v1")
        assert "set SSL_CERT_FILE" in unsent(found, permanent=True)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert isinstance((await call(f"https://127.0.0.1:{port}/v1"))[0], Reply)


async def test_http_asked_for_https_is_not_sent() -> None:
    async def confused(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with serving(confused) as port:
        (found,) = await call(f"https://127.0.0.1:{port}/v1")
    unsent(found, permanent=True)


@pytest.mark.parametrize(
    ("number", "permanent"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)]
)
async def test_a_name_that_does_not_exist_is_no_outage(
    monkeypatch: pytest.MonkeyPatch, number: int, permanent: bool
) -> None:
    async def looked_up(*_args: object, **_more: object) -> None:
        raise socket.gaierror(number, "not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", looked_up)
    (found,) = await call("https://api.exmaple.com/v1")
    said = unsent(found, permanent=permanent)
    assert ("correct base_url" in said) == permanent


async def test_headers_are_read_as_large_as_the_sdks_read_them() -> None:
    many = "".join(f"x-{i}: {i}\r\n" for i in range(200))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(answered(f"content-security-policy: {'x' * 60_000}\r\n{many}"))
            await writer.drain()

    async with serving(answer) as port:
        found = await call(f"http://127.0.0.1:{port}/v1", 2)
    assert [isinstance(one, Reply) and one.text for one in found] == ["fine", "fine"]


async def test_a_repeat_never_uses_a_kept_connection() -> None:
    """A server that resets every connection at its second request answers all repeats."""
    resets = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal resets
        await read_request(reader)
        writer.write(answered())
        await writer.drain()
        await read_request(reader)
        resets += 1
        writer.transport.abort()

    async with serving(once) as port:
        options = {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "none", "price": PRICE}
        async with OpenAIProvider.create("openai", options, Path()) as provider:
            for i in range(10):  # another call's connection is idle whenever one is repeated
                assert isinstance(await provider.generate(asked(f"{i}+2")), Reply)
                first = await attempt(provider, asked(f"{i}+1"))
                assert isinstance(first, ProviderError)
                assert first.kind is FailureKind.CONNECTION
                assert isinstance(await provider.generate(asked(f"{i}+3")), Reply)
                assert isinstance(await provider.generate(asked(f"{i}+1")), Reply)
                lost = await attempt(provider, asked(f"{i}+4"))
                assert isinstance(lost, ProviderError)
    assert resets == 20
