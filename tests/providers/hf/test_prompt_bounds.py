"""Bounds of prompts hold for every text and every template."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bestarm_agent.domain.candidate import Message
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.providers.hf.folder import ModelFolder
from bestarm_agent.providers.hf.tokenizer import (
    TextCodec,
    load_tokenizer,
    max_prompt_tokens,
    max_text_tokens,
)

FORMS = ("NFC", "NFD", "NFKC", "NFKD")


@given(text=st.text(max_size=40))
@example("¹À")  # what one form makes longer another makes shorter
@example("¯🯰")  # Unicode 13, which the tokenizers' tables may not know
def test_no_byte_level_tokenizer_makes_more_tokens(text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    for form in FORMS:
        normalizer = getattr(tokenizers.normalizers, form)()
        n_bytes = len(normalizer.normalize_str(text).encode())
        assert n_bytes <= max_text_tokens(text)


@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_bounds_cover_the_tokens_of_texts_and_chats(models: Path, model: str) -> None:
    folder = ModelFolder(models / model, model)
    codec = TextCodec(load_tokenizer(folder.path))
    for contents in (["1+2"], ["a", "bc", "é∑½"], [""]):
        chat = Request(model=model, messages=tuple(Message("user", text) for text in contents))
        plain = Request(model=model, text="".join(contents))
        for request in (chat, plain):
            (tokens,) = codec.encode([request])
            assert isinstance(tokens, list)
            assert len(tokens) <= max_prompt_tokens(request, folder) <= 64


def test_a_template_that_repeats_itself_is_bounded_too(models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "echo"
    tokenizer = load_tokenizer(models / "gpt2")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] * 3 }}!{% endfor %}"
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    messages = (Message("user", "abcd"), Message("user", "efghij"))
    request = Request(model="echo", messages=messages)
    (tokens,) = TextCodec(load_tokenizer(folder)).encode([request])
    assert isinstance(tokens, list)
    assert len(tokens) == 3 * 10 + 2
    assert 32 <= max_prompt_tokens(request, ModelFolder(folder, "echo")) <= 50
