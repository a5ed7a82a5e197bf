"""Datasets: read files and hub datasets row by row, and make examples of the rows.

Text formats are JSON lines, JSON, YAML, CSV and TSV; parquet and the Hugging Face hub need the
extra ``data``. Errors name the file and the row. Of recorded traces, each call of a model is a row
(``config.traces``).
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeAlias

from bestarm_agent.config.attachments import url_of
from bestarm_agent.config.fields import unique_keys
from bestarm_agent.config.files import check_file, check_regular, parsed_yaml, shown_path
from bestarm_agent.config.functions import load_object
from bestarm_agent.config.input_specs import DatasetSpec, HuggingFaceSpec
from bestarm_agent.config.traces import calls_in, is_trace
from bestarm_agent.domain.redaction import without_fields
from bestarm_agent.domain.values import Example, Json, canonical
from bestarm_agent.errors import ConfigError, PluginError, nearest
from bestarm_agent.plugins import Registry, optional

AUTOMATIC_ID = "id"
_ID_DIGITS = 6
# Floats hold every whole number below this exactly. Above it digits would be invented.
_EXACT_BELOW = 2.0**53


@dataclass(frozen=True, slots=True)
class FileRow:
    """One row of a file, and its position ("line 3")."""

    position: str
    values: Mapping[str, object]


def read_examples(spec: DatasetSpec, base_dir: Path) -> tuple[Example, ...]:
    """Read the dataset of a study: a file, or a dataset of the hub, downloaded if necessary.

    Args:
        spec: says where it is, and which fields hold id, target and inputs.
        base_dir: folder from which its path starts, and where a reader's module is looked up.

    Raises:
        ConfigError: the dataset is missing, empty or malformed, a row breaks a rule, or the extra
            ``data`` is missing.
        PluginError: the function of a dotted path cannot be used.
    """
    wanted = None if spec.fields is None else {*spec.fields, spec.id, spec.target} - {None}
    if (hub := spec.huggingface) is not None:
        source = f"split `{hub.split}` of the Hugging Face dataset {hub.name}"
        rows = _huggingface_rows(hub, wanted, source)
    else:
        path = base_dir / (spec.path or "")
        source = shown_path(path)
        rows = load_rows(path, format=spec.format, wanted=wanted, base_dir=base_dir, drop=spec.drop)
    return examples_of(rows, spec, source)


def examples_of(rows: Iterable[FileRow], spec: DatasetSpec, source: str) -> tuple[Example, ...]:
    """Turn rows into examples, in order; raise ConfigError with the dataset and the row.

    Fields must be there, ids unique, targets not empty, and values JSON.
    """
    if spec.drop:
        less: Callable[[Any, Sequence[str]], Any] = without_fields  # bytes are no JSON
        rows = (FileRow(row.position, less(row.values, spec.drop)) for row in rows)
    examples: list[Example] = []
    positions: dict[str, str] = {}  # by id
    seen: set[str] = set()
    id_field = spec.id
    for number, row in enumerate(islice(rows, spec.limit), start=1):
        where = f"{source}, {row.position}"
        seen.update(row.values)
        # The first row decides for all, so that ids are of one kind: a field, or numbers of rows.
        if number == 1 and id_field is None and AUTOMATIC_ID in row.values:
            id_field = AUTOMATIC_ID
        # Leading zeros, so that ids sort as the rows do.
        name = f"{number:0{_ID_DIGITS}}"
        if id_field is not None:
            name = _id_text(_value(row, id_field, where), f"{where}: `{id_field}`")
        if name in positions:
            raise ConfigError(
                f"{source}: the id `{name}` stands on {positions[name]} and on {row.position}; "
                "make ids unique, or name another field as the id"
            )
        positions[name] = row.position
        inputs: Any = _inputs(row, spec)  # checked next
        reference = None
        if (field := spec.target) is not None:
            reference = target_of(_value(row, field, where), f"{where}: `{field}`")
        examples.append(Example(name, inputs, reference, position=where))
        _check_content(examples[-1], where)
    if not examples:
        raise ConfigError(f"{source} holds no rows; add at least one example")
    for field in spec.fields or ():
        if field not in seen:
            raise ConfigError(f"{source}: no row has the field `{field}`; {nearest(field, seen)}")
    return tuple(examples)


def _inputs(row: FileRow, spec: DatasetSpec) -> dict[str, object]:
    hidden = spec.target if spec.target in row.values else (spec.target or "").partition(".")[0]
    names = [field for field in row.values if field != hidden]
    chosen = names if spec.fields is None else [n for n in spec.fields if n in row.values]
    return {field: input_of(row.values[field]) for field in chosen}


def input_of(value: object) -> object:
    """Return the bytes of an image or a PDF as a data URL, or the path that stands for them."""
    match value:
        case {"bytes": None, "path": str(path)}:
            return path
        case {"bytes": bytes(content)} | bytes(content):
            return url_of(content) or content
    return value


def given_examples(given: object) -> tuple[Example, ...]:
    """Check what a caller hands in as the dataset; ids and targets become those of a file."""
    examples: dict[str, Example] = {}
    for number, example in enumerate(given if isinstance(given, Iterable) else [given]):
        where = f"examples[{number}]"
        if not isinstance(example, Example) or not isinstance(example.inputs, Mapping):
            wanted = 'an Example, as Example("1", {"question": "2 + 2?"}, "4")'
            raise ConfigError(f"{where} must be {wanted}, got {example!r:.60}")
        name, target = _id_text(example.id, f"{where}: `id`"), example.reference
        if name in examples:
            raise ConfigError(f"{where}: the id `{name}` stands twice; make ids unique")
        if target is not None:
            target = target_of(target, f"{where}: `reference`")
        examples[name] = replace(example, id=name, reference=target)
        _check_content(examples[name], where)
    if not examples:
        raise ConfigError("`examples` holds none; give at least one")
    return tuple(examples.values())


def target_of(value: object, what: str) -> str | tuple[str, ...]:
    """Return a value as the acceptable answers; raises ConfigError, which begins with ``what``."""
    # A list of calls of tools is one answer, not several acceptable ones.
    calls = value if isinstance(value, list) else [value]
    named = [isinstance(call, dict) and {"name", "function"} & call.keys() for call in calls]
    if calls and all(named):
        return json.dumps(value, ensure_ascii=False)  # calls of tools
    if isinstance(value, list | tuple) and value:
        return tuple(_target_text(answer, what) for answer in value)
    return _target_text(value, what)


def _value(row: FileRow, field: str, where: str) -> object:
    """Return a field, or a part of one: `answers.text`."""
    value: Any = row.values
    for step in [field] if field in value else field.split("."):
        if not isinstance(value, Mapping) or step not in value:
            known = value if isinstance(value, Mapping) else row.values
            raise ConfigError(f"{where}: there is no field `{field}`; {nearest(step, known)}")
        value = value[step]
    return value.tolist() if hasattr(value, "tolist") else value  # of numpy


def _id_text(value: object, what: str) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of integers with gaps
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ConfigError(f"{what}: an id must be text or an integer, got {value!r:.60}")
    return str(value)


def _target_text(value: object, what: str) -> str:
    """Return a target as text; whole numbers without ``.0``, as models write them."""
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        raise ConfigError(f"{what}: the target is empty; fill it in or remove the row")
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and isfinite(value):
        is_whole = value.is_integer() and abs(value) < _EXACT_BELOW
        return str(int(value) if is_whole else value)
    raise ConfigError(
        f"{what}: a target must be text, a number or a list of them, got {value!r:.60}; "
        "`field.part` names a part of an object"
    )


def _check_content(example: Example, where: str) -> None:
    try:
        # The digest serialises everything once. Only if that fails is each field looked at by
        # itself.
        _ = example.digest
    except (TypeError, ValueError, RecursionError):
        for field, value in {**example.inputs, "the target": example.reference}.items():
            if problem := _problem(value):
                raise ConfigError(f"{where}: field `{field}` {problem}") from None
        raise


def _problem(value: Json) -> str | None:
    try:
        canonical(value).encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair (\\ud800 to \\udfff); correct the text"
    except ValueError:
        return "is not a number (NaN or infinite); correct it, or leave it out of `fields`"
    except (TypeError, RecursionError):
        if isinstance(value, bytes):
            return "holds bytes of no PNG, JPEG, GIF, WebP or PDF; leave it out of `fields`"
        kind = type(value).__name__
        return f"holds {kind}, which is not text, a number or a list; leave it out of `fields`"
    return None


MAX_LINE_BYTES = 16_000_000

# How files begin that hold no rows, or not in this form.
_NO_ROWS = {
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "is UTF-16; save it as UTF-8"),
    b"\x1f\x8b": "is compressed by gzip; let its name end in .gz",
    b"PK\x03\x04": "is a ZIP file or a spreadsheet; unpack it, or export it as CSV",
    b"version https://git-lfs": "only points to a file in Git LFS; run `git lfs pull`",
    **dict.fromkeys((b"<!DOCTYPE", b"<!doctype", b"<html"), "is a web page; download it again"),
}


def read_jsonl(path: Path) -> Iterator[FileRow]:
    """Read one JSON object per line; blank lines are skipped."""
    for number, line in _lines(path):
        if line.strip():
            position = f"line {number}"
            yield FileRow(position, _object(_json(line.rstrip(), path, position), path, position))


def read_json(path: Path) -> Iterator[FileRow]:
    """Read a JSON list of objects, which may be the only one of an object: {"data": [...]}.

    An object of columns is read, too, as pandas writes tables: ``{"question": {"0": "1 + 1?"}}``.
    """
    rows = _json("".join(line for _, line in _lines(path)), path, None)
    return _listed(rows, path, lambda *at: f"row {at[-1] + 1}")


def read_yaml_list(path: Path) -> Iterator[FileRow]:
    """Read a YAML list of mappings, as ``read_json``, in which comments may stand."""
    rows, lines = parsed_yaml(path, "".join(line for _, line in _lines(path)))
    return _listed(rows, path, lambda *at: f"line {lines.get(at, 1)}")


def _listed(rows: object, path: Path, position: Callable[..., str]) -> Iterator[FileRow]:
    """Yield the rows of a list, of the only list of objects in an object, or of its columns."""
    what, key = "the list", tuple[str, ...]()
    if isinstance(rows, dict):
        held = [name for name, value in rows.items() if _holds_rows(value)]
        if is_trace(rows):
            rows = [rows]
        elif len(held) == 1:
            rows, key = rows[held[0]], (held[0],)
        elif held:
            what = f"one of `{'`, `'.join(held)}`"
        else:
            rows = _rows_of_columns(rows) or rows
    if not isinstance(rows, list):
        raise ConfigError(
            f"{shown_path(path)}: expected a list of objects, got {_kind(rows)}; if every line is "
            f"an object of its own, the format is jsonl; else let the file hold {what} alone"
        )
    for number, row in enumerate(rows):
        where = position(*key, number)
        yield FileRow(where, _object(row, path, where))


def _holds_rows(value: object) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(row, dict) for row in value)


def _rows_of_columns(columns: Mapping[str, object]) -> list[Json]:
    """Return the rows of columns, which are lists, or mappings by number; [] if they differ."""
    keys, values = set[tuple[str, ...]](), list[Iterable[Json]]()
    for column in columns.values():
        column = dict(enumerate(column)) if isinstance(column, list) else column
        if not isinstance(column, dict) or not all(f"{key}".isdecimal() for key in column):
            return []
        keys.add(tuple(map(str, column)))
        values.append(column.values())
    rows = zip(*values, strict=True) if len(keys) == 1 else ()
    return [dict(zip(columns, row, strict=True)) for row in rows]


_SEPARATOR = re.compile(r"sep=(.)")


def read_separated(path: Path, delimiter: Literal[",", "\t"]) -> Iterator[FileRow]:
    """Read a table with a header; every value is text. Columns without a name are skipped.

    But the first one is ``index``, as pandas calls it, unless it counts the rows.
    """
    records = _records(path, delimiter)
    _, header = next(records, (1, []))
    # A first line for Excel may say the separator. Else one column whose name holds another one is
    # no table: Excel writes semicolons where a comma is the decimal sign.
    said = _SEPARATOR.fullmatch(delimiter.join(header))
    only = header[0] if len(header) == 1 else ""
    if other := said[1] if said else next((mark for mark in ";\t|" if mark in only), ""):
        records = _records(path, other)
        _, header = next(islice(records, 1 if said else 0, None), (1, []))
    names = _header(header, path)
    first = next(records, None)
    if first and names[0] == "" and "index" not in names and first[1][0].strip() not in "01":
        names[0] = "index"
    for line, record in chain((first,) if first else (), records):
        position = f"line {line}"
        # Spreadsheets write separators also for columns in which nothing stands.
        while len(record) > len(names) and not record[-1].strip(" "):
            record.pop()
        if len(record) != len(names):
            raise ConfigError(
                f"{shown_path(path)}, {position}: {len(record)} values for the {len(names)} "
                "columns of the header; put quotes around values that hold separators or line "
                "breaks, and a separator before each value that is empty"
            )
        yield FileRow(position, {n: value for n, value in zip(names, record, strict=True) if n})


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield every record in which anything stands, with its first line."""
    reader = csv.reader((line for _, line in _lines(path)), delimiter=delimiter, strict=True)
    while True:
        # A quoted value may span lines: a record is named by its first one, read before the record
        # is.
        line = reader.line_num + 1
        # The limit is a global of the csv module. Generators run in turns with other code, so it is
        # set for one record and put back before that is handed out.
        limit = csv.field_size_limit(MAX_LINE_BYTES)
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise ConfigError(
                f"{shown_path(path)}, line {line}: {error}; a value that holds quotes stands in "
                'quotes and doubles them: "a ""b"""'
            ) from None
        finally:
            csv.field_size_limit(limit)
        if record is None:
            return
        if any(value.strip(" ") for value in record):
            yield line, record


