"""Results in other tools' logs, in one form: a reader for each format, known by the content.

Inspect's logs, schema 2 (`.eval`, a zip whose members may be zstd, and `.json`); lm-eval 0.4's
samples, whose metrics are `METRIC,FILTER`, documents joined on their hash, model and settings in
`results_DATE.json` beside them; promptfoo's results, version 3, where a candidate is a
provider with a prompt, an example a test's variables and assertions; plain score tables, and
recorded answers, which `import` writes.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from bestarm_agent.config.datasets import FileRow, load_rows
from bestarm_agent.domain.values import clip_rounding, digest
from bestarm_agent.errors import ConfigError
from bestarm_agent.plugins import missing
from bestarm_agent.providers.replay import filled, parse_recording
from bestarm_agent.simulation.score_tables import KNOWN, cells_of, number_in
from bestarm_agent.store.export import AWAITED

Object: TypeAlias = Mapping[str, Any]  # Any: parsed JSON that someone else wrote

_READ = (
    "Inspect logs (.eval, .json), lm-eval's samples_*.jsonl, promptfoo's results (.json), and "
    "tables with candidate, example and score (.csv, .tsv, .json, .jsonl, .parquet)"
)
_TABLES = (".csv", ".tsv", ".parquet", ".jsonl")

_IDS, _INPUTS = ("example", "id"), ("question", "input")  # columns that say which example it is
_LONGEST = 48  # characters of a setting or an input that a name may hold
_LONGEST_MODEL = 400
# A label may stand in a `models` entry, so other characters become one "_": "a b|c" is "a_b_c".
_ODD = re.compile(r"[^\w.:@+()=,/-]+")


@dataclass(frozen=True, slots=True)
class Result:
    """One answer, or one failed call, in another tool's log."""

    # `model`, and whatever else may tell candidates apart: prompt, temperature, ...
    candidate: Mapping[str, str]
    example: str
    task: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)  # by metric; empty: no verdict
    words: Mapping[str, str] = field(default_factory=dict)  # by metric: verdicts that are no number
    repeat: str = ""  # which repeat of the pair; of equal ones, the last with a score counts
    question: str | None = None  # the example's input
    # of the example, which may say what belongs together: metadata, the document, variables
    fields: Mapping[str, Any] = field(default_factory=dict)
    text: str | None = None  # the answer; None where the log has none, or nothing asked for it
    error: str | None = None
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None

    @property
    def said(self) -> str:
        """Return the answer, or why there is none."""
        return self.text or self.error or ""


def is_log_file(location: str) -> bool:
    """Return whether a location ends as logs do; `read_results` also reads tables."""
    return location.endswith((".eval", ".json", ".jsonl", ".jsonl.gz"))


def read_results(path: Path, metrics: Sequence[str] | None = None) -> Iterator[Result]:
    """Yield the results in a file of any known format.

    Where ``metrics`` are given, if only as (), a table may be one candidate's answers, named like
    its file: a row for each, with a column `example`, `id`, `question` or `input`, and scores in
    columns of any name: ``score``, the ``metrics``, and whatever holds but numbers in [0, 1].

    Raises ConfigError if the file is missing or damaged, or its format or version unknown.
    """
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r}; check the name")
    try:
        yield from _results_in(path, metrics)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{path}: the log lacks what its format promises: {type(error).__name__}: {error}"
        ) from error


def _results_in(path: Path, metrics: Sequence[str] | None) -> Iterator[Result]:
    if path.suffix == ".eval":
        return _inspect_archive(path)
    if path.name.removesuffix(".gz").endswith(_TABLES):
        return _rows(load_rows(path, "log"), path, metrics)
    if path.suffix != ".json":
        raise ConfigError(f"{path}: not a log of a known format; these can be read: {_READ}")
    document = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(document, Mapping):  # a list of rows, or its error
        return _rows(load_rows(path, "log"), path, metrics)
    return _document(document, path)


