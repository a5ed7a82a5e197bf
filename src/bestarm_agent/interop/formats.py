"""Results in other tools' logs, in one form: a reader for each format, known by the content.

Inspect's logs, schema 2 (`.eval`, a zip whose members may be zstd, and `.json`); lm-eval 0.4's
samples, whose metrics are `METRIC,FILTER`, documents joined on their hash, model and settings in
`results_DATE.json` beside them; promptfoo's results, versions 2 and 3, where a candidate is a
provider with a prompt, an example a test's variables and assertions; plain score tables, and
recorded answers, which `import` writes.
"""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite, nan
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from bestarm_agent.domain.digest import digest
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.replay import Record, parse_recording
from bestarm_agent.simulation.score_tables import read_table

Object: TypeAlias = Mapping[str, Any]  # Any: parsed JSON that someone else wrote

_LONGEST = 48  # characters of a setting or an input that a name may hold
_LONGEST_MODEL = 400
_ODD = re.compile(r"[^\w.:@+()=,/-]+")


@dataclass(frozen=True, slots=True)
class Result:
    """One answer, or one failed call, in another tool's log."""

    # `model`, and whatever else may tell candidates apart: prompt, temperature, ...
    candidate: Mapping[str, str]
    example: str
    task: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)  # by metric; empty: no verdict
    repeat: str = ""  # which repeat of the pair; of equal ones, the last with a score counts
    question: str | None = None  # the example's input, for people
    text: str | None = None  # the answer; None where the log has none, or nothing asked for it
    error: str | None = None
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None


def label_candidates(results: Sequence[Result]) -> list[str]:
    """Return the label of each result's candidate.

    A label is the model, followed by what differs between the candidates of the result's task, in
    characters that names of models may hold.
    """
    traits = {"model", *(key for result in results for key in result.candidate)}
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for result in results:
        for key in traits:
            values[result.task, key].add(result.candidate.get(key, ""))
    models = _names({result.candidate["model"] for result in results}, _LONGEST_MODEL)
    names = {place: _names(found, _LONGEST) for place, found in values.items()}
    return [
        ",".join(
            models[value] if key == "model" else f"{key}={names[result.task, key][value]}"
            for key, value in result.candidate.items()
            if key == "model" or len(values[result.task, key]) > 1
        )
        for result in results
    ]


def _names(values: Iterable[str], longest: int) -> dict[str, str]:
    """Return a name for each value; long ones, and those of equal names, get a digest."""
    names = {value: _ODD.sub("_", value).strip("_") for value in values}
    count = Counter(names.values())
    return {
        value: name
        if len(name) <= longest and count[name] == 1
        else f"{name[:longest]}-{digest(value, length=8)}"
        for value, name in names.items()
    }


def example_id(*content: str) -> str:
    """Return the id of an example that a log names by its content: its start, and a digest."""
    return f"{' '.join(content[0].split())[:_LONGEST]} {digest(content, length=8)}"


def plain(value: object) -> str:
    """Return a setting as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_VERSION = 2
_VALUES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_DECIMAL = re.compile(r"[+-]?\d+(\.\d+)?")
_JOURNAL = "_journal"
# settings of sending calls, which leave the answers as they are
_SENDING = {
    "adaptive_connections",
    "attempt_timeout",
    "batch",
    "cache",
    "max_connections",
    "max_retries",
    "timeout",
}


def is_log(document: Object) -> bool:
    """Return whether a JSON object is an Inspect log."""
    spec = document.get("eval")
    return isinstance(spec, Mapping) and "task" in spec and "model" in spec


def read_document(document: Object, where: str) -> Iterator[Result]:
    """Yield the results of a `.json` log; raises ConfigError."""
    return _results(document, document.get("samples") or (), where)


def read_archive(path: Path, *, texts: bool) -> Iterator[Result]:
    """Yield the results of an `.eval` log, with the answers' texts if asked for.

    Of a run that was cut off, the samples that were finished are there. Raises ConfigError.
    """
    with _opened(path) as archive:
        names = archive.namelist()
        start = f"{_JOURNAL}/start.json"
        header = "header.json" if "header.json" in names else start
        if header not in names:
            raise ConfigError(f"{path}: no Inspect log: the archive has no header.json")
        members = _texts(names) if texts else _summaries(names)
        samples = [sample for name in members for sample in _listed(archive.read(name))]
        yield from _results(json.loads(archive.read(header)), samples, str(path))


def _texts(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("samples/") and name.endswith(".json")]


def _summaries(names: Iterable[str]) -> list[str]:
    whole = [name for name in names if name == "summaries.json"]
    return whole or [name for name in names if name.startswith(f"{_JOURNAL}/summaries/")]


def _listed(content: bytes) -> list[Any]:
    value = json.loads(content)
    return value if isinstance(value, list) else [value]


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    module = _zip_module()
    try:
        with module.ZipFile(path) as archive:
            yield archive
    except NotImplementedError:
        raise ConfigError(
            f"{path}: its members are compressed with zstd, which this Python cannot read; "
            "pip install 'bestarm-agent[interop]'"
        ) from None
    except (module.BadZipFile, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: a damaged Inspect log: {error}") from error


def _zip_module() -> ModuleType:
    """Return a `zipfile` that knows zstd, if there is one: Python's own from 3.14 on."""
    try:
        from backports.zstd import zipfile as with_zstd
    except ImportError:
        return zipfile
    return with_zstd


