"""``init``: write a study to start from, on recorded answers or on the user's own data."""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from string import Template

import click

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.providers import is_priced, provider_note
from bestarm_agent.config.datasets import load_rows
from bestarm_agent.config.prompts import named
from bestarm_agent.config.starter import write_new, write_starter
from bestarm_agent.config.traces import RECORDED
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.interop.promptfoo_study import write_study
from bestarm_agent.judges.numbers import options_for

_READ = 500  # rows that are looked at
# names of fields, in lower case
_TARGETS = ("target", "answer", "expected", "reference", "gold", "label", "correct", "solution")
_QUESTIONS = ("question", "prompt", "input", "text", "query", "instruction", "message")
# Up to so many, targets are taken for labels of classes, if each also occurs twice on average;
# among more, a model would have to find its answer in a long list.
_FEW = 12  # different targets that are named in a prompt
_SHORT = 40  # characters of a target that a reply may equal or contain
_NONE = "none"
_STUDY = Template("""\
# Which model and prompt is best on $dataset? What it would cost, without a call:
#     bestarm-agent plan $file
# Each prompt with each model, once: bestarm-agent try $file. All of it: bestarm-agent select $file
name: $name

models:
$models
# A template per prompt; fields of the dataset stand in double braces.
prompts:
$prompts
# params: {effort: [none, low], max_tokens: 2000}  # a list is an axis of the grid

dataset: $spec
scorer: $scorer  # $why
# objective: {at_least: 0.9}  # the cheapest that is proved to score so much; left out: the best
# objective: {epsilon: 0.02}  # the cheapest that is probably at most so far below the best

# The run ends before it would spend more.
budget: $budget
$providers""")
_TRACES = Template("""\
# Is another model at least as good on $dataset as what was answered then?
#     bestarm-agent gate $file    (what it would cost, without a call: bestarm-agent plan $file)
# The answers are of: $who
name: $name

models:
$models
# A system prompt of your own: {name: new, messages: [{system: "..."}, {user: "{{ question }}"}]}
prompts:
$prompts

# drop: [email]  # inside the dataset and the replay: fields that are removed at any depth
dataset: {path: $path, fields: [system, question, messages, tools, baseline_output]}
# It compares each answer with the recorded one. Take a model that is no candidate.
scorer: {name: pairwise, model: $judge, fields: [system, question]}
gate: {baseline: recorded, margin: 0.05}
budget: {share: 100%}  # of all answers; for models with a price: {usd: $$2}
providers:
  replay: {path: $path}
""")
_OPTIONS = '{% for x in FIELD %}\n{{ "ABCDEFGHIJ"[loop.index0] }}. {{ x }}{% endfor %}'
_KEYS = """
# Keys stand in the environment or in a file .env, never here. To change a key's variable or an
# address:
# providers:
"""


def init(
    given: Given,
    path: Path,
    data: Path | None,
    models: str | None,
    config: Path | None,
    base_url: str | None,
    price: str | None,
) -> None:
    """Write a study; ask for data and models on a terminal if nothing is said.

    ``base_url`` is the models' address, ``price`` the dollars of a million tokens of prompt and of
    answer, as "0.15/0.60".
    """
    target: str | None = None
    note = ""
    written: tuple[Path, ...]
    if config is None and data is None and models is None and sys.stdin.isatty():
        data, models, target = _asked()
    if config is not None:
        written, note = write_study(config, path)
    elif data is not None and models is not None:
        written = write_new({path: _own_study(path, data, models, target, base_url, price)})
    elif base_url is not None or price is not None:
        raise ConfigError("--base-url and --price are those of the models: add --data and --models")
    elif data is None and models is None:
        written = write_starter(path)
    else:
        raise ConfigError("--data and --models go together: --data FILE.csv --models openai/NAME")
    click.echo(f"written: {', '.join(map(str, written))}")
    if note:
        click.echo(note)
    if config is None and data is None:
        click.echo(f"it runs as it is: bestarm-agent select {path}")
    else:
        click.echo(f"check it, and see what it would cost: bestarm-agent plan {path}")


def _asked() -> tuple[Path | None, str | None, str | None]:
    """Ask for examples, models and the field with the answer; for nothing more without any."""
    data = click.prompt("Your examples (.csv, .jsonl, .json), or Enter to try it out", default="")
    if not data:
        return None, None, None
    _, fields = _first_rows(Path(data))
    models = click.prompt("Models, separated by commas", default="openai/gpt-6-luna")
    known = click.Choice([*fields, _NONE])
    guess = _target_among(fields)
    target = click.prompt("Field with the expected answer", type=known, default=guess)
    return Path(data), models, target


def _first_rows(data: Path) -> tuple[list[Mapping[str, object]], list[str]]:
    """Return the first rows, and their fields but for the id."""
    rows = [row.values for row in islice(load_rows(data), _READ)]
    return rows, [field for field in dict.fromkeys(f for row in rows for f in row) if field != "id"]


def _target_among(fields: Sequence[str]) -> str:
    """Return the field named like a target, else the last of several."""
    known = {field.lower(): field for field in fields}
    last = fields[-1] if len(fields) > 1 else _NONE
    return next((known[name] for name in _TARGETS if name in known), last)


def _price(text: str) -> Json:
    """Return the price that a text such as "0.15/0.60" gives; raises ConfigError."""
    # "0.15/0.60", "$0.15 / $0.60" and "0.15, 0.60"
    if (match := re.fullmatch(r"\s*\$?([\d.]+)\s*[/,]\s*\$?([\d.]+)\s*", text)) is None:
        raise ConfigError(
            "--price takes dollars per million tokens, of prompts and of answers: 0.15/0.60, got "
            f"{text!r}"
        )
    return {"input": float(match[1]), "output": float(match[2])}


