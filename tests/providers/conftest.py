"""Throw-away models of a few thousand weights, written the way real ones are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PAD, BOS, EOS, UNKNOWN, END = "<pad>", "<bos>", "<eos>", "<unk>", "<|end|>"
SPECIAL = (PAD, BOS, EOS, UNKNOWN, "<|user|>", "<|assistant|>", END)
CHARACTERS = ("\n", *map(chr, range(0x20, 0x7F)))
CONTEXT_LENGTH = 64
CHAT_TEMPLATE = (
    "{{ bos_token or '' }}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

Setting: TypeAlias = str | list[str] | None


@pytest.fixture(scope="session", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


def build_tokenizer(*, adds_bos: bool, **settings: Setting) -> PreTrainedTokenizerFast:
    """One token per character; with ``adds_bos`` every text begins with BOS, as with Llama."""
    from tokenizers import Tokenizer, decoders, models, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate((*SPECIAL, *CHARACTERS))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    backend.decoder = decoders.Fuse()
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, vocabulary[BOS])]
        )
    chosen: dict[str, Setting] = {
        "pad_token": PAD,
        "bos_token": BOS,
        "eos_token": EOS,
        "unk_token": UNKNOWN,
        "additional_special_tokens": [*SPECIAL[4:]],
        "chat_template": CHAT_TEMPLATE,
    }
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        **{key: value for key, value in (chosen | settings).items() if value is not None},
    )
    return tokenizer


def random_model(kind: str, n_tokens: int) -> PreTrainedModel:
    """A model whose every choice hangs on the whole prompt, with no near ties.

    Of the kind ``gpt2`` it has learned positions, of which there are no more than CONTEXT_LENGTH.
    """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    common: dict[str, Any] = {"vocab_size": n_tokens, "initializer_range": 0.5, "eos_token_id": 2}
    if kind == "gpt2":
        sizes: dict[str, Any] = {
            "n_positions": CONTEXT_LENGTH,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 1,
        }
        gpt2: PreTrainedModel = GPT2LMHeadModel(GPT2Config(bos_token_id=1, **sizes, **common))
        return gpt2
    sizes = {"max_position_embeddings": CONTEXT_LENGTH, "hidden_size": 32, "head_dim": 32}
    sizes |= {"intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 1}
    config = LlamaConfig(tie_word_embeddings=True, **sizes, **common)
    llama: PreTrainedModel = LlamaForCausalLM(config)
    return llama


def counting_llama(n_tokens: int) -> PreTrainedModel:
    """A model that counts: after 1 comes 2, after 9 the end; after a comes b, after z again a.

    Attention and feed-forward layers add nothing, embeddings are unit vectors, and the head maps
    each token's vector to its successor.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=n_tokens,
        max_position_embeddings=CONTEXT_LENGTH,
        hidden_size=n_tokens + n_tokens % 2,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        tie_word_embeddings=False,
        eos_token_id=2,
    )
    model: PreTrainedModel = LlamaForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(n_tokens, config.hidden_size))
        model.lm_head.weight.zero_()
        for token, successor in successors().items():
            model.lm_head.weight[successor, token] = 1.0
    return model


def successors() -> dict[int, int]:
    tokens = {token: i for i, token in enumerate((*SPECIAL, *CHARACTERS))}
    following = {str(i): str(i + 1) for i in range(9)} | {"9": EOS}
    letters = "abcdefghijklmnopqrstuvwxyz"
    following |= dict(zip(letters, letters[1:] + "a", strict=True))
    return {tokens[one]: tokens[other] for one, other in following.items()}


def write_model(folder: Path, kind: str, *, adds_bos: bool, **settings: Setting) -> None:
    from transformers.utils import logging

    tokenizer = build_tokenizer(adds_bos=adds_bos, **settings)
    tokenizer.save_pretrained(folder)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    n_tokens = len(tokenizer)
    model = counting_llama(n_tokens) if kind == "counting" else random_model(kind, n_tokens)
    model.save_pretrained(folder)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's folder with the models ``llama``, ``gpt2``, ``counting`` and difficult ones."""
    pytest.importorskip("torch", reason="needs the extra hf")
    pytest.importorskip("transformers", reason="needs the extra hf")
    base = tmp_path_factory.mktemp("study")
    for kind in ("llama", "gpt2", "counting"):
        write_model(base / kind, kind, adds_bos=kind == "llama")
    write_model(base / "no-template", "gpt2", adds_bos=False, chat_template=None)
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    write_model(base / "no-pad", "llama", adds_bos=True, pad_token=None)
    write_model(base / "right-padding", "llama", adds_bos=True, padding_side="right")
    write_model(base / "token-types", "llama", adds_bos=True, model_input_names=inputs)
    return base