def _results(log: Object, samples: Iterable[Object], where: str) -> Iterator[Result]:
    if log.get("version") != _VERSION:
        raise ConfigError(
            f"{where}: an Inspect log of schema {log.get('version')!r}; schema {_VERSION} is read"
        )
    spec = log["eval"]
    candidate = _candidate(spec, log.get("plan") or {})
    for sample in samples:
        error = sample.get("error")
        yield Result(
            candidate=candidate,
            example=str(sample["id"]),
            task=str(spec["task"]),
            scores={} if error else scores_in(sample.get("scores") or {}),
            repeat=f"{spec.get('task_id')} {sample.get('epoch', 1)}",
            question=plain(sample["input"]) if "input" in sample else None,
            text=(sample.get("output") or {}).get("completion"),
            error=str(error["message"] if isinstance(error, Mapping) else error) if error else None,
            seconds=float(sample.get("working_time") or sample.get("total_time") or 0.0),
            **usage_in((sample.get("model_usage") or {}).values()),
        )


def _candidate(spec: Object, plan: Object) -> dict[str, str]:
    """Return the model and its settings: arguments of task and solver, and of generating.

    A log that our own export wrote names its candidate.
    """
    if "bestarm_agent" in (spec.get("packages") or {}):
        return {"model": str(spec["task_args"]["candidate"])}
    generating = {**(spec.get("model_generate_config") or {}), **(plan.get("config") or {})}
    settings = {
        **(spec.get("task_args") or {}),
        "solver": spec.get("solver"),
        **(spec.get("solver_args") or {}),
        **generating,
    }
    unlike = {key for key, value in settings.items() if value is None} | _SENDING | {"model"}
    named = {key: plain(value) for key, value in settings.items() if key not in unlike}
    return {"model": str(spec["model"]), **named}


def scores_in(scores: Object) -> dict[str, float]:
    """Return the numbers by scorer; a scorer with several values gives one for each."""
    found: dict[str, float] = {}
    for name, score in scores.items():
        for label, value in _parts(name, score["value"]):
            number = _number(value)
            if isfinite(number):  # NaN: the scorer gave no verdict
                found[label] = number
    return found


def _parts(name: str, value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(f"{name}/{key}", part) for key, part in value.items()]
    if isinstance(value, list):
        return [(f"{name}/{key}", part) for key, part in enumerate(value)]
    return [(name, value)]


def _number(value: object) -> float:
    """Return a score as a number; NaN if it is none, such as a text."""
    if isinstance(value, bool | int | float):
        return float(value)
    if isinstance(value, str):
        if _DECIMAL.fullmatch(value):
            return float(value)
        return _VALUES.get(value, _VALUES.get(value.lower(), nan))
    return nan


def usage_in(usages: Iterable[Object]) -> dict[str, Any]:
    """Add up the tokens of all models a sample used, and the dollars if all are known."""
    used = list(usages)
    inputs = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    costs = [usage.get("total_cost") for usage in used]
    known = [cost for cost in costs if cost is not None]
    return {
        "input_tokens": sum(usage.get(key) or 0 for usage in used for key in inputs),
        "output_tokens": sum(usage.get("output_tokens") or 0 for usage in used),
        "usd": sum(known) if known and len(known) == len(costs) else None,
    }


def is_record(row: Object) -> bool:
    """Return whether a JSON object is a recorded answer."""
    return row.keys() >= {"candidate", "example"}


def read_records(rows: Iterable[Object], where: str) -> Iterator[Result]:
    """Yield recorded answers; raises ConfigError if a row breaks a rule of recordings."""
    recording = parse_recording((f"{where}, row {n}", row) for n, row in enumerate(rows, start=1))
    for candidate, examples in recording.items():
        for example, attempts in examples.items():
            for attempt, record in enumerate(attempts, start=1):
                yield _answer(candidate, example, f"{where} {attempt}", record)


def read_csv(path: Path) -> Iterator[Result]:
    """Yield the cells of a score table, long or wide; raises ConfigError."""
    for cell in read_table(path):
        yield Result(
            candidate={"model": cell.candidate},
            example=cell.example,
            scores={} if cell.score is None else {"score": cell.score},
            repeat=str(path),
            usd=cell.cost,
        )