def _rows(rows: Iterator[FileRow], path: Path, metrics: Sequence[str] | None) -> Iterator[Result]:
    first = next(rows, FileRow("", {}))
    rows, keys = chain((first,), rows), first.values.keys()
    # From the surest sign to the weakest: two columns that only lm-eval writes; those of an export
    # of our own; a table of one candidate; a recording. What is left is a plain score table, whose
    # own reader says what it lacks.
    if keys >= {"doc_hash", "filtered_resps"}:
        return _lm_eval((row.values for row in rows), path)
    if keys >= {"candidate", "example", "state", "seq"}:
        return _exported((row.values for row in rows), str(path))
    if metrics is not None and keys & {*_IDS, *_INPUTS}:
        return _answers(list(rows), path, metrics)
    is_json = bool({".json", ".jsonl"} & {*path.suffixes})
    if keys >= {"candidate", "example"} and (is_json or keys & {"text", "error"}):
        return _recorded(map(filled, rows), str(path))
    if is_json:
        raise _unknown(path, first.values)
    return _table(rows, path)


def _document(document: Object, path: Path) -> Iterator[Result]:
    spec, results = document.get("eval"), document.get("results")
    if isinstance(spec, Mapping) and spec.keys() >= {"task", "model"}:
        return _inspect(document, document.get("samples") or (), str(path))
    if isinstance(results, Mapping) and results.keys() >= {"version", "results"}:
        return _promptfoo(document, str(path))
    if "lm_eval_version" in document:
        raise ConfigError(
            f"{path}: lm-eval's results are means; give its samples_*.jsonl, which "
            "`lm_eval --log_samples` writes beside them"
        )
    raise _unknown(path, document)


def _unknown(path: Path, content: object) -> ConfigError:
    what = f"a value {str(content)[:40]!r}"
    if isinstance(content, Mapping):
        what = f"an object with the keys {', '.join(list(map(str, content))[:6]) or '(none)'}"
    return ConfigError(
        f"{path}: not a log of a known format, it holds {what}; these can be read: {_READ}"
    )


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
    # A setting is part of the label only where it differs within the task: a task of one
    # temperature needs no "temperature=0" in every name.
    models = _names({result.candidate["model"] for result in results}, _LONGEST_MODEL)
    names = {place: _names(of_key, _LONGEST) for place, of_key in values.items()}
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


