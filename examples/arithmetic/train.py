"""Train the five tiny language models of the arithmetic example, and write its data set.

    python examples/arithmetic/train.py --out examples/arithmetic/models [--only NAME]

Every model learns to add two numbers from 0 to 99, from scratch, on one CPU core, in minutes. They
differ in size, in the length of their training and in how often they saw each prompt format, so
the best model depends on the prompt. Seeds and numbers of steps are fixed: a rerun with the same
library versions on the same kind of processor gives the same weights.

A tenth of the pairs is held out of all training, in both orders; the data set is drawn from it.
"""

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, processors
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

Pair = tuple[int, int]
Row = Mapping[str, object]  # the fields of an example, "answer" among them

LARGEST_TERM = 99
HELD_OUT_SHARE = 0.1
DATASET_SIZE = 500
SPLIT_SEED = 20260101

PAD, BOS, EOS, UNKNOWN = "<pad>", "<bos>", "<eos>", "<unk>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
END_OF_TURN = "<|end|>"
SPECIAL_TOKENS = (PAD, BOS, EOS, UNKNOWN, *ROLES, END_OF_TURN)
CHARACTERS = ("\n", *map(chr, range(0x20, 0x7F)))

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

HEAD_SIZE = 32  # the smallest that vLLM's attention for CPUs takes
CONTEXT_LENGTH = 128
WARM_UP_STEPS = 100
IGNORED = -100  # the label that cross_entropy leaves out


@dataclass(frozen=True, slots=True)
class Prompt:
    """A format of prompts."""

    template: str
    gap: str = ""  # the text between the prompt and the answer
    is_chat: bool = False  # whether the chat template is put around it


PROMPTS = {
    "plain": Prompt("{a}+{b}="),
    "spaced": Prompt("{a} + {b} =", " "),
    "qa": Prompt("Q: {a}+{b}\nA:", " "),
    "chat": Prompt("{a}+{b}", is_chat=True),
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model is built and trained."""

    name: str
    architecture: Literal["llama", "gpt2"]
    width: int
    layers: int
    mixture: dict[str, float]  # the share of the training examples in each prompt format
    steps: int
    seed: int
    batch_size: int = 256
    learning_rate: float = 3e-3


RECIPES = (
    Recipe(
        name="sum-llama-167k",
        architecture="llama",
        width=64,
        layers=3,
        mixture={"plain": 0.12, "spaced": 0.27, "qa": 0.6, "chat": 0.01},
        steps=1800,
        seed=1,
    ),
    Recipe(
        name="sum-llama-113k",
        architecture="llama",
        width=64,
        layers=2,
        mixture={"plain": 0.75, "spaced": 0.05, "chat": 0.2},
        steps=900,
        seed=2,
    ),
    Recipe(
        name="sum-llama-60k",
        architecture="llama",
        width=64,
        layers=1,
        mixture={"plain": 0.05, "spaced": 0.75, "qa": 0.2},
        steps=2500,
        seed=3,
    ),
    Recipe(
        name="sum-llama-43k",
        architecture="llama",
        width=32,
        layers=3,
        mixture={"plain": 0.2, "qa": 0.1, "chat": 0.7},
        steps=2000,
        seed=4,
    ),
    Recipe(
        name="sum-gpt2-20k",
        architecture="gpt2",
        width=32,
        layers=1,
        mixture={"plain": 0.8, "spaced": 0.05, "qa": 0.1, "chat": 0.05},
        steps=800,
        seed=5,
    ),
)


def split_pairs() -> tuple[list[Pair], list[Pair]]:
    """Return the pairs to train on, in both orders, and the held-out ones, each in one order."""
    terms = range(LARGEST_TERM + 1)
    unordered = [(a, b) for a in terms for b in terms if a <= b]
    rng = np.random.default_rng(SPLIT_SEED)
    shuffled = [unordered[i] for i in rng.permutation(len(unordered))]
    cut = round(HELD_OUT_SHARE * len(shuffled))
    swaps = rng.random(cut) < 0.5
    held_out = [(b, a) if swap else (a, b) for (a, b), swap in zip(shuffled, swaps, strict=False)]
    training = {pair for a, b in shuffled[cut:] for pair in ((a, b), (b, a))}
    return sorted(training), held_out


def write_dataset(path: Path, held_out: list[Pair]) -> None:
    """Write the first held-out pairs as JSON lines."""
    rows = (
        {"id": f"a{a:02}b{b:02}", "a": a, "b": b, "answer": str(a + b)}
        for a, b in held_out[:DATASET_SIZE]
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def build_tokenizer(*, adds_bos: bool) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per printable ASCII character.

    With `adds_bos`, the tokenizer starts every text with a BOS token and the chat template renders
    one too, as with the Llama family: tokenizing a rendered chat must not add special tokens.
    """
    vocabulary = {token: i for i, token in enumerate((*SPECIAL_TOKENS, *CHARACTERS))}
    # Without merges, byte-pair encoding leaves single characters.
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    backend.decoder = decoders.Fuse()  # the default decoder would put spaces between characters
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, vocabulary[BOS])]
        )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call, unused-ignore]
        tokenizer_object=backend,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        additional_special_tokens=[*ROLES, END_OF_TURN],
        chat_template=("{{ bos_token }}" if adds_bos else "") + CHAT_TEMPLATE,
        padding_side="left",
        model_max_length=CONTEXT_LENGTH,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def encode(
    tokenizer: PreTrainedTokenizerFast, prompt: Prompt, row: Row
) -> tuple[list[int], list[int]]:
    """Return the tokens of a prompt and those of its answer, which EOS ends."""
    text = prompt.template.format_map(row)
    if prompt.is_chat:
        turns = [{"role": "user", "content": text}]
        text = str(tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))
    question = tokenizer.encode(text, add_special_tokens=not prompt.is_chat)
    answer = tokenizer.encode(f"{prompt.gap}{row['answer']}{EOS}", add_special_tokens=False)
    return question, answer


