"""Every endpoint of the catalogue over the wire, and the command that lists them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from genai_prices.data_snapshot import get_snapshot

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Json, Message, Request
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.endpoints import Vendor, is_loopback
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.catalog_entry import ProviderEntry
from bestarm_agent.providers.prices import PriceOverride, proxy_prices
from bestarm_agent.providers.registry import create_provider
from tests.support.commands import invoke
from tests.support.fake_api import FakeApi, FakeModel, in_thread
from tests.support.provider_calls import reply
from tests.support.studies import run_all, study_file

KEY = "key-of-everybody-81c5"
LOCAL = {"lmstudio", "llamacpp", "ollama", "sglang", "tgi", "vllm", "litellm"}
# what the addresses of some depend on
VARIABLES = {
    "AZURE_OPENAI_BASE_URL": "https://name.openai.azure.com/openai/v1",
    "AWS_REGION": "us-west-2",
    "CLOUDFLARE_ACCOUNT_ID": "0123abcd",
    "DATABRICKS_HOST": "https://name.cloud.databricks.com",
    "GOOGLE_CLOUD_PROJECT": "project-1",
}
VALUES: Mapping[str, Json] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.1,
    "stop": ["."],
    "seed": 7,
    "presence_penalty": 0.1,
    "frequency_penalty": 0.1,
    "repetition_penalty": 1.1,
    "repeat_penalty": 1.1,
    "logit_bias": {"1": 1},
    "top_a": 0.1,
    "typical_p": 0.9,
    "length_penalty": 1.0,
    "min_tokens": 1,
    "verbosity": "low",
    "service_tier": "default",
    "prompt_cache_key": "k",
    "effort": "low",
    "thinking": {"type": "disabled"},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
}


def entry_of(name: str) -> ProviderEntry:
    return Catalog().get("providers", name).parse(ProviderEntry)


def build(name: str, **options: Json) -> ApiProvider:
    """A provider of the catalogue, with options of a study."""
    entry = entry_of(name)
    made = create_provider(name, {**entry.options, **options}, Path(), adapter=entry.adapter)
    assert isinstance(made, ApiProvider)
    return made


NAMES = [
    name
    for name in Catalog().names("providers")
    if entry_of(name).adapter in ("openai", "anthropic", "vllm")
]
assert len(NAMES) >= 25


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    with in_thread(FakeApi(key=KEY, models={"vendor/m": FakeModel(lenient=True)})) as server:
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_an_endpoint_gets_its_key_and_what_it_takes(
    name: str, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = entry_of(name)
    anthropic = entry.adapter == "anthropic"
    key = entry.options.get("key", f"{entry.adapter.upper()}_API_KEY")
    if key == "none":
        key = "SOME_KEY"  # the fake server wants one
    monkeypatch.setenv(str(key), KEY)
    provider = build(name, key=key, base_url=api.url if anthropic else api.openai_url)
    taken = provider.capabilities("vendor/m").params - {"max_tokens", "max_completion_tokens"}
    params = {**{param: VALUES[param] for param in taken}, "max_tokens": 9}
    found = reply(provider, Request("vendor/m", messages=(Message("user", "2+3"),), params=params))
    assert found.text == "2+3"
    sent = api.received[-1]
    assert isinstance(sent.body, dict)
    assert KEY in sent.headers["authorization"]
    usual = "max_tokens" if anthropic else "max_completion_tokens"
    assert sent.body[entry.options.get("max_tokens_field", usual)] == 9
    for refused in VALUES.keys() - taken:
        with pytest.raises(ConfigError, match=f"does not take the parameter `{refused}`"):
            provider.bound(Request("vendor/m", text="2+3", params={refused: VALUES[refused]}))


@pytest.mark.parametrize("name", NAMES)
def test_an_address_is_whole_and_safe(name: str) -> None:
    address = build(name, key="none")._endpoints[0].url
    url = urlsplit(address)
    assert is_loopback(address) == (name in LOCAL)
    assert url.scheme == ("http" if name in LOCAL else "https")
    assert not url.query
    assert "$" not in address
    vendors = {vendor.id for vendor in get_snapshot().providers}
    assert entry_of(name).options.get("vendor", "openai") in vendors
    assert name in entry_of(name).description


def test_an_address_that_depends_on_a_variable_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(ConfigError, match="variable AWS_REGION, which is not set"):
        build("bedrock")


def test_a_gateway_says_what_a_call_cost() -> None:
    with in_thread(FakeApi(key=None)) as api:
        api.more_headers = {"x-litellm-response-cost": "0.000415"}
        provider = build("litellm", base_url=api.openai_url, key="none")
        request = Request("m", messages=(Message("user", "2+3"),))
        assert reply(provider, request).usd_nanos == 415_000
        # a header that comes twice, of a proxy before a proxy
        for other, nanos in (("0.000415", 415_000), ("0.02", 20_000_000)):
            api.more_headers["X-LiteLLM-Response-Cost"] = other
            assert reply(provider, request).usd_nanos == nanos
        api.more_headers = {"x-litellm-response-cost": "None"}
        assert reply(provider, request).usd_nanos is None


PER_TOKEN = {"input_cost_per_token": 1e-6, "output_cost_per_token": 5e-6}


def listed(name: str, **info: object) -> dict[str, object]:
    return {"model_name": name, "litellm_params": {"model": "x/y"}, "model_info": info}


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApi]:
    monkeypatch.setenv("LITELLM_API_KEY", "sk-of-the-proxy-1")
    with in_thread(FakeApi(key="sk-of-the-proxy-1")) as api:
        api.more_headers = {"x-litellm-response-cost": "0.000415"}
        api.prices = [
            listed("m", **PER_TOKEN, cache_read_input_token_cost=None, mode="chat"),
            listed("m", **PER_TOKEN | {"output_cost_per_token": 8e-6}),
            listed("long", **PER_TOKEN, input_cost_per_token_above_200k_tokens=4e-6),
            listed("image", output_cost_per_image=0.04),
        ]
        yield api


@pytest.mark.parametrize(
    ("model", "dollars"),  # for a million tokens of prompt, and of answer
    [("m", (1, 8)), ("long", (4, 5)), ("image", None), ("unknown", None)],
)
def test_a_proxys_list_of_prices_bounds_its_calls(
    proxy: FakeApi, model: str, dollars: tuple[int, int] | None
) -> None:
    provider = build("litellm", base_url=proxy.openai_url)
    request = Request(model, messages=(Message("user", "2+3"),), params={"max_tokens": 10})
    bound = provider.bound(request)
    source = provider.capabilities(model).price_source
    if dollars is None:
        assert (bound.usd_nanos, source) == (0, None)
    else:
        of_prompt, of_answer = dollars
        assert bound.usd_nanos == 1000 * (of_prompt * (bound.tokens - 10) + of_answer * 10)
        assert source == "the proxy's list of prices"


def test_a_proxy_that_lists_nothing_leaves_prices_unknown(proxy: FakeApi) -> None:
    nowhere: dict[str, Json] = {"base_url": "http://127.0.0.1:9/v1"}
    for broken in ({"base_url": proxy.openai_url, "key": "none"}, nowhere):
        assert not build("litellm", **broken).capabilities("m").priced
    stated = build("litellm", **nowhere, price={"input": 1, "output": 2})
    assert stated.capabilities("m").price_source == "the option price"


MINE = """
name: mine
adapter: openai
options: {base_url: "http://127.0.0.1:9/v1", price: {input: 1, output: 2}}
models: {small-*: {price: {input: 3, output: 4}}, free-*: {price: {input: 0, output: 0}}}
"""


@pytest.mark.parametrize(("model", "study", "source"), [
    ("small-1", {}, "the catalogue's mine"),
    ("other", {}, "the catalogue's mine"),
    ("small-1", {"price": {"input": 9, "output": 9}}, "the option price"),
    ("free-1", {}, "free"),
])  # fmt: skip
def test_a_price_says_where_it_is_stated(model: str, study: dict[str, Any], source: str) -> None:
    options, _ = ProviderEntry.model_validate(yaml.safe_load(MINE)).resolve(study, {})
    provider = create_provider("mine", options, Path(), adapter="openai")
    assert provider.capabilities(model).price_source == source


def test_a_budget_in_dollars_holds_at_a_proxy_that_is_asked_off_the_event_loop(
    proxy: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_in: list[int] = []

    def noted(url: str, headers: Mapping[str, str]) -> dict[str, PriceOverride]:
        asked_in.append(threading.get_ident())
        return proxy_prices(url, headers)

    monkeypatch.setattr("bestarm_agent.providers.api.models.proxy_prices", noted)
    study = {
        "models": ["litellm/m", "litellm/long"],
        "prompts": [{"chat": [{"role": "user", "content": "{{ q }}"}]}],
        "params": {"max_tokens": 10},
        "dataset": {"path": "rows.jsonl", "target": "answer"},
        "scorer": "numeric",
        "budget": {"usd": 0.01},
        "providers": {"litellm": {"base_url": proxy.openai_url}},
    }
    rows = [{"q": f"{k}+1", "answer": str(k + 1)} for k in range(30)]
    standing = run_all(study_file(tmp_path, {"rows": rows}, **study))
    assert asked_in
    assert threading.get_ident() not in asked_in, "the loop ran meanwhile"
    assert standing.priced
    assert 415_000 <= standing.spent.usd_nanos <= 10_000_000


def test_the_command_lists_them_and_says_which_keys_are_set(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "x")
    monkeypatch.delenv("XAI_API_KEY", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    shown = invoke(capsys, "providers")
    assert shown.code == 0
    for name in Catalog().names("providers"):
        assert f"\n{name} " in shown.out
    assert "GROQ_API_KEY (set)" in shown.out
    assert "XAI_API_KEY (not set)" in shown.out


def test_the_command_shows_one(capsys: pytest.CaptureFixture[str]) -> None:
    shown = invoke(capsys, "providers", "cerebras")
    assert shown.code == 0
    assert "address: https://api.cerebras.ai/v1" in shown.out
    assert "without: presence_penalty, frequency_penalty, logit_bias" in shown.out
    wrong = invoke(capsys, "providers", "cerebra")
    assert (wrong.code, "cerebras" in wrong.err) == (2, True)


def test_the_command_checks_by_the_list_of_models(
    tmp_path: Path,
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "mine.yaml").write_text(
        f"name: mine\nadapter: openai\noptions: {{base_url: {api.openai_url}, key: MINE_KEY}}\n"
    )
    monkeypatch.setenv("BESTARM_CATALOG_DIRS", str(tmp_path))
    for key, code, said in (
        (None, 1, "set MINE_KEY"),
        (KEY, 0, "mine: 1 models: vendor/m"),
        ("another-key-123", 1, "did not accept the key"),
    ):
        if key is not None:
            monkeypatch.setenv("MINE_KEY", key)
        shown = invoke(capsys, "providers", "mine", "--check")
        assert (shown.code, bool(shown.err)) == (code, code == 1)
        assert said in shown.err + shown.out
        assert "another-key" not in shown.err + shown.out


@pytest.mark.parametrize(
    ("key", "named"), [(", key: none", "name its variable"), ("", "name OPENAI_API_KEY")]
)
def test_where_no_key_was_sent_none_is_called_wrong(
    tmp_path: Path,
    api: FakeApi,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    named: str,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "mine.yaml").write_text(
        f"name: mine\nadapter: openai\noptions: {{base_url: {api.openai_url}{key}}}\n"
    )
    monkeypatch.setenv("BESTARM_CATALOG_DIRS", str(tmp_path))
    shown = invoke(capsys, "providers", "mine", "--check")
    assert shown.code == 1
    assert f"wants a key (HTTP 401), and none was sent; {named} as the provider's" in " ".join(
        shown.err.split()
    )


def test_a_study_sets_the_address_that_is_asked(
    tmp_path: Path, api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    study = {"models": ["openai/m"], "prompts": [{"p": "{{ q }}"}], "scorer": "exact"}
    options = {"openai": {"base_url": api.openai_url, "key": "NO_SUCH_KEY"}}
    study |= {"providers": options, "dataset": "d.jsonl"}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    shown = invoke(capsys, "providers", "openai", "--check", folder=tmp_path)
    assert f"address: {api.openai_url}" in shown.out
    assert "NO_SUCH_KEY" in shown.err, "not OPENAI_API_KEY"
    assert shown.code == 1


class OwnApi(OpenAIProvider):
    """A plug-in's API."""

    vendor = Vendor("mine", "https://api.mine.example/v1", "MINE_URL", "MINE_KEY")


