"""Real preferences through the whole pipeline: recorded answers, a judge behind HTTP, both orders.

The judge server knows AlpacaEval's recorded preferences and answers with them as log probabilities;
what comes out must be the recorded ranking.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.spend import usd
from bestarm_agent.judges.model import enclosed
from bestarm_agent.study import Archive
from tests.support.fake_api import Call, FakeApi, Said, in_thread
from tests.support.store_runs import outcomes_in
from tests.support.studies import run_all, store_of, study_file

DATA = Path(__file__).parents[3] / "shared" / "data" / "alpaca_eval_responses_sample.jsonl"
N_INSTRUCTIONS = 10  # all 100 come out as exactly, and take ten times as long
BLOCK = re.compile(r"<<<(\w+) (\w{16})>>>\n(.*?)\n<<<end of \1 \2>>>", re.DOTALL)


@dataclass(frozen=True)
class Recorded:
    """12 models on some of the sample's 100 instructions."""

    rows: list[dict[str, Any]]

    def score(self, row: Mapping[str, Any]) -> float:
        return float(row["preference"]) - 1.0

    def preferences(self) -> dict[tuple[str, str], float]:
        """Probability that an answer to an instruction beats the baseline, as judges see both."""
        found: dict[tuple[str, str], float] = {}
        for row in self.rows:
            _, texts = enclosed({"task": row["instruction"], "answer": row["output"]}, "")
            key = (shown(texts["task"]), shown(texts["answer"]))
            assert found.setdefault(key, self.score(row)) == self.score(row), "equal answers tie"
        return found

    def means(self) -> dict[str, float]:
        scores = defaultdict(list)
        for row in self.rows:
            scores[row["model"]].append(self.score(row))
        return {model: sum(values) / len(values) for model, values in scores.items()}


def shown(block: str) -> str:
    found = BLOCK.search(block)
    assert found is not None
    return found[3]


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    if not DATA.exists():
        pytest.skip("the AlpacaEval sample is not here")
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    chosen = sorted({row["example_id"] for row in rows})[:N_INSTRUCTIONS]
    return Recorded([row for row in rows if row["example_id"] in chosen])


def judge_of(recorded: Recorded) -> Any:  # noqa: ANN401 - a function that answers
    preferences = recorded.preferences()

    def answer(call: Call) -> Said:
        blocks = {name: text for name, _, text in BLOCK.findall(call.question)}
        first = preferences.get((blocks["task"], blocks["first_answer"]))
        second = preferences.get((blocks["task"], blocks["second_answer"]))
        share = first if first is not None else 1.0 - (second or 0.0)
        assert (first is None) != (second is None), "one of the two is the baseline"
        shares = {"m": share, "M": 1.0 - share}
        return Said("m" if share > 0.5 else "M", alternatives=shares)

    return answer


def write_study(folder: Path, recorded: Recorded, url: str) -> Path:
    answers = [
        {"candidate": r["model"], "example": r["example_id"], "text": r["output"], "usd": 0.001}
        for r in recorded.rows
    ]
    examples = {
        r["example_id"]: {
            "id": r["example_id"],
            "q": r["instruction"],
            "baseline_output": r["baseline_output"],
        }
        for r in recorded.rows
    }
    study = {
        "models": [{"model": f"replay/{m}", "label": m} for m in recorded.means()],
        "scorer": {
            "name": "pairwise",
            "model": "openai/judge",
            "model_options": {"price": {"input": 1.0, "output": 2.0}},
            "logprobs": True,
            "judge_empty": True,
            "max_tokens": 1,
        },
        "providers": {
            "replay": {"path": "answers.jsonl"},
            "openai": {"base_url": url, "key": "OPENAI_API_KEY"},
        },
        "budget": {"usd": 100},
        "limits": {"in_flight": 64},
    }
    return study_file(folder, {"answers": answers, "rows": [*examples.values()]}, **study)


@pytest.mark.slow
def test_the_recorded_ranking_comes_out_exactly(
    tmp_path: Path, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "fake-key-3f9a")
    with in_thread(FakeApi(answer=judge_of(recorded))) as api:
        path = write_study(tmp_path, recorded, api.openai_url)
        standing, n_received = run_all(path), len(api.received)
    state = asyncio.run(Archive(store_of(path)).state("latest"))
    means = recorded.means()
    assert standing.end == "exhausted", standing.rows[0].problem
    assert [row.candidate.label for row in standing.rows] == sorted(
        means, key=lambda model: -means[model]
    )
    for row in standing.rows:
        assert row.estimate == pytest.approx(means[row.candidate.label], abs=1e-12)
    by_pair = {(r["model"], r["example_id"]): recorded.score(r) for r in recorded.rows}
    judging = 0
    outcomes = outcomes_in(store_of(path))
    for seq, outcome in zip(state.order.tolist(), outcomes, strict=True):
        ask = state.ask(seq)
        assert outcome.score is not None
        pair = (state.candidates[ask.candidate].label, state.example_ids[ask.example])
        assert outcome.score.value == pytest.approx(by_pair[pair], abs=1e-12)
        assert len(outcome.score.votes) == 2
        judging += outcome.judge_spend.usd_nanos
    assert state.n_told == 12 * N_INSTRUCTIONS
    # every call to the judge was paid, at 1 and 2 dollars for a million tokens
    assert n_received == len({(r["instruction"], r["output"]) for r in recorded.rows}) * 2
    assert state.spend.calls == state.n_told + n_received
    assert usd(state.spend.usd_nanos - judging) == pytest.approx(0.001 * state.n_told)
    assert judging > 0