def build_examples(
    tokenizer: PreTrainedTokenizerFast, prompts: Iterable[Prompt], rows: Sequence[Row]
) -> tuple[Tensor, Tensor]:
    """Return right-padded tokens and labels, prompt by prompt; only the answers have labels."""
    encoded = [encode(tokenizer, prompt, row) for prompt in prompts for row in rows]
    length = max(len(question) + len(answer) for question, answer in encoded)
    tokens = torch.full((len(encoded), length), tokenizer.pad_token_id)
    labels = torch.full_like(tokens, IGNORED)
    for row, (question, answer) in enumerate(encoded):
        start, end = len(question), len(question) + len(answer)
        tokens[row, :end] = torch.tensor(question + answer)
        labels[row, start:end] = torch.tensor(answer)
    return tokens, labels


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Return a recipe's model with random weights."""
    special_ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    if recipe.architecture == "gpt2":
        gpt2 = GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=CONTEXT_LENGTH,
            n_embd=recipe.width,
            n_layer=recipe.layers,
            n_head=recipe.width // HEAD_SIZE,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            **special_ids,
        )
        return GPT2LMHeadModel(gpt2)
    llama = LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=CONTEXT_LENGTH,
        hidden_size=recipe.width,
        intermediate_size=3 * recipe.width,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.width // HEAD_SIZE,
        head_dim=HEAD_SIZE,
        tie_word_embeddings=True,
        **special_ids,
    )
    return LlamaForCausalLM(llama)


def learning_rate_factor(step: int, steps: int) -> float:
    """Return the share of the peak learning rate: a linear warm-up, then half a cosine."""
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    return warm_up * 0.5 * (1 + math.cos(math.pi * step / steps))


def fit(model: PreTrainedModel, recipe: Recipe, tokens: Tensor, labels: Tensor) -> None:
    """Train a model on random batches of the recipe's mixture."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor(step, recipe.steps)
    )
    shares = torch.tensor(list(recipe.mixture.values()))
    pairs = len(tokens) // len(shares)
    padding = model.config.pad_token_id
    model.train()
    for step in range(1, recipe.steps + 1):
        formats = torch.multinomial(shares, recipe.batch_size, replacement=True)
        batch = formats * pairs + torch.randint(pairs, (recipe.batch_size,))
        inputs = tokens[batch]
        logits = model(input_ids=inputs, attention_mask=inputs != padding).logits
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[batch, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"{recipe.name}: step {step}/{recipe.steps}, loss {loss.item():.3f}", flush=True)


def train_model(
    recipe: Recipe, prompts: Mapping[str, Prompt], rows: Sequence[Row], folder: Path
) -> None:
    """Train one model and save it, with its tokenizer, in half precision."""
    torch.manual_seed(recipe.seed)
    tokenizer = build_tokenizer(adds_bos=recipe.architecture == "llama")
    model = build_model(recipe, tokenizer)
    taught = [prompts[name] for name in recipe.mixture]
    fit(model, recipe, *build_examples(tokenizer, taught, rows))
    model.half().save_pretrained(folder)  # type: ignore[no-untyped-call, unused-ignore]
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Write the data set and train the models that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the models")
    parser.add_argument("--only", choices=[recipe.name for recipe in RECIPES], help="one model")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # sums in one order: the same weights on any number of cores
    training, held_out = split_pairs()
    write_dataset(Path(__file__).with_name("dataset.jsonl"), held_out)
    rows = [{"a": a, "b": b, "answer": a + b} for a, b in training]
    for recipe in RECIPES:
        if arguments.only in (None, recipe.name):
            train_model(recipe, PROMPTS, rows, arguments.out / recipe.name)


if __name__ == "__main__":
    main()
