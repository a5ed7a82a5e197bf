from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import fields
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from bestarm_agent.config.datasets import FileRow
from bestarm_agent.errors import ConfigError
from bestarm_agent.simulation.curves import hardness
from bestarm_agent.simulation.score_matrices import ScoreMatrix, load_matrix, matrix_from_cells
from bestarm_agent.simulation.score_tables import Cell, cells_of
from bestarm_agent.store.export import PairOutcome

DATA = Path(__file__).parents[2] / "../shared/data"

SCORES = np.array([[0.0, 0.25, 1.0], [1.0, np.nan, 0.5]])


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    return np.array_equal(found, wanted, equal_nan=True)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="latin-1")
    return str(path)


def saved(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return str(path)


def test_npz_with_and_without_names(tmp_path: Path) -> None:
    file = saved(tmp_path / "m.npz", scores=SCORES.astype(np.float16), methods=["a", "b"])
    matrix = load_matrix(file)
    assert same(matrix.scores, SCORES)
    assert matrix.scores.dtype == np.float32
    assert (matrix.names, matrix.source) == (("a", "b"), file)
    assert list(matrix.means) == pytest.approx([1.25 / 3, 0.75])
    file = saved(tmp_path / "m.npz", scores=np.eye(2, dtype=np.uint8))
    assert load_matrix(file).names == ("row 0", "row 1")


def test_npz_of_packed_bits(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (3, 11)).astype(np.uint8)
    file = saved(
        tmp_path / "m.npz",
        scores_packed=np.packbits(bits, axis=1),
        history_packed=np.packbits(1 - bits, axis=1),
        shape=[3, 11],
        methods=["a", "b", "c"],
        history_methods=["x", "y", "z"],
    )
    assert same(load_matrix(file).scores, bits)
    history = load_matrix(f"{file}:history")
    assert same(history.scores, 1 - bits)
    assert history.names == ("x", "y", "z")


def test_npz_of_several_tasks(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (2, 9)).astype(np.uint8)
    file = saved(
        tmp_path / "tasks.npz",
        true__sum=np.packbits(bits, axis=1),
        fake_good__sum=np.packbits(1 - bits, axis=1),
        shape__sum=[2, 9, 1],
        prompts__sum=[" add ", "sum up"],
        true__graded=np.array([[0.5, 0.25], [0.0, 1.0]], dtype=np.float16),
        shape__graded=[2, 2, 0],
    )
    matrix = load_matrix(f"{file}:sum")
    assert same(matrix.scores, bits)
    assert matrix.names == ("add", "sum up")
    assert same(load_matrix(f"{file}:fake_good__sum").scores, 1 - bits)
    assert same(load_matrix(f"{file}:graded").scores, np.array([[0.5, 0.25], [0.0, 1.0]]))
    with pytest.raises(ConfigError, match=r"holds no matrix 'scores'; .* Matrices: sum, graded"):
        load_matrix(file)


WIDE = "model,q1,q2,q3,cost\na,0,0.25,1,2\nb,1,,0.5,3\n"
LONG = (
    "example,candidate,score,cost\nq1,a,0,1\nq2,a,0.25,2\nq3,a,1,3\nq1,b,1,2\nq2,b,,4\nq3,b,0.5,3\n"
)


BY_EXAMPLE = "Example,a,b\nq1,0,1\nq2,0.25,\nq3,1,0.5\n"


@pytest.mark.parametrize("text", [WIDE, LONG, BY_EXAMPLE])
def test_csv(tmp_path: Path, text: str) -> None:
    matrix = load_matrix(write(tmp_path / "m.csv", text))
    assert same(matrix.scores, SCORES)
    assert matrix.names == ("a", "b")


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # type: ignore[import-untyped]

    table = pyarrow.table(
        {"model": ["a", "b"], "q1": [0.0, 1.0], "q2": [0.25, None], "q3": [1.0, 0.5]}
    )
    parquet.write_table(table, tmp_path / "m.parquet")
    matrix = load_matrix(str(tmp_path / "m.parquet"))
    assert same(matrix.scores, SCORES)
    assert matrix.names == ("a", "b")


MEANS = [
    "candidate,example,score\na,q1,1\na,q1,0\na,q1,\na,q2,0.5\nb,q1,\nb,q2,1\n",
    "candidate\texample\tscore\na\tq1\t1\na\tq1\t0\na\tq2\t.5\nb\tq2\t1\nb\tq1\tnan\n",
    "model,q1,q2\na,1,0.5\na,0,0.5\nb,,1\n",
]


@pytest.mark.parametrize("text", MEANS)
def test_several_results_of_a_pair_are_their_mean(tmp_path: Path, text: str) -> None:
    name = "m.tsv" if "\t" in text else "m.csv"
    matrix = load_matrix(write(tmp_path / name, text))
    assert same(matrix.scores, np.array([[0.5, 0.5], [np.nan, 1.0]]))


def test_a_first_column_without_a_name_names_the_candidates(tmp_path: Path) -> None:
    """As pandas writes a table with an index; one that counts the rows is left out."""
    for text in (",q1,q2\na,1,0\nb,1,1\n", ",model,q1,q2\n0,a,1,0\n1,b,1,1\n"):
        matrix = load_matrix(write(tmp_path / "m.csv", text))
        assert matrix.names == ("a", "b")
        assert same(matrix.scores, np.array([[1.0, 0.0], [1.0, 1.0]]))


def test_tables_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "m.csv.gz").write_bytes(gzip.compress(LONG.encode()))
    assert same(load_matrix(str(tmp_path / "m.csv.gz")).scores, SCORES)


