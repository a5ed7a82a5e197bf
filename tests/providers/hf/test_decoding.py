"""Row-wise sampling and row-wise ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bestarm_agent.domain.values import Json, Request
from bestarm_agent.providers.hf.generate import HfCall, RowEnds, RowSampler, cut, read_sampling
from bestarm_agent.providers.hf.tokenizer import TextCodec

if TYPE_CHECKING:
    from torch import Tensor

torch = pytest.importorskip("torch", reason="needs the extra hf")
transformers = pytest.importorskip("transformers", reason="needs the extra hf")

N_PROMPT = 3
LOGITS = (2.0, 1.0, 0.5, 0.0, -1.0, 1.5, -3.0)


def call(text: str = "x", **params: Json) -> HfCall:
    request = Request(model="m", text=text, params={"max_tokens": 4, **params})
    return HfCall(request, read_sampling(request.params, "m"))


def chosen(calls: Sequence[HfCall], logits: Sequence[float] = LOGITS, step: int = 0) -> list[int]:
    """The token that each row takes when all see the same logits."""
    ids = torch.zeros((len(calls), N_PROMPT + step), dtype=torch.long)
    scores = torch.tensor([list(logits)] * len(calls), dtype=torch.float32)
    sampler = RowSampler(calls, N_PROMPT)
    return [int(token) for token in sampler(ids, scores).argmax(-1)]


def expected(params: Mapping[str, float]) -> np.ndarray:
    """Probabilities of the tokens after the warpers of transformers, in its order."""
    scores = torch.tensor([list(LOGITS)]) / params.get("temperature", 1.0)
    if top_k := int(params.get("top_k", 0)):
        scores = transformers.TopKLogitsWarper(top_k)(None, scores)
    if (top_p := params.get("top_p", 1.0)) < 1:
        scores = transformers.TopPLogitsWarper(top_p)(None, scores)
    probabilities: np.ndarray = scores.double().softmax(-1).squeeze(0).numpy()
    return probabilities


@pytest.mark.slow
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 1.5, "top_k": 5, "top_p": 0.7},
    ],
)
def test_draws_follow_the_distribution_of_transformers(params: Mapping[str, float]) -> None:
    # 20,000 draws, chi-square test at 1e-6: a right sampler fails it once in a million seeds.
    n = 20_000
    drawn = chosen([call(str(i), **params) for i in range(n)])
    counts, probabilities = np.bincount(drawn, minlength=len(LOGITS)), expected(params)
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    assert stats.chisquare(counts[possible], n * probabilities[possible]).pvalue > 1e-6


@settings(max_examples=40)
@given(
    logits=st.lists(st.integers(-8, 8), min_size=2, max_size=12, unique=True),
    temperature=st.floats(0.1, 5),
    top_k=st.integers(0, 13),
    top_p=st.floats(0.05, 1),
)
def test_nothing_is_drawn_that_transformers_would_cut(
    logits: list[int], temperature: float, top_k: int, top_p: float
) -> None:
    scores = torch.tensor([logits], dtype=torch.float32) / temperature
    if top_k:
        scores = transformers.TopKLogitsWarper(min(top_k, len(logits)))(None, scores)
    if top_p < 1:
        # what lies on the border may fall on either side of it, by rounding
        scores = transformers.TopPLogitsWarper(min(1.0, top_p + 1e-4))(None, scores)
    allowed = {int(i) for i in scores.isfinite().nonzero()[:, 1]}
    calls = [call(str(i), temperature=temperature, top_k=top_k, top_p=top_p) for i in range(50)]
    assert set(chosen(calls, logits)) <= allowed


def agreeing(one: list[int], other: list[int]) -> int:
    """How many of 200 rows took the same token; independent draws from seven agree in a fifth."""
    return sum(a == b for a, b in zip(one, other, strict=True))


def test_steps_and_seeds_draw_anew_and_another_temperature_does_not() -> None:
    def drawn(step: int = 0, **params: Json) -> list[int]:
        calls = [call(str(i), **{"temperature": 3.0, **params}) for i in range(200)]
        return chosen(calls, step=step)

    assert agreeing(drawn(), drawn(step=1)) < 100
    assert agreeing(drawn(), drawn(seed=1)) < 100
    assert agreeing(drawn(), drawn(temperature=2.9)) > 180  # nearly the same distribution


def test_a_draw_belongs_to_its_request_not_to_its_row() -> None:
    calls = [call(str(i), temperature=3.0) for i in range(40)]
    forwards, backwards = chosen(calls), chosen(calls[::-1])
    assert forwards == backwards[::-1]
    assert forwards[7:8] == chosen(calls[7:8])


def test_greedy_rows_are_greedy_beside_drawn_ones() -> None:
    calls = [call(str(i), temperature=0 if i % 2 else 9.0) for i in range(40)]
    drawn = chosen(calls)
    assert chosen([call(str(i), temperature=1e-9) for i in range(20)]) == [0] * 20
    assert drawn[1::2] == [0] * 20
    assert len(set(drawn[::2])) > 1


def test_forbidden_tokens_are_never_drawn() -> None:
    logits = (float("-inf"), 0.0, float("-inf"), 0.0)
    assert set(chosen([call(str(i)) for i in range(100)], logits)) == {1, 3}


class Characters(TextCodec):
    """Every character is a token; counts the rows that were decoded."""

    def __init__(self) -> None:
        self.n_decoded = 0

    def decode(self, rows: list[list[int]]) -> list[str]:
        self.n_decoded += len(rows)
        return ["".join(map(chr, row)) for row in rows]

    def may_end(self, texts: Sequence[str]) -> Tensor:
        lasts = {text[-1] for text in texts}
        may: Tensor = torch.tensor([chr(token) in lasts for token in range(128)] + [False])
        return may


def ends(
    stops: Sequence[tuple[str, ...]], *, is_over: bool = False, codec: TextCodec | None = None
) -> RowEnds:
    return RowEnds(stops, N_PROMPT, codec or Characters(), lambda: is_over)


def grown(texts: Sequence[str]) -> list[Tensor]:
    """The batch after each step, for a prompt of dots."""
    rows = [[ord(char) for char in "." * N_PROMPT + text] for text in texts]
    return [torch.tensor(rows)[:, : N_PROMPT + n] for n in range(1, len(texts[0]) + 1)]


def test_each_row_ends_at_its_own_stop_text() -> None:
    criterion = ends([("cd",), (), ("z", "xy"), (".",)])
    ended = [criterion(ids, None).tolist() for ids in grown(["abcde", "abcde", "wxyzz", "vwxyz"])]
    assert [step[0] for step in ended] == [False, False, False, True, True]
    assert not any(step[1] for step in ended)
    assert [step[2] for step in ended] == [False, False, True, True, True]
    assert not any(step[3] for step in ended)  # the dots stand in the prompt
    assert criterion.lengths.tolist()[0] == 4
    assert criterion.lengths.tolist()[2] == 3


def test_only_tokens_that_may_complete_a_stop_text_are_decoded() -> None:
    codec = Characters()
    criterion = ends([("cd",), ("q",), (), ("d",)], codec=codec)
    for ids in grown(["abdabcde", "abcdefgh", "cdcdcdcd", "efghijkl"]):
        criterion(ids, None)
    assert criterion.lengths.tolist()[:1] == [7]
    assert codec.n_decoded == 2, "after each d of the first row, and nowhere else"


def test_all_rows_end_at_the_deadline_but_keep_their_lengths() -> None:
    criterion = ends([("b",), ()], is_over=True)
    first, second = (criterion(ids, None).tolist() for ids in grown(["ab", "ab"]))
    assert first == second == [True, True]
    assert criterion.lengths[0] == 2
    assert criterion.lengths[1] > 1_000_000


@pytest.mark.parametrize(
    ("text", "stops", "left"),
    [
        ("abc", [], ("abc", False)),
        ("abc", ["x"], ("abc", False)),
        ("abcabc", ["c", "bc"], ("a", True)),
        ("abc", ["a"], ("", True)),
        ("", ["a"], ("", False)),
    ],
)
def test_cutting(text: str, stops: list[str], left: tuple[str, bool]) -> None:
    assert cut(text, stops) == left