def _plain(value: object) -> str:
    """Return a setting as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# Inspect

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
# settings of Inspect's generating that change how calls are made, and no answer
_OF_THE_CLIENT = frozenset(
    (
        *("max_connections", "adaptive_connections", "max_retries", "timeout", "attempt_timeout"),
        *("batch", "cache", "cache_prompt"),
    )
)


def _inspect_archive(path: Path) -> Iterator[Result]:
    """Yield the results of an `.eval` log; of a run that was cut off, the finished samples."""
    # New Inspect versions compress members with zstd, which the standard library reads from Python
    # 3.14 on; the backport has the same interface.
    module: ModuleType = zipfile  # knows zstd from Python 3.14 on
    with suppress(ImportError):
        from backports.zstd import zipfile as module
    try:
        with module.ZipFile(path) as archive:
            names = archive.namelist()
            # An eval that was killed has no header yet; its journal has what it began with.
            header = "header.json" if "header.json" in names else "_journal/start.json"
            samples = (json.loads(archive.read(n)) for n in names if n.startswith("samples/"))
            yield from _inspect(json.loads(archive.read(header)), samples, str(path))
    except NotImplementedError:
        raise missing("interop", f"{path}, which is compressed with zstd,") from None
    except module.BadZipFile as error:
        raise ConfigError(f"{path}: a damaged Inspect log: {error}") from error


def _inspect(log: Object, samples: Iterable[Object], where: str) -> Iterator[Result]:
    if log.get("version") != 2:
        raise ConfigError(
            f"{where}: an Inspect log of schema {log.get('version')!r}; schema 2 is read"
        )
    spec = log["eval"]
    candidate = _inspect_candidate(spec, log.get("plan") or {})
    for sample in samples:
        error = sample.get("error")
        yield Result(
            candidate=candidate,
            example=str(sample["id"]),
            task=str(spec["task"]),
            scores={} if error else scores_in(sample.get("scores") or {}),
            words={} if error else words_in(sample.get("scores") or {}),
            repeat=f"{spec.get('task_id')} {sample.get('epoch', 1)}",
            question=_plain(sample["input"]) if "input" in sample else None,
            fields=sample.get("metadata") or {},
            text=(sample.get("output") or {}).get("completion"),
            error=str(error["message"]) if error else None,
            seconds=float(sample.get("working_time") or sample.get("total_time") or 0.0),
            **usage_in((sample.get("model_usage") or {}).values()),
        )


def _inspect_candidate(spec: Object, plan: Object) -> dict[str, str]:
    """Return the model and its settings: arguments of task and solver, and of generating.

    A log that our own export wrote names its candidate.
    """
    if "bestarm_agent" in (spec.get("packages") or {}):
        return {"model": str(spec["task_args"]["candidate"])}
    # The settings of the task and of generating are what tells candidates of one model apart. What
    # only concerns the client, such as its number of connections, changes no answer.
    settings = {
        **(spec.get("task_args") or {}),
        "solver": spec.get("solver"),
        **(spec.get("solver_args") or {}),
    }
    generating = {**(spec.get("model_generate_config") or {}), **(plan.get("config") or {})}
    settings |= {key: value for key, value in generating.items() if key not in _OF_THE_CLIENT}
    named = {
        key: _plain(value)
        for key, value in settings.items()
        if value is not None and key != "model"
    }
    return {"model": str(spec["model"]), **named}


def scores_in(scores: Object) -> dict[str, float]:
    """Return the numbers by Inspect's scorer; one with several values gives one for each.

    Whatever is no number, such as a text or NaN, is no verdict.
    """
    numbers: dict[str, float] = {}
    for key, part in _values(scores):
        # Inspect writes C, P, I and N for correct, partly, incorrect and no answer.
        number = _LETTERS.get(part) if isinstance(part, str) else part
        if isinstance(number, bool | int | float) and isfinite(number):
            numbers[key] = clip_rounding(float(number))
    return numbers


def words_in(scores: Object) -> dict[str, str]:
    """Return verdicts by Inspect's scorer that are texts, and none of the letters that count."""
    return {
        key: part for key, part in _values(scores) if isinstance(part, str) and part not in _LETTERS
    }


def _values(scores: Object) -> Iterator[tuple[str, object]]:
    for name, score in scores.items():
        value = score["value"]
        if isinstance(value, Mapping):
            yield from ((f"{name}/{key}", part) for key, part in value.items())
        else:
            yield name, value


def usage_in(usages: Iterable[Object]) -> dict[str, Any]:
    """Add up the tokens of all models a sample used, and the dollars if all are known."""
    used = list(usages)
    # Inspect's input tokens exclude those that a cache read or wrote.
    inputs = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    # One model without a price makes the sum unknown, and not smaller.
    costs = [usage.get("total_cost") for usage in used]
    return {
        "input_tokens": sum(usage.get(key) or 0 for usage in used for key in inputs),
        "output_tokens": sum(usage.get("output_tokens") or 0 for usage in used),
        "usd": sum(costs) if costs and None not in costs else None,
    }


# plain tables and recorded answers


def _table(rows: Iterable[FileRow], path: Path) -> Iterator[Result]:
    for cell in cells_of(rows, str(path)):
        yield Result(
            {"model": cell.candidate},
            cell.example,
            scores={} if cell.score is None else {"score": cell.score},
            repeat=f"{path} {cell.position}",
            usd=cell.cost,
        )