def test_files_of_other_programs_and_plug_ins_are_listed_for_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "providers").mkdir()
    for name, content in {
        "terraform.yaml": "resource: {aws_instance: {ami: x}}\n",
        "ansible.yml": "- hosts: all\n",
        "values.yaml": "adapter: no-such-adapter\nname: values\n",
        "own.yaml": f"name: own\nadapter: {__name__}:OwnApi\n",
    }.items():
        (tmp_path / "providers" / name).write_text(content)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("MINE_KEY", raising=False)
    shown = invoke(capsys, "providers", folder=tmp_path)
    assert shown.code == 0
    for name in ("terraform.yaml", "ansible.yml", "no-such-adapter"):
        assert any(name in line for line in shown.err.splitlines()), name
    (line,) = [line for line in shown.out.splitlines() if line.startswith("own ")]
    assert line.split(maxsplit=1)[1].split("  ")[0] == "MINE_KEY (not set)"
    assert "https://api.mine.example/v1" in line
    assert "\ngroq " in shown.out


LITELLM = find_spec("litellm")  # its table alone: pip install --no-deps litellm
TABLE = "model_prices_and_context_window_backup.json"
OF_LITELLM = {"anthropic": "anthropic", "google": "gemini", "minimax": "minimax", "xai": "xai"}
OF_LITELLM |= {"vertex": "vertex_ai-language-models", "groq": "groq", "mistral": "mistral"}