def _header(record: list[str], path: Path) -> list[str]:
    names = [name.strip() for name in record]
    for name in names:
        if name and names.count(name) > 1:
            raise ConfigError(f"{shown_path(path)}: two columns are called `{name}`; rename one")
    return names


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a UTF-8 file, with line ends, without a byte-order mark."""
    check_regular(path)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        number = 0
        # One byte more than allowed tells a line that is too long, without reading it to its end.
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise ConfigError(
                    f"{shown_path(path)}, line {number}: longer than {MAX_LINE_BYTES:,} bytes; "
                    "shorten it, or use parquet"
                )
            for begins, what in _NO_ROWS.items() if number == 1 else ():
                if line.startswith(begins):
                    raise ConfigError(f"{shown_path(path)} {what}")
            if number == 1 and b"\r" in line.rstrip(b"\r\n"):
                raise ConfigError(
                    f"{shown_path(path)} ends its lines by a carriage return alone, as old Macs "
                    "did; save it with line feeds"
                )
            yield number, _decoded(line, number, path)
    if number == 0:
        raise ConfigError(f"{shown_path(path)} is empty; add at least one example")


def _decoded(line: bytes, number: int, path: Path) -> str:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        start = text.find("\0")  # every second byte of UTF-16
    except UnicodeDecodeError as error:
        start = error.start
    if start < 0:
        return text
    raise ConfigError(
        f"{shown_path(path)}, line {number}: byte {line[start]:#04x} at column {start + 1} is no "
        "text in UTF-8; save the file as UTF-8"
    )


def _json(text: str, path: Path, position: str | None) -> object:
    """Parse JSON; ``position`` is None if the text is the whole file."""
    try:
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        hint = "; if every line is an object, the format is jsonl" if "Extra" in error.msg else ""
        if position:
            hint = "; a line is one object, and no comma behind it; a list is the format json"
        position = position or f"line {error.lineno}"
        reason = f", column {error.colno}: malformed JSON: {error.msg}{hint}"
    except (ValueError, RecursionError) as error:
        position, reason = position or f"line {_line_of_row(text)}", f": {error}"
    raise ConfigError(f"{shown_path(path)}, {position}{reason}")


def _line_of_row(text: str) -> int:
    """Return the line on which the first row of a list begins that cannot be read."""
    begins = end = text.find("[") + 1
    with suppress(ValueError, RecursionError):
        while True:
            while text[end : end + 1] in (" ", "\t", "\r", "\n", ","):
                end += 1
            begins = end
            _, end = _JSON.raw_decode(text, begins)
    return text.count("\n", 0, begins) + 1


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON; leave the field out, or write null")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=unique_keys)


def _object(value: object, path: Path, position: str) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    hint = "; if the file is one list, the format is json" if isinstance(value, list) else ""
    raise ConfigError(
        f"{shown_path(path)}, {position}: expected an object with fields, got {_kind(value)}{hint}"
    )


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


_BATCH_ROWS = 1024


_Wanted: TypeAlias = Collection[str | None] | None  # the columns to read; None: all


def _selected(wanted: _Wanted, available: Sequence[str], source: str) -> list[str]:
    """Return the columns of a table to read; raise ConfigError if it lacks one."""
    if wanted is None:
        return list(available)
    columns = {name if name in available else str(name).partition(".")[0] for name in wanted}
    for name in sorted(map(str, columns)):
        if name not in available:
            raise ConfigError(f"{source} has no field `{name}`; {nearest(name, available)}")
    return [name for name in available if name in columns or name == AUTOMATIC_ID]


def read_parquet(path: Path, wanted: _Wanted) -> Iterator[FileRow]:
    """Read the required columns of a parquet file."""
    parquet = optional("pyarrow.parquet", "data", "reading parquet files")
    lib = import_module("pyarrow.lib")
    try:
        with parquet.ParquetFile(path) as file:
            names = _selected(wanted, file.schema_arrow.names, shown_path(path))
            _header(names, path)  # no two are equal
            batches = file.iter_batches(batch_size=_BATCH_ROWS, columns=names)
            yield from _arrow_rows(batches)
    except (lib.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{shown_path(path)} is not a sound parquet file: {reason}") from None


def _huggingface_rows(hub: HuggingFaceSpec, wanted: _Wanted, source: str) -> Iterator[FileRow]:
    library = optional("datasets", "data", "reading datasets of the Hugging Face hub")
    try:
        table = library.load_dataset(hub.name, hub.subset, split=hub.split, revision=hub.revision)
    except Exception as error:  # the hub, the network, the disk, the dataset's own files
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ConfigError(f"cannot load {source}: {reason}") from error
    table = table.select_columns(_selected(wanted, table.column_names, source))
    return _arrow_rows(table.with_format("arrow").iter(batch_size=_BATCH_ROWS))


def _arrow_rows(batches: Iterator[Any]) -> Iterator[FileRow]:
    number = 0
    for batch in batches:
        names = batch.schema.names
        columns = [_arrow_values(batch.column(index)) for index in range(len(names))]
        for values in zip(*columns, strict=True):
            number += 1
            yield FileRow(f"row {number}", dict(zip(names, values, strict=True)))


def _arrow_values(column: Any) -> list[object]:  # noqa: ANN401 - an arrow array
    """Return the JSON values of a column: short floats stay short, times and decimals are text."""
    arrow = import_module("pyarrow")
    types = arrow.types
    # A 32-bit 0.1 widened to 64 bits is 0.10000000149011612. By way of text it stays 0.1, as
    # whoever wrote the file sees it.
    if types.is_float16(column.type) or types.is_float32(column.type):
        column = column.cast(arrow.float32()).cast(arrow.string()).cast(arrow.float64())
    elif types.is_temporal(column.type) or types.is_decimal(column.type):
        column = column.cast(arrow.string())
    values: list[object] = column.to_pylist()
    return values


Reader: TypeAlias = Callable[[Path], Iterable[Mapping[str, object]]]

READERS: Final = Registry[Reader](
    "dataset format", None, {}, callable, "a function from a path to rows"
)
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


def load_rows(
    path: Path,
    kind: str = "dataset",
    *,
    format: str = "auto",
    wanted: _Wanted = None,
    base_dir: Path | None = None,
    drop: Sequence[str] = (),
) -> Iterator[FileRow]:
    """Read the rows of a file, as ``read_examples``; ``kind`` names it in a ConfigError.

    Of a parquet file, only the columns ``wanted`` are read. The fields ``drop`` are removed from
    the messages of traces.
    """
    check_file(path, kind)
    try:
        is_known = format not in ("auto", "traces")
        rows = _rows(path, format if is_known else _format_of(path), wanted, base_dir or Path())
        yield from rows if is_known else traced(rows, path, sure=format == "traces", drop=drop)
    except (OSError, EOFError, zlib.error) as error:  # a compressed file may be cut off
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {shown_path(path)}: {reason}") from None


def traced(
    rows: Iterator[FileRow], path: Path, *, sure: bool = False, drop: Sequence[str] = ()
) -> Iterator[FileRow]:
    """Yield a row for each call of a model if these are traces, which the first row says.

    ``sure`` takes them for traces. Raises ConfigError if traces hold no call, with the reasons.
    """
    # The first row decides for the whole file, so that the rest need not be held in memory.
    first = next(rows, None)
    if first is None or not (sure or is_trace(first.values)):
        yield from chain(() if first is None else [first], rows)
        return
    left_out, has_call = Counter[str](), False
    for row in chain([first], rows):
        for call in calls_in(row.values, left_out, drop):
            has_call = True
            yield FileRow(row.position, call)
    if not has_call:
        reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.most_common())
        raise ConfigError(
            f"{shown_path(path)}: no call of a model with its messages and its answer among the "
            f"spans ({reasons or 'there are none'}); record the contents of messages, too"
        )


_TEXTS: Mapping[str, Callable[[Path], Iterator[FileRow]]] = {
    "jsonl": read_jsonl,
    "json": read_json,
    "yaml": read_yaml_list,
    "csv": partial(read_separated, delimiter=","),
    "tsv": partial(read_separated, delimiter="\t"),
}


def _rows(path: Path, format: str, wanted: _Wanted, base_dir: Path) -> Iterator[FileRow]:
    if format in _TEXTS:
        return _TEXTS[format](path)
    if format == "parquet":
        return read_parquet(path, wanted)
    read = READERS.load(format, imported=partial(load_object, base_dir=base_dir))
    return _read_by_plugin(read, path, format)


def _read_by_plugin(read: Reader, path: Path, format: str) -> Iterator[FileRow]:
    try:
        for number, values in enumerate(read(path), start=1):
            yield FileRow(f"row {number}", values)
    except (OSError, ConfigError):
        raise
    except Exception as error:  # a reader may raise anything
        raise PluginError(
            f"dataset format `{format}` cannot read {shown_path(path)}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _format_of(path: Path) -> str:
    shown, name = shown_path(path), path.name.lower().removesuffix(".gz")
    format_name = _SUFFIXES.get(Path(name).suffix)
    if format_name == "parquet" and name != path.name.lower():
        raise ConfigError(f"{shown}: parquet is compressed in itself; unpack the file")
    if format_name is None:
        raise ConfigError(
            f"{shown}: the suffix {path.suffix!r} is none of {', '.join(_SUFFIXES)}; export it as "
            "one of these (a spreadsheet as CSV), or say the dataset's `format` if it is one"
        )
    return format_name