def _exported(rows: Iterable[Object], where: str) -> Iterator[Result]:
    """Yield the results in an export of our own, in which an empty cell is none."""
    for row in rows:
        given = {key: value for key, value in row.items() if value not in (None, "")}
        if given["state"] not in AWAITED:
            score = float(given["score"]) if "score" in given else None
            why = given.get("message", given.get("failure"))
            yield Result(
                {"model": str(given["candidate"])},
                str(given["example"]),
                scores={} if score is None else {"score": score},
                repeat=f"{where} {given['seq']}",
                text=given.get("reply"),
                error=str(why) if score is None else None,
                seconds=float(given.get("seconds", 0.0)),
                input_tokens=int(given.get("input_tokens", 0)),
                output_tokens=int(given.get("output_tokens", 0)),
                usd=float(given["usd"]) if "usd" in given else None,
            )


def _recorded(rows: Iterable[FileRow], where: str) -> Iterator[Result]:
    """Yield the results of a recording; rows of a pair without a number are in order."""
    n_rows = Counter[tuple[object, object]]()

    def numbered() -> Iterator[tuple[str, Object]]:
        for row in rows:
            pair = row.values.get("candidate"), row.values.get("example")
            n_rows[pair] += 1
            yield f"{where}, {row.position}", {"attempt": n_rows[pair], **row.values}

    recording = parse_recording(numbered())
    for candidate, examples in recording.items():
        for example, attempts in examples.items():
            for attempt, record in enumerate(attempts, start=1):
                reply, failed = record.reply, record.failed
                yield Result(
                    candidate={"model": candidate},
                    example=example,
                    scores={} if reply.score is None else {"score": reply.score},
                    repeat=f"{where} {attempt}",
                    text=None if failed else reply.said,
                    error=str(failed) if failed else None,
                    seconds=reply.seconds,
                    input_tokens=reply.usage.input,
                    output_tokens=reply.usage.output,
                    usd=None if reply.usd_nanos is None else reply.usd_nanos / 1e9,
                )


def _answers(rows: Sequence[FileRow], path: Path, metrics: Sequence[str]) -> Iterator[Result]:
    """Yield the results in a table of a row per answer, as people write for one candidate."""
    columns = dict.fromkeys(name for row in rows for name in row.values)
    # Of a table of a user's own no column is known to be a score. Those that were asked for must be
    # numbers, or are refused; any other counts if all its values are in [0, 1].
    asked = [name for name in columns if name in ("score", *metrics)]
    others = columns.keys() - KNOWN - {*asked, *_IDS, *_INPUTS}
    names = [*asked, *(name for name in columns if name in others and _is_metric(rows, name))]
    n_rows = Counter[tuple[str, str]]()
    for row in rows:
        where, values = f"{path}, {row.position}", row.values
        question = _first(values, _INPUTS)
        example = _first(values, _IDS) or question
        if example is None:
            raise ConfigError(f"{where}: the row has no id; give each row an `example` or `id`")
        pair = _first(values, ("candidate", "model")) or path.name.partition(".")[0], example
        n_rows[pair] += 1
        numbers = {name: number_in(values, name, where) for name in names}
        yield Result(
            {"model": pair[0]},
            example,
            scores={name: number for name, number in numbers.items() if number is not None},
            repeat=str(n_rows[pair]),
            question=question,
            fields=values,
            text=_first(values, ("text", "reply", "output", "answer")),
        )


def _first(values: Object, names: Iterable[str]) -> str | None:
    """Return the first of some fields that is not empty, as text."""
    given = (values[name] for name in names if values.get(name) not in (None, ""))
    return next(map(_plain, given), None)


def _is_metric(rows: Sequence[FileRow], name: str) -> bool:
    """Return whether a column holds scores: numbers in [0, 1], or nothing."""
    with suppress(ConfigError):
        numbers = [number_in(row.values, name, "") for row in rows]
        known = [number for number in numbers if number is not None]
        return bool(known) and all(0 <= clip_rounding(number) <= 1 for number in known)
    return False


# lm-eval