@pytest.mark.skipif(LITELLM is None, reason="LiteLLM's table is not installed")
@pytest.mark.parametrize("name", OF_LITELLM)
def test_the_deny_list_agrees_with_the_table_of_litellm(name: str) -> None:
    """Nothing is denied that LiteLLM says is taken, and what is ignored without a word is."""
    assert LITELLM is not None
    assert LITELLM.submodule_search_locations
    table = json.loads((Path(LITELLM.submodule_search_locations[0]) / TABLE).read_text())
    listed = {
        model.rpartition("/")[2]: facts
        for model, facts in table.items()
        if facts.get("litellm_provider") == OF_LITELLM[name] and facts.get("mode") == "chat"
    }
    assert listed
    entry = entry_of(name)
    options, _ = entry.resolve({}, {"key": "none"})
    provider = create_provider(name, options, Path(), adapter=entry.adapter)
    assert isinstance(provider, ApiProvider)
    wrong = list[str]()
    for model, facts in listed.items():
        able = provider.capabilities(model)
        if facts.get("supports_response_schema") and not able.response_schema:
            wrong.append(f"{model} takes a schema")
        if facts.get("supports_reasoning") and not able.takes("effort"):
            wrong.append(f"{model} takes an effort")
        samples = facts.get("supports_sampling_params") is not False
        if name in ("anthropic", "google", "vertex") and able.takes("temperature") != samples:
            wrong.append(f"{model} {'takes' if samples else 'has no'} temperature")
        if name == "anthropic":
            in_tokens = provider._model(model).facts.effort_tokens
            if bool(in_tokens) == bool(facts.get("supports_output_config")):
                wrong.append(f"{model}: effort in {'words' if in_tokens else 'tokens'}")
    assert not wrong


def test_a_proxy_that_is_down_is_told_as_down(tmp_path: Path) -> None:
    study = {
        "models": ["litellm/m", "litellm/n"],
        "prompts": [{"p": "{{ q }}"}],
        "dataset": {"path": "rows.jsonl", "target": "answer"},
        "scorer": "exact",
        "budget": {"usd": 0.01},
        "providers": {"litellm": {"base_url": "http://127.0.0.1:9/v1", "key": "none"}},
    }
    path = study_file(tmp_path, {"rows": [{"q": "1", "answer": "1"}]}, **study)
    with pytest.raises(
        ConfigError, match=r"http://127\.0\.0\.1:9/v1 does not answer .* start the proxy"
    ):
        run_all(path)