def test_columns_of_exports_are_known() -> None:
    head = ",".join(field.name for field in fields(PairOutcome) if field.name != "votes")
    row = ",".join("c0" if n < 2 else "1" if n == 2 else "" for n in range(head.count(",") + 1))
    cells = list(
        cells_of([FileRow("line 2", dict(zip(head.split(","), row.split(","), strict=True)))], "x")
    )
    assert cells == [Cell("c0", "c0", 1.0, None, "line 2")]


def test_cells_keep_their_first_seen_order() -> None:
    cells = [Cell("a", "q2", 0.5, 0.1), Cell("b", "q1", 1.0, None), Cell("a", "q1", 0.0, 0.3)]
    matrix = matrix_from_cells(cells, "run 7")
    assert same(matrix.scores, np.array([[0.5, 0.0], [np.nan, 1.0]]))
    assert matrix.source == "run 7"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("model\na\n", "two columns at least"),
        ("model,q1\na,0,1\n", "line 2: 3 values for the 2 columns of the header"),
        (
            "model,q1\na,0\nb,high\n",
            "line 3: column `q1` must be a number, got 'high'; write it as 0.5, verdicts as 1 ",
        ),
        (
            "model,q1\na,0\nb,70\n",
            r"scores must be in \[0, 1\], got 70 of candidate 'b' on example 'q1'",
        ),
        ("model,q1\na,0\nb,\n", "candidate 'b' has no score at all"),
        ("model,q1\n", "holds no results"),
        (
            "model,q1\ncaf\u00e9,1\n",
            "byte 0xe9 at column 4 is no text in UTF-8; save the file as UTF-8",
        ),
        ("model;q1;q2\na;0,5;1\n", "line 2: column `q1` must be a number, got '0,5'"),
        # what a table lacks, or has too much, is named: it may be what was meant
        ("model,example,score\na,q1,1\n", "rename example, score"),
        ("candidate,question,score\na,q1,1\n", "rename score"),
        ("Candidate,Example,Score\na,1,1\n", "rename Example, Score"),
        ("candidate,example,score,weight\na,q1,1,2\n", "has no column `weight`"),
        ("candidate,example,score\na,,1\n", "line 2: `example` is empty"),
        ("candidate,example,score\na,q1,yes\n", "must be a number, got 'yes'; write it as"),
        ("candidate,example,score\na,q1,2\na,q1,0\n", r"must be in \[0, 1\], got 2 of"),
        ("candidate,example,score\na,q1,inf\n", r"must be in \[0, 1\], got inf of"),
        (
            ",q1,q2\n0,1,0\n1,0,1\n",
            "line 2: the first column, `q1`, holds a score \\(1\\); put one",
        ),
    ],
)
def test_what_is_no_score_table_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_matrix(write(tmp_path / "m.csv", text))


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("none.npz", "there is no file 'none.npz'"),
        ("none.csv", "score table none.csv does not exist"),
        ("scores.npy", r"'scores.npy' is not a score file \(\.npz, \.csv, \.parquet\), a log"),
    ],
)
def test_missing_files_are_named(location: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_matrix(location)


def test_a_matrix_checks_itself() -> None:
    scores = SCORES.astype(np.float32)
    with pytest.raises(ValueError, match="candidates x examples"):
        ScoreMatrix(scores[0], ("a",))
    with pytest.raises(ValueError, match="2 rows of scores need as many names, got 1"):
        ScoreMatrix(scores, ("a",))


def as_npy() -> bytes:
    """An array as numpy.save writes it."""
    content = BytesIO()
    np.save(content, SCORES)
    return content.getvalue()


@pytest.mark.parametrize(
    ("write_file", "message"),
    [
        (lambda path: path.write_bytes(b"no archive"), "is no .npz file of plain arrays"),
        (lambda path: path.write_bytes(b"PK\x03\x04 cut off"), "is no .npz file of plain arrays"),
        (lambda path: path.write_bytes(b""), "is no .npz file of plain arrays"),
        (
            lambda path: np.savez(path, scores=np.array([[None, 1]], dtype=object)),
            "is no .npz file of plain arrays.*no objects",
        ),
        (lambda path: np.savez(path, scores=np.array([["a", "b"]])), "must hold numbers, got <U1"),
        (lambda path: path.write_bytes(as_npy()), "holds a single array; write it with"),
    ],
)
def test_files_that_hold_no_plain_arrays_are_refused(
    tmp_path: Path, write_file: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "scores.npz"
    write_file(path)
    with pytest.raises(ConfigError, match=message):
        load_matrix(str(path))


def test_a_table_as_spreadsheets_save_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_bytes(b"\xef\xbb\xbfcandidate,e1,e2\r\na,0.5,1\r\nb,0,0\r\n")
    assert load_matrix(str(path)).names == ("a", "b")


# best mean and H1 as published in the data's own table
MEASURED = {
    "bfcl_2024-08-11.npz": ((71, 1700), 0.9053, 23_769),
    "livecodebench_gen_2024-04.npz": ((45, 400), 0.4352, 1_474),
    "aslib_sat12_indu.npz": ((31, 1167), 0.6536, 11_037),
    "openllm2_bbh5_semisynthetic.npz": ((1000, 9574), 0.6393, 136_594),
    "openllm2_bbh5_semisynthetic.npz:history": ((1000, 9574), 0.6240, 302_606),
    "rautoeval_prompting.npz:sentiment": ((100, 1167), 0.9169, 141_892),
    "rautoeval_prompting.npz:informal_to_formal": ((100, 23), 0.5737, 11_240),
    "rte_snow2008.npz": ((164, 800), 1.0, np.inf),
}


@pytest.mark.skipif(not DATA.exists(), reason="needs the score matrices in ../shared/data")
@pytest.mark.parametrize("location", MEASURED)
def test_real_matrices(location: str) -> None:
    shape, best, h1 = MEASURED[location]
    matrix = load_matrix(str(DATA / location))
    assert matrix.scores.shape == shape
    assert matrix.means.max() == pytest.approx(best, abs=5e-5)
    assert hardness(matrix.means) == pytest.approx(h1, abs=0.5)


def test_a_table_may_hold_a_score_that_rounding_took_beyond_its_range(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("candidate,x,y\na,1.0000000000000002,-1e-17\nb,0.5,1\n")
    assert load_matrix(str(path)).scores.tolist() == [[1.0, 0.0], [0.5, 1.0]]
    path.write_text("candidate,x,y\na,1.00001,0\nb,0.5,1\n")
    with pytest.raises(ConfigError, match=r"got 1\.00001 of candidate 'a'"):
        load_matrix(str(path))