def _answer(candidate: str, example: str, repeat: str, record: Record) -> Result:
    reply, failed = record.reply, record.failed
    return Result(
        candidate={"model": candidate},
        example=example,
        scores={} if reply.score is None else {"score": reply.score},
        repeat=repeat,
        text=None if failed else reply.text,
        error=str(failed) if failed else None,
        seconds=reply.seconds,
        input_tokens=reply.usage.input,
        output_tokens=reply.usage.output,
        usd=None if reply.usd_nanos is None else reply.usd_nanos / 1e9,
    )


_SETTINGS = ("gen_kwargs", "system_instruction", "chat_template", "fewshot_as_multiturn")


def is_sample(row: Object) -> bool:
    """Return whether a JSON object is a sample of lm-eval."""
    return "doc_hash" in row and "filtered_resps" in row


def read_samples(rows: Iterable[Object], path: Path) -> Iterator[Result]:
    """Yield the results of a `samples_TASK_DATE.jsonl`."""
    task, date = _task_and_date(path)
    candidate = _model_and_settings(path, task, date)
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        filtered, key = str(row["filter"]), str(row["doc_hash"])[:16]
        seen[filtered, key] += 1
        number = seen[filtered, key]  # a data set may hold a document twice
        yield Result(
            candidate=candidate,
            example=key if number == 1 else f"{key} #{number}",
            task=task,
            scores=_metrics_of(row, filtered),
            repeat=date,
            question=json.dumps(row["doc"], ensure_ascii=False),
            text=_first_answer(row),
        )


def _task_and_date(path: Path) -> tuple[str, str]:
    task, _, date = path.stem.removeprefix("samples_").rpartition("_")
    return (task, date) if task else (path.stem, "")


def _model_and_settings(path: Path, task: str, date: str) -> dict[str, str]:
    results = path.with_name(f"results_{date}.json")
    if not results.is_file():
        return {"model": path.parent.name.replace("__", "/")}
    found = json.loads(results.read_text(encoding="utf-8"))
    settings = {"n-shot": (found.get("n-shot") or {}).get(task), **(found.get("config") or {})}
    settings |= {key: found.get(key) for key in _SETTINGS[1:]}
    traits = {key: plain(settings[key]) for key in ("n-shot", *_SETTINGS) if settings.get(key)}
    return {"model": str(found.get("model_name") or path.parent.name), **traits}


def _metrics_of(row: Object, filtered: str) -> dict[str, float]:
    """Return the metrics that are one number per document; others are made of several."""
    values = {name: row.get(name) for name in row["metrics"]}
    return {
        f"{name},{filtered}": float(value)
        for name, value in values.items()
        if isinstance(value, bool | int | float)
    }


def _first_answer(row: Object) -> str | None:
    """Return the first raw answer; None where log-likelihoods were asked for."""
    first: Any = row.get("resps")
    while isinstance(first, list) and first:
        first = first[0]
    return first if isinstance(first, str) and row["arguments"].get("gen_args_0") else None


_VERSIONS = (2, 3)
_FAILED = 2  # `failureReason` of a provider's error; 1 is a failed assertion


def is_output(document: Object) -> bool:
    """Return whether a JSON object is promptfoo's output file."""
    results = document.get("results")
    return isinstance(results, Mapping) and "version" in results and "results" in results


def read_output(document: Object, where: str) -> Iterator[Result]:
    """Yield the results of an output file; raises ConfigError."""
    summary = document["results"]
    if summary["version"] not in _VERSIONS:
        raise ConfigError(
            f"{where}: promptfoo results of version {summary['version']!r}; versions 2 and 3 are "
            "read"
        )
    names = _candidates(summary["results"])
    _check_told_apart(summary, names, where)
    seen: Counter[tuple[Hashable, str]] = Counter()
    for row in summary["results"]:
        column, example = _column(row), _example(row)
        seen[column, example] += 1
        error = row.get("error") if _provider_failed(row) else None
        response = row.get("response") or {}
        tokens = response.get("tokenUsage") or row.get("tokenUsage") or {}
        yield Result(
            candidate=names[column],
            example=example,
            scores=_scores(row) if error is None else {},
            repeat=f"{document.get('evalId') or where} {seen[column, example]}",
            question=_variables(row),
            text=plain(response["output"]) if response.get("output") is not None else None,
            error=error if error is None else plain(error),
            seconds=(row.get("latencyMs") or 0) / 1000,
            input_tokens=tokens.get("prompt") or 0,
            output_tokens=tokens.get("completion") or 0,
            usd=row.get("cost") if error is None else None,
        )


def _column(row: Object) -> Hashable:
    """Return what is the same in a candidate's rows: their column, which version 2 leaves out."""
    return row["promptIdx"] if "promptIdx" in row else tuple(_traits(row).values())


