"""Files built from the formats' documentation: what the golden files do not hold."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.formats import read_results
from bestarm_agent.interop.logs import read_logs


def saved(path: Path, content: object) -> str:
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_inspect_scores_are_letters_numbers_and_several_at_once(tmp_path: Path) -> None:
    values = ["C", "I", "P", "N", True, 0.25, None, float("nan"), "text"]
    samples = [
        {"id": i, "scores": {"s": {"value": value}, "parts": {"value": {"a": 1, "b": [0]}}}}
        for i, value in enumerate(values)
    ]
    log = {"version": 2, "eval": {"task": "t", "model": "m"}, "samples": samples}
    path = saved(tmp_path / "a.json", log)
    wanted = [1, 0, 0.5, 0, 1, 0.25, np.nan, np.nan, np.nan]

    np.testing.assert_array_equal(read_logs([path], metric="s").matrix().scores[0], wanted)
    assert read_logs([path], metric="parts/a").matrix().means == [1]
    with pytest.raises(ConfigError, match="choose one with --metric: s; parts/a"):
        read_logs([path])


def test_an_inspect_log_that_was_cut_off_has_its_finished_samples(tmp_path: Path) -> None:
    start = {"version": 2, "eval": {"task": "t", "model": "m"}, "plan": {}}
    sample = {"id": "a", "epoch": 1, "scores": {"s": {"value": "C"}}}
    with zipfile.ZipFile(tmp_path / "a.eval", "w") as archive:
        archive.writestr("_journal/start.json", json.dumps(start))
        archive.writestr("samples/a_epoch_1.json", json.dumps(sample))

    assert read_logs([str(tmp_path / "a.eval")]).matrix().means == [1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.json",
            {"results": {"version": 4, "results": []}},
            "promptfoo results of version 4; version 3 is read",
        ),
        ("a.json", {"version": 3, "eval": {"task": "t", "model": "m"}}, "schema 3; schema 2 is"),
        (
            "a.json",
            {"some": 1, "thing": 2},
            "an object with the keys some, thing; these can be read: Insp",
        ),
        ("a.json", [7], "a.json, row 1: expected an object with fields, got a number"),
        ("a.json", [{"id": 1, "output": "x"}], "an object with the keys id, output; these can"),
        ("a.jsonl", {}, "an object with the keys (none)"),
        ("a.txt", {}, "a.txt: not a log of a known format; these can be read: Inspect logs"),
        ("a.jsonl", {"candidate": "a", "example": "b", "skore": 1}, "skore"),
        ("a.jsonl", {"doc_hash": "x", "filtered_resps": []}, "lacks what its format promises"),
        (
            "a.json",
            {
                "version": 2,
                "eval": {"task": "t", "model": "m"},
                "samples": [{"id": 1, "scores": {"score": {"value": 7}}}],
            },
            "must be in [0, 1], higher is better, but 'score' is 7",
        ),
        (
            "a.jsonl",
            {"candidate": "a", "example": "b", "error": "internal", "message": "down"},
            "no result has a score that is a number; 1 of 1 are errors, the first: down",
        ),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: object, message: str
) -> None:
    path = saved(tmp_path / name, content)
    with pytest.raises(ConfigError) as caught:
        read_logs([path])
    assert message in str(caught.value)


def test_broken_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.eval").write_bytes(b"PK\x03\x04 cut off")
    (tmp_path / "a.json").write_bytes(b'{"cut": ')
    (tmp_path / "a.jsonl").write_bytes(b'{"candidate": "a", "example": "b", "score": 1}\n{"c')
    for name, message in (
        ("a.eval", "a damaged Inspect log"),
        ("a.json", "not JSON"),
        ("a.jsonl", "line 2, column 2: malformed JSON"),
        ("b.json", "there is no file"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_logs([str(tmp_path / name)])


def test_a_damaged_member_of_an_archive_is_named(tmp_path: Path) -> None:
    path, name = tmp_path / "a.eval", "samples/a_epoch_1.json"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", '{"version": 2, "eval": {"task": "t", "model": "m"}}')
        archive.writestr(name, json.dumps({"id": "a", "scores": {"s": {"value": "C"}}}))
    content = bytearray(path.read_bytes())
    begins = content.index(name.encode()) + len(name)
    content[begins : begins + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.eval: cannot be read: .*decompress"):
        read_logs([str(path)])


def test_a_score_of_promptfoo_that_is_null_is_none(tmp_path: Path) -> None:
    """JavaScript writes null for NaN; the other scores of the answer count."""
    row = {"promptIdx": 0, "testIdx": 0, "vars": {"a": 1}, "success": True, "score": None}
    row |= {"provider": {"id": "m"}, "prompt": {"raw": "p"}, "namedScores": {"x": None, "y": 0.5}}
    log = {"results": {"version": 3, "results": [row]}}
    (result,) = read_results(Path(saved(tmp_path / "a.json", log)))
    assert result.scores == {"y": 0.5, "success": 1.0}
