"""Files that the real tools wrote; `benchmarks/interop/` of commit e83ff81 says how.

inspect-ai 0.3.285, lm-eval 0.4.13, promptfoo 0.123.1.
"""

from __future__ import annotations

import sys
import zipfile
from math import isnan
from pathlib import Path

import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.logs import Logs, read_logs

GOLDEN = Path(__file__).parent / "golden"
INSPECT = [str(GOLDEN / name) for name in ("inspect_good.eval", "inspect_weak.eval")]
LM_EVAL = sorted(map(str, GOLDEN.glob("lm_eval/*/samples_*.jsonl")))
PROMPTFOO = [str(GOLDEN / "promptfoo_v3.json")]


def scores(logs: Logs) -> dict[str, list[float | None]]:
    matrix = logs.matrix()
    rows = [[None if isnan(score) else score for score in row] for row in matrix.scores.tolist()]
    return dict(zip(matrix.names, rows, strict=True))


def test_inspect_averages_epochs_and_leaves_errors_void() -> None:
    logs = read_logs(INSPECT, metric="match")

    assert scores(logs) == {"mockllm/good": [1, 1, None, 1], "mockllm/weak": [1, 0, 1, 0]}
    assert [example for _, example in logs.pairs][:4] == ["1+1", "2+3", "4+4", "5+7"]
    assert logs.notes() == [
        "metric: match",
        "8 answers with several results, whose mean counts",
        "without a score, not wrong (an error, or no verdict): 1 of 8 answers",
    ]


def test_inspect_tells_candidates_of_one_model_apart_by_their_settings() -> None:
    logs = read_logs([INSPECT[1], str(GOLDEN / "inspect_weak.json")], metric="includes")

    assert list(scores(logs)) == ["mockllm/weak,terse=false", "mockllm/weak,terse=true"]


def test_the_same_log_twice_counts_once() -> None:
    twice = read_logs([INSPECT[1], INSPECT[1]], metric="match")

    assert {len(found) for found in twice.pairs.values()} == {2}  # epochs


def test_inspect_has_answers_tokens_and_errors_for_a_recording() -> None:
    rows = list(read_logs(INSPECT[:1], metric="match").records())

    assert rows[0]["text"] == "The answer is 2"
    assert (rows[0]["input_tokens"], rows[0]["output_tokens"]) == (7, 4)
    assert [row.get("attempt", 1) for row in rows] == [1, 2] * 4
    failed = [row for row in rows if "error" in row]
    assert {row["example"] for row in failed} == {"4+4"}
    assert failed[0]["message"] == "RuntimeError('the mock provider is down')"


def test_zstd_is_named_where_it_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    if hasattr(zipfile, "ZIP_ZSTANDARD"):
        pytest.skip("this Python's own zipfile reads zstd")
    monkeypatch.setitem(sys.modules, "backports.zstd", None)  # as if it were not installed
    with pytest.raises(ConfigError, match=r"zstd.*pip install 'bestarm-agent\[interop\]'"):
        read_logs(INSPECT, metric="match")


def test_several_scores_need_a_choice() -> None:
    with pytest.raises(ConfigError, match=r"task 'sums' has several scores.*match; includes"):
        read_logs(INSPECT)
    with pytest.raises(ConfigError, match=r"no score is called 'matsch'; did you mean `match`"):
        read_logs(INSPECT, metric="matsch")


def test_lm_eval_joins_documents_and_names_metric_and_filter() -> None:
    strict = read_logs(LM_EVAL, metric="exact_match,strict-match")
    found = read_logs(LM_EVAL, metric="exact_match,first-number")

    assert scores(strict) == {"mock/good": [1, 1, 1, 0], "mock/weak": [1, 0, 1, 0]}
    assert scores(found) == {"mock/good": [1, 1, 1, 1], "mock/weak": [1, 0, 1, 1]}
    assert next(strict.records())["text"] == "2"


def test_lm_eval_takes_the_model_from_the_folder_without_the_results(tmp_path: Path) -> None:
    folder = tmp_path / "lab__model"
    folder.mkdir()
    lonely = folder / Path(LM_EVAL[0]).name
    lonely.write_bytes(Path(LM_EVAL[0]).read_bytes())

    assert list(scores(read_logs([str(lonely)], metric="exact_match,strict-match"))) == [
        "lab/model"
    ]


def test_lm_eval_results_are_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"are means; give its samples_\*\.jsonl"):
        read_logs([str(next(GOLDEN.glob("lm_eval/*/results_*.json")))])


def test_promptfoo_joins_repeats_and_leaves_provider_errors_void() -> None:
    logs = read_logs(PROMPTFOO)

    assert scores(logs) == {
        "weak,prompt=a_+_b_=": [0.5, 1],
        "good,prompt=a_+_b_=": [1, None],
        "good,prompt=What_is_a_+_b": [1, None],
    }
    assert {len(found) for found in logs.pairs.values()} == {2}
    assert {row["usd"] for row in logs.records() if "usd" in row} == {0.001}


def test_promptfoo_has_named_scores_and_passes() -> None:
    for metric in ("right", "success"):
        assert scores(read_logs(PROMPTFOO, metric=metric))["weak,prompt=a_+_b_="] == [0, 1]
