from __future__ import annotations

import datetime
import decimal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.input_specs import DatasetSpec
from bestarm_agent.domain.values import Example
from bestarm_agent.errors import ConfigError

pa = pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def examples_of(**spec: Any) -> tuple[Example, ...]:  # noqa: ANN401 - keys of a study
    return read_examples(DatasetSpec.model_validate(spec), Path())


@pytest.fixture
def parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table = pa.table(
        {
            "id": pa.array([1.0, 2.0]),
            "q": ["x", None],
            "answer": pa.array([0.1, 46.0], pa.float32()),
            "many": [["a", "b"], ["c"]],
            "when": [datetime.date(2026, 1, 2)] * 2,
            "price": [decimal.Decimal("1.10")] * 2,
            "image": [b"png"] * 2,
        }
    )
    path = Path("d.parquet")
    pq.write_table(table, path)
    return path


def test_parquet_is_read_without_float_noise(parquet: Path) -> None:
    fields = ["q", "when", "price"]
    first, second = examples_of(path=str(parquet), target="answer", fields=tuple(fields))
    assert (first.id, first.reference) == ("1", "0.1")
    assert first.inputs == {"q": "x", "when": "2026-01-02", "price": "1.10"}
    assert (second.id, second.reference, second.inputs["q"]) == ("2", "46", None)
    assert examples_of(path=str(parquet), target="many", fields=("q",))[0].reference == ("a", "b")
    assert len(examples_of(path=str(parquet), fields=("q",), limit=1)) == 1


def test_what_templates_cannot_use_is_refused(parquet: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^d\.parquet, row 1: field `image` holds bytes of no PNG"
    ):
        examples_of(path=str(parquet))


def test_a_part_of_a_struct_may_be_the_target(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    rows = [{"q": "a", "answers": {"text": ["x", "y"], "start": [1, 2]}, "z": 1}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    (row,) = examples_of(path=str(path), target="answers.text", fields=("q",))
    assert (row.reference, dict(row.inputs)) == (("x", "y"), {"q": "a"})


def test_missing_parquet_fields_are_named(parquet: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^d\.parquet has no field `answr`; did you mean `answer`\?$"
    ):
        examples_of(path=str(parquet), target="answr", fields=("q",))
    with pytest.raises(
        ConfigError, match=r"^d\.parquet has no field `z`; there are `answer`, `id`"
    ):
        examples_of(path=str(parquet), fields=("z",))


def test_nan_and_null_targets_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"q": [1.5, float("nan")], "a": [1.0, float("nan")]}), path)
    with pytest.raises(ConfigError, match=r"row 2: `a`: a target must be text, a number.*got nan"):
        examples_of(path=str(path), target="a")
    with pytest.raises(ConfigError, match=r"row 2: field `q` is not a number \(NaN or infinite\)"):
        examples_of(path=str(path), fields=("q",))


def test_a_broken_parquet_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(ConfigError, match=r"^d\.parquet is not a sound parquet file: ") as caught:
        examples_of(path="d.parquet")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("parquet")
@pytest.mark.parametrize(
    ("module", "key", "value"),
    [("pyarrow.parquet", "path", "d.parquet"), ("datasets", "huggingface", "org/name")],
)
def test_a_missing_extra_is_named(
    module: str, key: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"needs the extra `data`; run: pip install 'bestarm-ag"):
        examples_of(**{key: value})


class HubTable:
    """Behaves like ``datasets.Dataset`` as far as it is used."""

    def __init__(self, table: Any) -> None:  # noqa: ANN401 - an arrow table
        self.table = table
        self.column_names = table.column_names

    def select_columns(self, names: list[str]) -> HubTable:
        return HubTable(self.table.select(names))

    def with_format(self, kind: str) -> HubTable:
        assert kind == "arrow"
        return self

    def iter(self, batch_size: int) -> Iterator[Any]:
        yield from (
            self.table.slice(at, batch_size) for at in range(0, len(self.table), batch_size)
        )


def test_the_hub_is_asked_for_one_split(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def load_dataset(
        name: str, subset: str | None, *, split: str, revision: str | None
    ) -> HubTable:
        calls.append((name, subset, split, revision))
        table = pa.table({"q": ["x"] * 3000, "label": [1] * 3000, "image": [b"png"] * 3000})
        return HubTable(table)

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    hub = {"name": "org/name", "subset": "main", "split": "train", "revision": "v1"}
    examples = examples_of(huggingface=hub, target="label", fields=("q",))
    assert calls == [("org/name", "main", "train", "v1")]
    assert len(examples) == 3000
    assert (examples[-1].id, examples[-1].inputs, examples[-1].reference) == (
        "003000",
        {"q": "x"},
        "1",
    )
    with pytest.raises(
        ConfigError,
        match=r"^split `test` of the Hugging Face dataset org/name has no field `lable`; did you",
    ):
        examples_of(huggingface="org/name", target="lable", fields=("q",))


def test_what_the_hub_says_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: object, **__: object) -> None:
        raise ValueError("Unknown split 'tset'.\nShould be one of ['test'].")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(
        ConfigError,
        match=r"^cannot load split `tset` of the Hugging Face dataset org/name: Unknown split 'ts"
        r"et'\. Should be one of",
    ):
        examples_of(huggingface={"name": "org/name", "split": "tset"})


def test_two_columns_of_one_name_are_refused(parquet: Path) -> None:
    """Arrow allows them, and of an example one would be lost unseen."""
    columns = [pa.array(["a"]), pa.array(["b"]), pa.array(["c"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["q", "q", "answer"]), parquet)
    with pytest.raises(ConfigError, match=r"^d\.parquet: two columns are called `q`; rename one$"):
        examples_of(path=str(parquet), target="answer")
    assert examples_of(path=str(parquet), target="answer", fields=("answer",))[0].reference == "c"
