"""Studies over the API providers: what the catalogue knows, what is left out, what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent import Study
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import load_study, study_from
from bestarm_agent.config.yaml import parse_yaml
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.limits.clock import Clock
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.candidates import ReadyCandidates
from bestarm_agent.engine.setup.options import STORE_FILE, Options
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.engine.setup.plan import make_plan
from bestarm_agent.engine.setup.providers import ProviderSet
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.api.options import ApiOptions
from bestarm_agent.providers.api.protocol import USUAL
from bestarm_agent.providers.catalog_entry import ProviderEntry
from bestarm_agent.study import Archive
from tests.support.api_studies import (
    ANTHROPIC_MODELS,
    KEYS,
    OPENAI_MODELS,
    FastClock,
    study_of,
)
from tests.support.fake_api import Call, FakeApi, FakeModel, Fault, in_thread, quality
from tests.support.studies import run_all, run_study, store_of


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


def vendors(key: bool = True, **of_openai: Any) -> tuple[FakeApi, FakeApi]:  # noqa: ANN401
    """A server for the models of each vendor."""
    one, other = KEYS.values() if key else (None, None)
    return (
        FakeApi(answer=quality(OPENAI_MODELS), key=one, **of_openai),
        FakeApi(answer=quality(ANTHROPIC_MODELS), key=other),
    )


@pytest.fixture
def servers() -> Iterator[tuple[FakeApi, FakeApi]]:
    one, other = vendors()
    with in_thread(one), in_thread(other):
        yield one, other


def provider_set(models: list[Any], providers: Mapping[str, Json] | None = None) -> ProviderSet:
    config: dict[str, Json] = {
        "models": models,
        "prompts": [{"p": "{{ q }}"}],
        "dataset": "none.jsonl",
        "scorer": "exact",
        "providers": dict(providers or {}),
    }
    return ProviderSet(study_from(config), Catalog())


@pytest.mark.slow
def test_an_axis_that_a_model_lacks_is_collapsed_told_and_never_sent(
    tmp_path: Path, servers: tuple[FakeApi, FakeApi]
) -> None:
    changes = {"params": {"temperature": [0, 0.5, 1.0], "max_tokens": 16}, "budget": {"usd": 1}}
    standing, study = run_study(study_of(tmp_path, *servers, n_examples=3, changes=changes))
    assert len(standing.rows) == 3 * 3 + 3
    told = "delta does not take `temperature`: 3 combinations are 1 candidate (delta)"
    assert told in study.notices
    openai, anthropic = servers
    assert {row.body["temperature"] for row in openai.received} == {0, 0.5, 1}
    assert len(anthropic.received) == 3 * 3
    assert all("temperature" not in row.body for row in anthropic.received)


def test_what_a_server_ignores_is_told_at_the_end(tmp_path: Path) -> None:
    with in_thread(FakeApi(answer=lambda _: "x" * 200, key=None)) as one:
        changes = {
            "models": ["openai/talker"],
            "params": {},
            "providers": {"openai": {"base_url": one.openai_url, "default_max_tokens": 8}},
        }
        _, study = run_study(study_of(tmp_path, one, one, n_examples=4, changes=changes))
    (told,) = study.remarks()
    assert told == (
        "openai/talker was cut off at default_max_tokens; raise it, or set max_tokens (4 replies)"
    )
    archive = Archive(tmp_path / "runs" / STORE_FILE)
    asyncio.run(archive.write_report("latest", tmp_path / "later.html"))
    assert told in (tmp_path / "later.html").read_text(), "the report says it, later too"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"models": [{"model": "anthropic/delta", "params": {"temperature": [0, 1]}}]},
            "does not take the parameter `temperature`",
        ),
        (
            {
                "models": ["openai/alpha"],
                "providers": {
                    "openai": {"base_url": "https://api.example.com/v1", "key": "NO_KEY"}
                },
            },
            "NO_KEY is not set; set it",
        ),
    ],
)
def test_what_cannot_be_asked_stops_a_study_before_it_begins(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    gone = FakeApi(port=9)
    path = study_of(tmp_path, gone, gone, n_examples=3, changes=changes)
    with pytest.raises(ConfigError, match=message):
        ReadyCandidates(assemble(load_study(path, {}), Catalog(path.parent)), Clock())


def told_to_each(standing: Standing) -> dict[str, int]:
    return {row.candidate.label: row.n for row in standing.rows}


def test_a_bad_key_stops_a_run_before_more_is_paid(
    tmp_path: Path, servers: tuple[FakeApi, FakeApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-the-right-one")
    servers[1].latency = lambda _: 1.0  # the other vendor's answers come after the refusal
    standing = run_all(study_of(tmp_path, *servers, n_examples=10))
    told = told_to_each(standing)
    assert standing.end == "failures"
    assert max(told[name] for name in ANTHROPIC_MODELS) <= 1
    assert [told[name] for name in OPENAI_MODELS] == [0, 0, 0]


@pytest.mark.slow
def test_a_run_without_credit_goes_on_once_there_is_some(tmp_path: Path) -> None:
    credit = [30]

    def script(call: Call) -> Fault | None:
        credit[0] -= 1
        return None if credit[0] >= 0 else Fault.QUOTA

    one, other = vendors(key=False, script=script)
    with in_thread(one), in_thread(other):
        path = study_of(tmp_path, one, other, n_examples=20)
        standing = run_all(path)
        why = {row.candidate.label: row.problem for row in standing.rows if row.problem}
        assert set(why) == set(OPENAI_MODELS)
        assert all("You exceeded your quota" in text for text in why.values())
        assert standing.told == 30 + 60, "what was in flight or could not be asked is not told"
        credit[0] = 1000

        async def resumed() -> Standing:
            async with Study.resume(options=Options(store=store_of(path))) as study:
                return await study.run()

        standing = asyncio.run(resumed())
    assert standing.told == 6 * 20
    assert set(told_to_each(standing).values()) == {20}


@pytest.mark.slow
def test_calls_without_an_end_are_cut_off_booked_whole_and_sent_again(tmp_path: Path) -> None:
    # the first call is answered: without an answer the model would be left out
    faults = iter((None, Fault.SILENT, Fault.SLOW_DRIP))
    api = FakeApi(answer=quality({"alpha": 1.0}), key=None, script=lambda _: next(faults, None))
    changes = {
        "models": ["openai/alpha"],
        "limits": {"timeout_seconds": 1.0, "max_attempts": 8},
        "budget": {"usd": 1},
    }
    with in_thread(api) as one:
        path = study_of(tmp_path, one, one, n_examples=3, changes=changes)
        standing = run_all(path, options=Options(clock=FastClock(30)))
    assert standing.rows[0].estimate == 1.0
    assert {row.fault for row in one.received} == {Fault.SILENT, Fault.SLOW_DRIP, None}
    assert standing.spent.tokens > 2 * 256, "two upper bounds are among what is booked"


def test_models_of_one_provider_share_it_whatever_is_known_of_each() -> None:
    price = {"price": {"input": 1, "output": 2}}
    providers = provider_set(
        [
            {"model": "openai/one", "options": {**price, "key": "none"}},
            {"model": "openai/two", "options": {"key": "none", "api": "responses"}},
            {"model": "openai/far", "options": {"key": "none", "base_url": "http://127.0.0.1:9"}},
        ]
    )
    assert providers.of("openai", "one") is providers.of("openai", "two")
    assert providers.of("openai", "one") is not providers.of("openai", "far")
    assert providers.of("openai", "one").capabilities("one").priced
    assert not providers.of("openai", "two").capabilities("two").priced
    assert "stop" in providers.params("openai", "one")
    assert "stop" not in providers.params("openai", "two"), "responses have no stop texts"


def test_one_model_may_be_known_in_two_ways() -> None:
    providers = provider_set([{"model": "openai/one", "options": {"key": "none", "context": 9}}])
    candidate = providers.of("openai", "one")
    judge = providers.of("openai", "one", {"key": "none", "without": ["temperature"]})
    assert judge is not candidate
    assert "temperature" not in judge.capabilities("one").params
    assert "temperature" in candidate.capabilities("one").params


def test_what_the_catalogue_knows_of_models_comes_before_its_defaults() -> None:
    warm = ["openai/gpt-4o", "openai/gpt-5-chat-latest", "openai/gpt-5.1"]
    warm += ["anthropic/claude-3-haiku", "anthropic/claude-sonnet-4-6"]
    cold = ["openai/gpt-5-mini", "openai/o3", "openai/gpt-5"]
    cold += ["anthropic/claude-opus-4-7", "anthropic/claude-sonnet-5-5"]
    providers = provider_set([*warm, *cold])
    takes = {
        model for model in (*warm, *cold) if "temperature" in providers.params(*model.split("/"))
    }
    assert takes == set(warm)


def test_a_study_has_the_last_word_about_models() -> None:
    providers = provider_set(
        ["openai/gpt-5-mini", {"model": "openai/gpt-5-pro", "options": {"without": ["seed"]}}],
        {"openai": {"without": []}},
    )
    assert {"temperature", "seed"} < providers.params("openai", "gpt-5-mini")
    assert providers.params("openai", "gpt-5-mini") - providers.params("openai", "gpt-5-pro") == {
        "seed"
    }


def test_a_compatible_endpoint_of_ones_own_works_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_OWN_KEY", "secret-of-mine")
    models = {"open/m": FakeModel()}
    api = FakeApi(answer=quality({"open/m": 1.0}), key="secret-of-mine", models=models)
    with in_thread(api) as one:
        (tmp_path / "providers").mkdir()
        (tmp_path / "providers" / "mine.yaml").write_text(
            f"name: mine\nadapter: openai\noptions:\n  base_url: {one.openai_url}\n"
            "  key: MY_OWN_KEY\n  max_tokens_field: max_tokens\n"
            "models:\n  open/*: {price: {input: 1, output: 2}, without: [seed]}\n"
        )
        changes = {"models": ["mine/open/m"], "budget": {"usd": 1}, "providers": {}}
        standing = run_all(study_of(tmp_path, one, one, n_examples=4, changes=changes))
    assert standing.rows[0].estimate == 1.0
    assert all(row.body["max_tokens"] == 16 for row in one.received)


DOCUMENT = (Path(__file__).parents[3] / "docs" / "providers.md").read_text()


def test_the_documentation_names_every_option_and_parameter() -> None:
    names = {*ApiOptions.model_fields} - {"models"}
    names |= USUAL - {"max_completion_tokens"}
    missing = {name for name in names if f"`{name}" not in DOCUMENT}
    assert not missing


def test_the_documentations_catalogue_entry_is_one() -> None:
    text = DOCUMENT.split("```yaml\nname: mine", 1)[1].split("```", 1)[0]
    data, _ = parse_yaml(f"name: mine{text}")
    entry = ProviderEntry.model_validate(data)
    assert entry.models["think-*"].without == ("temperature", "top_p")
    OpenAIProvider.create("mine", {**entry.options, "models": {}}, Path())


def test_the_flex_tier_costs_half_and_is_reserved_in_full(tmp_path: Path) -> None:
    api = FakeApi(answer=quality({"tiered": 0.8}), key=None)
    with in_thread(api) as one:
        price: Json = {"input": 1, "output": 5, "tiers": {"flex": 0.5}}
        changes = {
            "models": ["openai/tiered"],
            "params": {"max_tokens": 16, "service_tier": ["default", "flex"]},
            "providers": {"openai": {"base_url": one.openai_url, "price": price}},
        }
        path = study_of(tmp_path, one, one, n_examples=20, changes=changes)
        half, full = sorted(row.spend.usd_nanos for row in run_all(path).rows)
    tiers = [row.body["service_tier"] for row in one.received]
    assert tiers.count("flex") == tiers.count("default") == 20
    assert 0 < half == full / 2, "by the tier that each reply names"
    plans = []
    for tier in ("default", "flex"):
        overrides = {"params.service_tier": tier}
        plans.append(make_plan(assemble(load_study(path, overrides), Catalog())))
    assert plans[0].expected.usd_nanos == plans[1].expected.usd_nanos, "it may be served in full"


def test_a_server_that_ignores_max_tokens_does_not_run_past_the_cap(tmp_path: Path) -> None:
    """Few calls are sent before an answer, and later ones reserve what was seen."""
    boundless = {"talker": FakeModel(ignores=frozenset({"max_tokens"}))}
    api = FakeApi(lambda _: "x" * 20_000, models=boundless, key=None, latency=lambda _: 0.05)
    with in_thread(api) as one:
        options: dict[str, Json] = {"base_url": one.openai_url, "price": {"input": 1, "output": 5}}
        changes = {
            "models": ["openai/talker"],
            "params": {"max_tokens": 16},
            "providers": {"openai": options},
            "budget": {"usd": 0.15},
        }
        standing, study = run_study(study_of(tmp_path, one, one, n_examples=100, changes=changes))
    spent, n_calls = standing.spent.usd_nanos / 1e9, len(one.received)
    assert 4 <= n_calls <= 6, "four before the first answer, each of 2.5 cents; then what fits"
    assert spent == pytest.approx(n_calls * 0.025, abs=0.001)
    assert spent <= 0.15
    assert any("generated more than max_tokens" in remark for remark in study.remarks())
