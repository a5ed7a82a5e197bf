"""The hf provider on real, if tiny, models: the contract, and the traps of tokenizers."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from bestarm_agent.domain.spend import Usage
from bestarm_agent.domain.values import Finish, Json, Message, Reply, Request
from bestarm_agent.errors import Blame, ConfigError, FailureKind, ProviderError
from bestarm_agent.providers.hf.folder import ModelFolder
from bestarm_agent.providers.hf.generate import (
    BatchEngine,
    HfCall,
    Prompt,
    load_engine,
    read_sampling,
)
from bestarm_agent.providers.hf.provider import HfProvider
from bestarm_agent.providers.hf.tokenizer import TextCodec, load_tokenizer
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite, answer_all
from tests.support.provider_calls import answers, attempt, error, replies, reply

if TYPE_CHECKING:
    import torch

GREEDY: Mapping[str, Json] = {"temperature": 0, "max_tokens": 8}
DRAWN: Mapping[str, Json] = {"temperature": 1, "max_tokens": 8}
OPTIONS: Mapping[str, Json] = {"threads": 1, "completion": True}
PROMPTS = ("1+2=", "what is twelve and thirteen?", "a", "12+34=", "Q: 3\nA:")


def plain(model: str, text: str, params: Mapping[str, Json] = GREEDY) -> Request:
    return Request(model=model, text=text, params=params)


def chat(model: str, *contents: str, role: str = "user", **params: Json) -> Request:
    messages = tuple(Message(role, content) for content in contents)
    return Request(model=model, messages=messages, params={**GREEDY, **params})


def provider_of(base: Path, **options: Json) -> HfProvider:
    return HfProvider.create("hf", {**OPTIONS, **options}, base)


def answer(base: Path, *requests: Request, **options: Json) -> list[Reply]:
    """The answers to requests that come at once."""

    async def main() -> list[Reply]:
        async with provider_of(base, **options) as provider:
            return await answer_all(provider, requests)

    return asyncio.run(main())


class TestConformance(ProviderSuite):
    adapters = ("hf",)

    @pytest.fixture
    def case(self, models: Path) -> ProviderCase:
        return ProviderCase(
            build=lambda: provider_of(models, usd_per_gpu_hour=2, max_gpu_seconds=60),
            requests=[
                plain("llama", "12+34="),
                plain("llama", "a somewhat longer prompt, é∑"),
                plain("gpt2", "12+34=", DRAWN),
                plain("gpt2", ""),
                chat("llama", "1+2"),
                chat("gpt2", "1+2", "and 3?", stop="x", temperature=1.0),
                plain("counting", "a", {"temperature": 0}),
            ],
            failing=[
                plain("llama", "x" * 100),
                plain("llama", "x", {"temperature": -1}),
                plain("llama", "x", {"temprature": 1}),
                chat("no-template", "1+2"),
                chat("llama", "be terse", role="system"),
                plain("absent", "x"),
            ],
            nonsense=["absent", "../nowhere", "a/b/c", ""],
        )


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_a_reply_does_not_depend_on_its_neighbours(models: Path, model: str) -> None:
    """So prompts are padded on the left and masked, whatever the tokenizer would do."""
    for params in (GREEDY, DRAWN):
        requests = [plain(model, text, params) for text in PROMPTS]
        alone = replies(provider_of(models), *requests)  # one after the other
        together = answer(models, *requests)
        assert [(one.text, one.usage) for one in together] == [
            (one.text, one.usage) for one in alone
        ]
        assert len({one.text for one in alone}) > 1


def test_tokenizers_that_differ_only_in_padding_make_no_difference(models: Path) -> None:
    texts = [
        [one.text for one in answer(models, *(plain(model, text) for text in PROMPTS))]
        for model in ("llama", "no-pad", "right-padding", "token-types")
    ]
    assert texts[0] == texts[1] == texts[2] == texts[3]


def test_a_rendered_chat_gets_no_second_bos(models: Path) -> None:
    """`<bos><|user|>1+2<|end|><|assistant|>` is 7 tokens; one more would be another <bos>."""
    said, spelt_out, short, written = answer(
        models,
        chat("llama", "1+2"),
        plain("llama", "<bos><|user|>1+2<|end|><|assistant|>"),
        plain("llama", "1+2"),
        plain("llama", "<bos>1+2"),
    )
    assert (said.usage.input, short.usage.input) == (7, 4)
    assert (written.usage, written.text) == (short.usage, short.text)
    assert spelt_out.text == said.text


def test_a_plain_prompt_is_a_message_where_the_model_has_a_chat_template(models: Path) -> None:
    """Instruct models ramble when they are asked to complete; base models know nothing else."""
    asked = (plain("llama", "1+2"), chat("llama", "1+2"), plain("no-template", "1+2"))
    as_message, message, completed = answer(models, *asked, completion=False)
    assert (as_message.text, as_message.usage) == (message.text, message.usage)
    assert as_message.usage.input == 7
    assert completed.usage.input == 3
    by_default, opted_out = (provider_of(models, completion=is_on) for is_on in (False, True))
    assert by_default.fingerprint("llama") != opted_out.fingerprint("llama")
    assert by_default.fingerprint("no-template") == opted_out.fingerprint("no-template")
    bounds = [one.bound(plain("llama", "1+2")).tokens for one in (by_default, opted_out)]
    assert bounds[0] > bounds[1]


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
def test_weights_are_loaded_as_the_checkpoint_has_them(
    models: Path, tmp_path: Path, stored: str
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    folder = tmp_path / "m"
    shutil.copytree(models / "counting", folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, stored))
    model.save_pretrained(folder)
    shown = ModelFolder(folder, "m")
    assert shown.dtype == stored
    config = json.loads((folder / "config.json").read_text())
    for key in ("dtype", "torch_dtype"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config))
    assert ModelFolder(folder, "m").dtype == stored, "else the weights say it"
    provider = provider_of(tmp_path)
    size = 4 if stored == "float32" else 2
    assert provider._n_bytes(ModelFolder(folder, "m")) == size * shown.n_parameters
    (said,) = answer(tmp_path, plain("m", "a"))
    assert said.text == "bcdefghi"


def test_eos_ends_a_reply_and_counts_as_output_and_padding_does_not(models: Path) -> None:
    asks = [plain("counting", text, {**GREEDY, "max_tokens": 4}) for text in ("6", "5", "x")]
    short, cut_short, endless = answer(models, *asks)
    assert (short.text, short.finish, short.usage.output) == ("789", Finish.STOP, 4)
    assert (cut_short.text, cut_short.finish, cut_short.usage.output) == ("6789", Finish.LENGTH, 4)
    assert (endless.text, endless.finish, endless.usage.output) == ("yzab", Finish.LENGTH, 4)
    padded = answer(models, plain("counting", "9"), plain("counting", "aaaa aaaa 1"))
    assert [(one.usage.input, one.usage.output) for one in padded] == [(1, 1), (11, 8)]
    assert [one.text for one in padded] == ["", "23456789"]


@pytest.mark.parametrize(
    ("stop", "text", "n_output"),
    [
        ("f", "bcde", 5),
        (["zz", "de"], "bc", 4),
        (["e", "cd"], "b", 3),
        ("a", "bcdefghi", 8),
    ],
)
def test_stop_texts_end_a_reply(models: Path, stop: Json, text: str, n_output: int) -> None:
    """A stop text in the prompt ends nothing, and neighbours go on."""
    stopping = plain("counting", "a", {**GREEDY, "stop": stop})
    reply, neighbour = answer(models, stopping, plain("counting", "k"))
    assert (reply.text, reply.usage.output) == (text, n_output)
    assert reply.finish is (Finish.LENGTH if n_output == 8 else Finish.STOP)
    assert neighbour.text == "lmnopqrs"


def test_a_reply_ends_where_the_context_ends(models: Path) -> None:
    for model in ("llama", "gpt2"):
        with_bos = 1 if model == "llama" else 0
        long, short = answer(
            models,
            plain(model, "x" * (60 - with_bos), {"temperature": 0, "max_tokens": 9}),
            plain(model, "y", {"temperature": 0, "max_tokens": 9}),
        )
        assert (long.usage.input, long.usage.output) == (60, 4)
        assert long.finish is Finish.LENGTH
        assert short.usage.output == 9


def test_half_a_character_spoils_its_own_call_only(models: Path) -> None:
    async def main() -> None:
        async with provider_of(models) as provider:
            good = asyncio.create_task(provider.generate(plain("counting", "a", DRAWN)))
            failed = await attempt(provider, plain("counting", "a\ud800", DRAWN))
            assert isinstance(failed, ProviderError)
            assert (failed.kind, failed.fatal) == (FailureKind.BAD_REQUEST, False)
            assert "half of a character" in str(failed)
            assert (await good).usage.output == 8

    asyncio.run(main())


def test_draws_follow_the_seed(models: Path) -> None:
    seeds: list[dict[str, Json]] = [{}, {"seed": 1}, {"seed": 2}]
    hot: dict[str, Json] = {**DRAWN, "temperature": 3}
    drawn = [plain("llama", "1+2=", {**hot, **seed}) for seed in seeds * 2]
    texts = [one.text for one in replies(provider_of(models), *drawn)]
    assert texts[:3] == texts[3:]
    assert len({*texts}) == 3


def test_different_sampling_shares_a_batch(models: Path) -> None:
    """Only `max_tokens` keeps calls apart."""
    requests = [
        plain("counting", "a", {"max_tokens": 3, **params})
        for params in ({"temperature": 0}, {"top_k": 1}, {"top_p": 0.001}, {"temperature": 0.01})
    ]
    replies = answer(models, *requests)
    assert [reply.text for reply in replies] == ["bcd"] * 4
    assert len({reply.gpu_seconds for reply in replies}) == 1


@pytest.mark.slow
def test_bfloat16_halves_the_memory(models: Path) -> None:
    memory = 3e-9 * ModelFolder(models / "llama", "llama").n_parameters
    provider_of(models, dtype="bfloat16", memory_gb=memory).check_machine("llama")
    with pytest.raises(ConfigError, match="as float32, more than"):
        provider_of(models, memory_gb=memory).check_machine("llama")
    (reply,) = answer(models, plain("counting", "1"), dtype="bfloat16")
    assert reply.text == "23456789"


def test_worker_seconds_have_a_price(models: Path) -> None:
    request = plain("counting", "a")
    provider = provider_of(models, usd_per_gpu_hour="3.6", max_gpu_seconds=10)
    assert provider.capabilities("counting").priced
    assert provider.bound(request).usd_nanos == 10 * 1_000_000
    (reply,) = answer(models, request, usd_per_gpu_hour="3.6", max_gpu_seconds=10)
    assert reply.usd_nanos is not None
    assert reply.usd_nanos == pytest.approx(reply.gpu_seconds * 1e6, abs=1)
    assert min(reply.gpu_seconds, reply.seconds) > 0, "loading is charged, and is no latency"
    (free,) = answer(models, request)
    assert free.usd_nanos == 0


def test_what_is_done_before_the_deadline_counts(models: Path) -> None:
    (reply,) = answer(models, plain("counting", "9"), max_gpu_seconds=1e-9)
    assert (reply.text, reply.finish) == ("", Finish.STOP)
    assert reply.gpu_seconds <= 1e-9


@pytest.mark.slow
def test_models_take_turns_in_a_small_memory(models: Path) -> None:
    names = ("llama", "gpt2", "counting")
    cap = 6 * max(ModelFolder(models / name, name).n_parameters for name in names)
    requests = [plain(m, text) for text in PROMPTS for m in ("llama", "gpt2", "counting")]
    roomy = answer(models, *requests)
    tight = answer(models, *requests, memory_gb=cap / 1e9)
    assert [reply.text for reply in tight] == [reply.text for reply in roomy]


def test_a_model_larger_than_the_memory_is_refused(models: Path) -> None:
    provider = provider_of(models, memory_gb=1e-6)
    with pytest.raises(ConfigError, match=r"llama takes 9\.57e-05 GB as float32") as caught:
        provider.check_machine("llama")
    assert "`memory_gb`" in str(caught.value)
    assert "dtype: bfloat16" in str(caught.value)


def test_broken_weights_put_out_that_model_only(models: Path, tmp_path: Path) -> None:
    """Weights of another shape look whole from outside; loading finds out."""
    for name in ("broken", "good"):
        shutil.copytree(models / "llama", tmp_path / name)
    config = json.loads((tmp_path / "broken" / "config.json").read_text())
    (tmp_path / "broken" / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    provider = provider_of(tmp_path)
    provider.check("broken")
    *errors, good = answers(provider, *(plain(name, "1") for name in ("broken", "broken", "good")))
    for failed in errors:
        assert isinstance(failed, ProviderError)
        assert (failed.kind, failed.fatal) == (FailureKind.MODEL_NOT_FOUND, True)
        assert "model broken cannot be loaded: its weights lack" in str(failed)
    assert isinstance(good, Reply)


def test_the_fingerprint_follows_content_and_arithmetic(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "llama", tmp_path / "a")
    shutil.copytree(models / "llama", tmp_path / "b")
    (tmp_path / "b" / "README.md").write_text("about it")
    provider = provider_of(tmp_path)
    first = provider.fingerprint("a")
    assert provider.fingerprint("b") == first
    (tmp_path / "a" / "chat_template.jinja").write_text("{{ 'another' }}")
    assert provider.fingerprint("a") != first
    assert provider_of(tmp_path, dtype="bfloat16").fingerprint("b") != first


def test_a_cancelled_call_is_dropped_from_the_queue(models: Path) -> None:
    async def main() -> None:
        async with provider_of(models) as provider:
            a, b, c = (
                asyncio.create_task(provider.generate(plain("counting", text))) for text in "abc"
            )
            await asyncio.sleep(0)
            b.cancel()
            assert ((await a).text, (await c).text) == ("bcdefghi", "defghijk")
            assert b.cancelled()

    asyncio.run(main())


def test_an_aborted_engine_ends_at_the_next_token(models: Path) -> None:
    engine = engine_of(models, "counting")
    engine.abort()
    ended, unfinished = engine.generate(prompts(engine, "9", "a"))
    assert ended == Reply("", usage=Usage(input=1, output=1))
    assert isinstance(unfinished, ProviderError)


def prompts(engine: BatchEngine, *texts: str, params: Mapping[str, Json] = GREEDY) -> list[Prompt]:
    calls = [HfCall(plain("m", text, params), read_sampling(params, "m")) for text in texts]
    return [prompt for prompt in engine.encode(calls) if isinstance(prompt, Prompt)]


def engine_of(models: Path, model: str) -> BatchEngine:
    folder = ModelFolder(models / model, model)
    return load_engine(folder, dtype="float32", device="cpu", n_threads=1, max_seconds=60)


@pytest.mark.parametrize("params", [GREEDY, DRAWN])
@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_what_prompts_begin_with_is_read_once(
    models: Path, model: str, params: Mapping[str, Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, examples = engine_of(models, model), "1+2=3; 10+5=15; "
    batch = prompts(engine, *(examples + text for text in ("7+8=", "1+", "", "")), params=params)
    apart = engine.generate(batch)
    read: list[int] = []

    def counted(module: object, positional: object, named: Mapping[str, torch.Tensor]) -> None:
        read.append(named["input_ids"].numel())

    engine._model.register_forward_pre_hook(counted, with_kwargs=True)
    assert engine.generate(batch) == apart
    assert read[0] == len(batch) * max(len(prompt.tokens) for prompt in batch)
    read.clear()
    monkeypatch.setattr("bestarm_agent.providers.hf.generate._WORTH_SHARING", 1)
    assert engine.generate(batch) == apart
    shared = len(batch[-1].tokens) - 1  # one is left to each row
    assert read[:2] == [shared, len(batch) * (len(batch[0].tokens) - shared)]


def test_a_window_that_slides_is_not_shared() -> None:
    """Its cache forgets by place, and the padding takes up places."""
    from transformers import LlamaConfig, MistralConfig

    for config, is_plain in ((MistralConfig(sliding_window=8), False), (LlamaConfig(), True)):
        engine = BatchEngine(SimpleNamespace(config=config), TextCodec.__new__(TextCodec), 60)
        assert engine._has_plain_cache is is_plain


def test_a_batch_that_the_memory_does_not_hold_is_halved(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    engine = engine_of(models, "counting")
    batch, generate = prompts(engine, *"abcde"), engine._model.generate
    sizes: list[int] = []

    def small(input_ids: torch.Tensor, **named: object) -> torch.Tensor:
        sizes.append(len(input_ids))
        if len(input_ids) > most:
            raise memory
        ids: torch.Tensor = generate(input_ids=input_ids, **named)
        return ids

    expected = engine.generate(batch)
    monkeypatch.setattr(engine._model, "generate", small)
    most = 2
    on_cpu = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
    for said in (torch.OutOfMemoryError("CUDA out of memory"), RuntimeError(on_cpu)):
        memory = said
        sizes.clear()
        assert engine.generate(batch) == expected
        assert sizes == [5, 2, 3, 1, 2]
        assert engine.most_tokens == 3 * (len(batch[0].tokens) + 8) / 2
    most = 0
    for answer in engine.generate(batch):
        assert isinstance(answer, ProviderError)
        assert (answer.kind, answer.blame) == (FailureKind.INTERNAL, Blame.HARNESS)
        assert "the memory of cpu does not suffice for one call of" in str(answer)
    memory = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        engine.generate(batch)


@pytest.mark.parametrize("stop", ["\n", "ab", " x", "x ", "é", "∑"])
def test_tokens_that_may_complete_a_stop_text_hold_its_last_character(
    models: Path, stop: str
) -> None:
    codec = TextCodec(load_tokenizer(models / "llama"))
    may = codec.may_end([stop])
    for text in ("fab", "1 x ", "a\nb"):
        (tokens,) = codec.encode([plain("llama", text)])
        assert not isinstance(tokens, ProviderError)
        if stop in text:
            assert may[tokens].any()
    assert not may[-1]
    assert may.all().item() is False


def test_one_provider_serves_several_sittings(models: Path) -> None:
    provider = provider_of(models)
    assert [reply(provider, plain("counting", "a")).text for _ in range(2)] == ["bcdefghi"] * 2


def test_a_provider_that_was_not_entered_says_so(models: Path) -> None:
    with pytest.raises(RuntimeError, match="async with provider"):
        asyncio.run(provider_of(models).generate(plain("counting", "a")))


def test_a_study_without_the_extra_is_told_how_to_get_it(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bestarm_agent.providers.hf.provider.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'bestarm-agent\[hf\]'"):
        provider_of(models).check("llama")


HARNESS, CANDIDATE = Blame.HARNESS, Blame.CANDIDATE
BAD, LONG = FailureKind.BAD_REQUEST, FailureKind.TOO_LONG


@pytest.mark.parametrize(
    ("request_", "kind", "blame", "words"),
    [
        (plain("gpt2", "x" * 64), LONG, CANDIDATE, "64 tokens leaves no room"),
        (
            chat("no-template", "1+2"),
            BAD,
            HARNESS,
            "no chat template and cannot take messages; give it",
        ),
        (chat("llama", "be terse", role="system"), BAD, HARNESS, "no system role"),
        (plain("llama", "x", {"temprature": 1}), BAD, HARNESS, "did you mean `temperature`?"),
        (plain("llama", "x", {"top_p": 0}), BAD, HARNESS, "`top_p`"),
        (plain("llama", "x", {"stop": [""]}), BAD, HARNESS, "`stop"),
        (plain("llama", "x", {"max_tokens": 0}), BAD, HARNESS, "`max_tokens`"),
    ],
)
def test_a_request_that_cannot_be_answered_says_why(
    models: Path, request_: Request, kind: FailureKind, blame: Blame, words: str
) -> None:
    found = error(provider_of(models), request_)
    assert (found.kind, found.blame) == (kind, blame)
    assert (found.transient, found.fatal) == (False, kind is BAD)
    assert words in str(found)


def test_a_batch_that_takes_too_long_is_cut_off(models: Path) -> None:
    found = error(provider_of(models, max_gpu_seconds=1e-9), plain("counting", "a"))
    assert (found.kind, found.transient, found.fatal) == (FailureKind.TIMEOUT, False, False)
    assert "max_gpu_seconds" in str(found)


def test_which_models_take_chats(models: Path) -> None:
    provider = provider_of(models)
    assert not provider.capabilities("no-template").chat
    assert provider.capabilities("llama").chat