def _lm_eval(rows: Iterable[Object], path: Path) -> Iterator[Result]:
    """Yield the results of a `samples_TASK_DATE.jsonl`."""
    # samples_TASK_DATE.jsonl; the name of a task may hold underscores, the date holds none.
    task, _, date = path.stem.removeprefix("samples_").rpartition("_")
    candidate = _lm_eval_candidate(path, task, date)
    for row in rows:
        answer = row["resps"][0][0]
        # metrics that are one number per document count; others are made of several
        found = [(f"{name},{row['filter']}", row.get(name)) for name in row["metrics"]]
        yield Result(
            candidate=candidate,
            example=str(row["doc_hash"])[:16],  # a document that comes twice is one example
            task=task,
            scores={name: float(value) for name, value in found if isinstance(value, int | float)},
            words={name: value for name, value in found if isinstance(value, str)},
            repeat=f"{date} {row.get('doc_id')}",
            question=json.dumps(row["doc"], ensure_ascii=False),
            fields=row["doc"] if isinstance(row["doc"], Mapping) else {},
            text=answer if isinstance(answer, str) else None,  # else a log-likelihood
        )


def _lm_eval_candidate(path: Path, task: str, date: str) -> dict[str, str]:
    results = path.with_name(f"results_{date}.json")
    if not results.is_file():
        return {"model": path.parent.name.replace("__", "/")}
    content = json.loads(results.read_text(encoding="utf-8"))
    settings = {
        "n-shot": (content.get("n-shot") or {}).get(task),
        "gen_kwargs": (content.get("config") or {}).get("gen_kwargs"),
        "system_instruction": content.get("system_instruction"),
        "chat_template": content.get("chat_template"),
    }
    named = {key: _plain(value) for key, value in settings.items() if value}
    return {"model": str(content.get("model_name") or path.parent.name), **named}


# promptfoo


def _promptfoo(document: Object, where: str) -> Iterator[Result]:
    summary = document["results"]
    if summary["version"] != 3:
        raise ConfigError(
            f"{where}: promptfoo results of version {summary['version']!r}; version 3 is read: "
            "write them again with a current promptfoo"
        )
    names = _promptfoo_candidates(summary["results"])
    for row in summary["results"]:
        # a test is known by its variables and assertions, its repeats by its index
        variables = json.dumps(row.get("vars") or {}, sort_keys=True, ensure_ascii=False)
        test = row.get("testCase") or {}
        asserted = json.dumps(test.get("assert"), sort_keys=True)
        start = " ".join(variables.split())[:_LONGEST]
        # promptfoo counts a failed assertion (1) and an error of the call (2) as failures alike.
        # Only an error says nothing about the candidate.
        failed = row.get("failureReason") == 2  # 1 is a failed assertion
        given = {**(row.get("namedScores") or {}), "score": row["score"], "success": row["success"]}
        # JSON has null for a score that is NaN
        scores = {name: float(value) for name, value in given.items() if value is not None}
        response = row.get("response") or {}
        tokens = response.get("tokenUsage") or {}
        yield Result(
            candidate=names[row["promptIdx"]],
            example=f"{start} {digest([variables, asserted], length=8)}",
            scores={} if failed else scores,
            repeat=f"{document.get('evalId') or where} {row['testIdx']}",
            question=variables,
            fields={**(test.get("metadata") or {}), **(row.get("vars") or {})},
            text=_plain(response["output"]) if response.get("output") is not None else None,
            error=_plain(row.get("error")) if failed else None,
            seconds=(row.get("latencyMs") or 0) / 1000,
            input_tokens=tokens.get("prompt") or 0,
            output_tokens=tokens.get("completion") or 0,
            usd=None if failed else row.get("cost"),
        )


def _promptfoo_candidates(rows: Iterable[Object]) -> dict[int, dict[str, str]]:
    """Return the traits of each column; two columns alike are told apart by their number."""
    traits = {}
    for row in rows:
        provider, prompt = row["provider"], row["prompt"]
        model = provider.get("label") or provider["id"]
        traits[row["promptIdx"]] = {
            "model": str(model),
            "prompt": str(prompt.get("label") or prompt["raw"]).strip(),
        }
    alike = Counter(tuple(own.values()) for own in traits.values())
    return {
        column: own if alike[tuple(own.values())] == 1 else {**own, "column": str(column)}
        for column, own in traits.items()
    }