def _own_study(
    path: Path, data: Path, models: str, wanted: str | None, base_url: str | None, price: str | None
) -> str:
    """Return a study of some models that fits the fields of a dataset."""
    rows, fields = _first_rows(data)
    names = [name.strip() for name in models.split(",") if name.strip()]
    if "baseline_output" in fields and "messages" in fields:
        return _of_traces(path, data, names, rows)
    target = wanted or _target_among(fields)
    if wanted is None:
        click.echo(f"target: {target} (a guess among {', '.join(fields)}; correct it in {path})")
    asked = [f for f in fields if f.lower() in _QUESTIONS] or [f for f in fields if f != target]
    question = "\n".join(f"{{{{ {named(field)} }}}}" for field in asked)
    targets = [row[target] for row in rows if row.get(target) not in (None, "", [])]
    texts = [str(value[0] if isinstance(value, list) else value).strip() for value in targets]
    scorer, why, hint = _scorer(texts, names[0])
    lists = {f: x for r in rows for f in fields if isinstance(x := r.get(f), list) and f != target}
    if texts and len(lists) == 1 and all(re.fullmatch(r"[A-Ja-j]|\d", text) for text in texts):
        ((field, held),) = lists.items()
        question = question.replace(f"\n{{{{ {named(field)} }}}}", "")
        question += _OPTIONS.replace("FIELD", named(field))
        # numbers count from 0, unless there is one of the last option
        first: Json = int(str(len(held)) in texts) if texts[0].isdecimal() else None
        scorer = {"name": "multiple-choice", "options_field": field, "numbered_from": first}
        why, hint = "all targets are options", "Answer with the letter only."
    spec = {"path": Path(os.path.relpath(data, path.parent)).as_posix()}
    providers = dict.fromkeys(name.partition("/")[0] for name in names)
    options: dict[str, Json] = {} if base_url is None else {"base_url": base_url}
    if price is not None:
        options["price"] = _price(price)
    said_of_all = "".join(f"  {name}: {json.dumps(options)}\n" for name in providers if options)
    noted = filter(None, (provider_note(name, path.parent) for name in providers))
    notes = "".join(f"#   {note}\n" for note in noted if not options)
    priced = price is not None or all(is_priced(name, path.parent, options) for name in names)
    return _STUDY.substitute(
        dataset=data.name,
        file=path.name,
        name=re.sub(r"\W+", "-", data.stem).strip("-") or "study",
        models=_listed(names),
        prompts=_listed([{"plain": question}, {"short": f"{question}\n{hint}"}]),
        spec=json.dumps(spec if target == _NONE else {**spec, "target": target}),
        scorer=json.dumps(scorer),
        why=why,
        budget="{usd: $2}" if priced else "{share: 20%}  # for models with a price: {usd: $2}",
        providers=(said_of_all and f"\nproviders:\n{said_of_all}") + (notes and _KEYS) + notes,
    )


def _of_traces(
    path: Path, data: Path, names: Sequence[str], rows: Sequence[Mapping[str, object]]
) -> str:
    """Return a gate of models against the answers in traces, by a judge of two answers."""
    tools = {"tools": "{{ tools }}"} if any(row["tools"] for row in rows) else {}
    prompt: Json = {"name": "recorded", "messages": "{{ messages }}", **tools}
    who = Counter(str(row["baseline_model"]) for row in rows).most_common()
    return _TRACES.substitute(
        dataset=data.name,
        file=path.name,
        name=re.sub(r"\W+", "-", data.stem).strip("-") or "study",
        models=_listed([*names, {"model": f"replay/{RECORDED}", "label": RECORDED}]),
        prompts=_listed([prompt]),
        path=json.dumps(Path(os.path.relpath(data, path.parent)).as_posix()),
        who=", ".join(f"{model} ({count})" for model, count in who),
        judge=json.dumps(names[0]),
    )


def _listed(items: Iterable[Json]) -> str:
    return "\n".join(f"  - {json.dumps(item, ensure_ascii=False)}" for item in items)


def _scorer(targets: list[str], model: str) -> tuple[Json, str, str]:
    """Propose a scorer that fits the targets; say why, and what a prompt should ask for."""
    # From the strictest scorer that fits all targets to the most lenient: letters, numbers, long
    # texts (which only a model can compare), a few labels, and short texts that a reply may hold.
    kinds = sorted(set(targets))
    if not kinds:
        why = "no targets: a model judges; or `people`, who label answers"
        return {"name": "rubric", "model": model}, why, "Be brief."
    if all(re.fullmatch(r"[A-Ha-h]", kind) for kind in kinds):
        return "multiple-choice", "all targets are letters", "Answer with the letter only."
    if (options := options_for(kinds)) is not None:
        scorer: Json = {"name": "numeric", **options} if options else "numeric"
        return scorer, "all targets are numbers", "Answer with the number only."
    if max(map(len, kinds)) > _SHORT:
        why = "targets are long: a model compares; take one that is no candidate"
        return {"name": "reference-graded", "model": model}, why, "Be brief."
    if len(kinds) <= min(_FEW, len(targets) // 2):
        answers = f"Answer with one of: {', '.join(kinds)}."
        return "exact", f"there are {len(kinds)} different targets", answers
    return "contains", "targets are short", "Answer with a few words only."
