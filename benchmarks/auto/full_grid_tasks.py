"""Two tasks for tiny models: what is asked, in which formats, and how each model was taught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from examples.arithmetic.train import Prompt, Recipe, Row, split_pairs

Rows: TypeAlias = Sequence[Row]

N_EXAMPLES = 300
N_WORDS, WORD_SEED = 12_000, 20260102
SHORTEST, LONGEST = 5, 12  # letters of a word
MAIN = 0.9  # share of the training in a model's own formats; the rest is spread over all
LETTERS = tuple("abcdefghij")  # few, so that some occur more than once


@dataclass(frozen=True, slots=True)
class Task:
    """One full grid: models of the recipes, prompts and temperatures on the same examples."""

    name: str
    scorer: str
    prompts: dict[str, Prompt]
    split: Callable[[], tuple[Rows, Rows]]  # rows to train on, and the examples
    recipes: tuple[Recipe, ...]
    temperatures: tuple[float, ...] = (0.0, 0.5, 1.0)
    max_tokens: int = 14


def split_differences() -> tuple[Rows, Rows]:
    """Return differences of two numbers from 0 to 99: to train on, and held-out ones."""
    training, held_out = split_pairs()
    return [_difference(*pair) for pair in training], [
        _difference(*pair) for pair in held_out[:N_EXAMPLES]
    ]


def _difference(a: int, b: int) -> Row:
    return {"id": f"s{a:02}b{b:02}", "a": a, "b": b, "answer": str(a - b)}


def split_words() -> tuple[Rows, Rows]:
    """Return words of random letters to be sorted: to train on, and held-out ones."""
    rng = np.random.default_rng(WORD_SEED)
    words: dict[str, None] = {}  # a set in the order of drawing
    while len(words) < N_WORDS + N_EXAMPLES:
        length = int(rng.integers(SHORTEST, LONGEST + 1))
        words["".join(rng.choice(LETTERS, length))] = None
    rows = [{"id": word, "word": word, "answer": "".join(sorted(word))} for word in words]
    return rows[N_EXAMPLES:], rows[:N_EXAMPLES]


_SUBTRACTION = {
    "plain": Prompt("{a}-{b}="),
    "spaced": Prompt("{a} - {b} =", " "),
    "qa": Prompt("Q: {a}-{b}\nA:", " "),
    "chat": Prompt("{a}-{b}", is_chat=True),
    "minus": Prompt("{a} minus {b} is", " "),
    "call": Prompt("sub({a}, {b}) =", " "),
    "from": Prompt("From {a} take {b}:", " "),
    "chat-minus": Prompt("{a} minus {b}?", is_chat=True),
}
_SORTING = {
    "plain": Prompt("{word}:"),
    "arrow": Prompt("{word} ->", " "),
    "qa": Prompt("Q: {word}\nA:", " "),
    "chat": Prompt("{word}", is_chat=True),
    "sort": Prompt("Sort {word}:", " "),
    "call": Prompt('sorted("{word}") =', " "),
    "order": Prompt("{word} in order is", " "),
    "chat-sort": Prompt("Sort {word}.", is_chat=True),
}


def _recipes(
    prefix: str, formats: Sequence[str], *table: tuple[int, int, int, dict[str, float]]
) -> tuple[Recipe, ...]:
    """Return a recipe per row of the table: width, layers, steps, main part of the mixture."""
    rest = dict.fromkeys(formats, (1.0 - MAIN) / len(formats))
    return tuple(
        Recipe(
            name=f"{prefix}-{number}",
            architecture="gpt2" if number % 4 == 0 else "llama",
            width=width,
            layers=layers,
            mixture={name: least + MAIN * main.get(name, 0.0) for name, least in rest.items()},
            steps=steps,
            seed=100 + number,
        )
        for number, (width, layers, steps, main) in enumerate(table, start=1)
    )


SUBTRACTION = Task(
    "subtraction",
    "numeric",
    _SUBTRACTION,
    split_differences,
    _recipes(
        "sub",
        tuple(_SUBTRACTION),
        (64, 2, 1000, {"plain": 0.6, "chat": 0.2, "qa": 0.1, "call": 0.1}),
        (64, 2, 1600, {"spaced": 0.5, "minus": 0.3, "from": 0.2}),
        (64, 3, 1200, {"qa": 0.5, "call": 0.2, "chat-minus": 0.2, "plain": 0.1}),
        (64, 2, 900, {"plain": 0.3, "spaced": 0.3, "qa": 0.2, "chat": 0.2}),
        (32, 3, 1200, {"chat": 0.5, "chat-minus": 0.3, "minus": 0.2}),
        (64, 1, 1200, {"call": 0.5, "from": 0.3, "spaced": 0.2}),
        (32, 2, 1200, {"plain": 0.4, "minus": 0.4, "qa": 0.2}),
        (32, 1, 1000, {"plain": 0.5, "spaced": 0.2, "chat": 0.3}),
        (64, 2, 600, {"from": 0.4, "chat-minus": 0.4, "plain": 0.2}),
    ),
)
SORTING = Task(
    "sorting",
    "exact",
    _SORTING,
    split_words,
    _recipes(
        "sort",
        tuple(_SORTING),
        (64, 2, 400, {"plain": 0.5, "chat": 0.2, "qa": 0.2, "call": 0.1}),
        (64, 2, 300, {"arrow": 0.5, "sort": 0.3, "order": 0.2}),
        (64, 3, 260, {"qa": 0.5, "call": 0.2, "chat-sort": 0.2, "plain": 0.1}),
        (64, 2, 450, {"plain": 0.3, "arrow": 0.3, "qa": 0.2, "chat": 0.2}),
        (32, 3, 600, {"chat": 0.5, "chat-sort": 0.3, "sort": 0.2}),
        (64, 1, 450, {"call": 0.5, "order": 0.3, "arrow": 0.2}),
        (32, 2, 600, {"plain": 0.4, "sort": 0.4, "qa": 0.2}),
        (32, 1, 600, {"plain": 0.5, "arrow": 0.2, "chat": 0.3}),
        (64, 2, 280, {"order": 0.4, "chat-sort": 0.4, "plain": 0.2}),
    ),
)
TASKS = {task.name: task for task in (SUBTRACTION, SORTING)}