def _candidates(rows: Any) -> dict[Hashable, dict[str, str]]:  # noqa: ANN401 - parsed JSON
    """Return the traits of each column; two columns alike are told apart by their number."""
    traits = {_column(row): _traits(row) for row in rows}
    alike = Counter(tuple(found.values()) for found in traits.values())
    return {
        column: found if alike[tuple(found.values())] == 1 else {**found, "column": str(column)}
        for column, found in traits.items()
    }


def _check_told_apart(summary: Object, found: Mapping[Hashable, object], where: str) -> None:
    """Refuse columns of version 2 whose rows look the same, as they would become one candidate."""
    columns = ((summary.get("table") or {}).get("head") or {}).get("prompts") or ()
    if len(columns) > len(found):
        raise ConfigError(
            f"{where}: {len(columns)} columns, but only {len(found)} pairs of provider and prompt "
            "in its rows; write it with promptfoo 0.57 or newer and a `label` for each provider"
        )


def _traits(row: Object) -> dict[str, str]:
    provider, prompt = row.get("provider") or {}, row.get("prompt") or {}
    name = provider if isinstance(provider, str) else provider.get("label") or provider.get("id")
    shown = prompt.get("label") or prompt.get("display") or prompt.get("raw") or ""
    return {"model": str(name), "prompt": str(shown).strip()}


def _example(row: Object) -> str:
    """Name a test by its variables: its index counts repeats too."""
    asserted = json.dumps((row.get("testCase") or {}).get("assert"), sort_keys=True)
    return example_id(_variables(row), asserted)


def _variables(row: Object) -> str:
    return json.dumps(row.get("vars") or {}, sort_keys=True, ensure_ascii=False)


def _provider_failed(row: Object) -> bool:
    if (reason := row.get("failureReason")) is not None:
        return bool(reason == _FAILED)
    return bool(row.get("error")) and row.get("gradingResult") is None


def _scores(row: Object) -> dict[str, float]:
    named = {name: float(value) for name, value in (row.get("namedScores") or {}).items()}
    return {**named, "score": float(row["score"]), "success": float(bool(row["success"]))}


_SUFFIXES = (".eval", ".json", ".jsonl", ".jsonl.gz")
_READ = (
    "Inspect logs (.eval, .json), lm-eval's samples_*.jsonl, promptfoo's results (.json), and "
    "tables with candidate, example and score (.csv, .jsonl)"
)


def is_log_file(location: str) -> bool:
    """Return whether a location ends as logs do; `read_results` also reads `.csv`."""
    return location.endswith(_SUFFIXES)


def read_results(path: Path, *, texts: bool = False) -> Iterator[Result]:
    """Yield the results in a file of any known format; answers' texts where asked for.

    Raises ConfigError if the file is missing or damaged, or its format or version unknown.
    """
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; check the name")
    try:
        yield from _read(path, texts)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{path}: the log lacks what its format promises: {type(error).__name__}: {error}"
        ) from error


def _read(path: Path, texts: bool) -> Iterator[Result]:
    if path.suffix == ".eval":
        return read_archive(path, texts=texts)
    if path.suffix == ".csv":
        return read_csv(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return _from_rows(_lines(path), path)
    if path.suffix != ".json":
        raise ConfigError(f"{path}: not a log of a known format; these can be read: {_READ}")
    document = _document(path)
    if isinstance(document, list):
        return _from_rows(document, path)
    return _from_document(document, path)


def _from_rows(rows: Iterable[Any], path: Path) -> Iterator[Result]:
    found = iter(rows)
    first = next(found, None)
    if not isinstance(first, Mapping):
        raise _unknown(path, first)
    every = chain((first,), found)
    if is_sample(first):
        return read_samples(every, path)
    if is_record(first):
        return read_records(every, str(path))
    raise _unknown(path, first)


def _from_document(document: Object, path: Path) -> Iterator[Result]:
    if is_log(document):
        return read_document(document, str(path))
    if is_output(document):
        return read_output(document, str(path))
    if "lm_eval_version" in document:
        raise ConfigError(
            f"{path}: lm-eval's results are means; give its samples_*.jsonl, which "
            "`lm_eval --log_samples` writes beside them"
        )
    raise _unknown(path, document)


def _unknown(path: Path, found: object) -> ConfigError:
    shown = f"a value {str(found)[:40]!r}"
    if isinstance(found, Mapping):
        shown = f"an object with the keys {', '.join(list(map(str, found))[:6]) or '(none)'}"
    elif found is None:
        shown = "nothing"
    return ConfigError(
        f"{path}: not a log of a known format, it holds {shown}; these can be read: {_READ}"
    )


def _document(path: Path) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error


def _lines(path: Path) -> Iterator[Any]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _parsed(line, f"{path}, line {number}")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _parsed(line: str, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
