"""Past scores on the same examples, and what is learned from them for rules that can use it.

History comes from earlier runs in the store, whose examples are recognised by their content, or
from score tables, whose examples are recognised by their ids. What is learned takes a minute on a
thousand candidates, so it is kept beside the store, under the digest of the scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.values import Example
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.simulation.score_matrices import is_score_file, load_matrix
from bestarm_agent.stats.history import STRONG, Factors, HistoryModel, Validation, learn
from bestarm_agent.store.export import matrix as scores_of
from bestarm_agent.store.run_state import RunState, folded
from bestarm_agent.store.store import StorePlace, folder_of, open_store

Scores: TypeAlias = NDArray[np.float64]
ReadRun: TypeAlias = Callable[[str], Awaitable[RunState]]

_FEWEST = 32  # scores that say something of a past candidate
_FOLDER = "history"  # of the models, beside the store
_FORMAT = 2  # of kept models; raise it when what is learned from the same scores changes


@dataclass(frozen=True, slots=True)
class History:
    """Past candidates' lessons about a study's examples."""

    model: HistoryModel  # factors of all N examples, in the study's order
    name: str | None  # of the file that keeps it beside the store; None if it is not kept
    notices: tuple[str, ...]  # what it rests on and what it is good for, a sentence each


async def learn_from_history(
    parts: StudyParts, where: StorePlace, *, keeps: bool = True
) -> History | None:
    """Learn from the earlier runs and score tables that a study names; None if it names none.

    With ``keeps`` the model is written next to the store, for the run.

    Raises:
        ConfigError: a table or run is gone, or nothing in them is of use.
    """
    sources, base = parts.config.selector.history, parts.study.base_dir
    if not sources:
        return None
    notices = []

    async def read_run(run: str) -> RunState:
        try:
            async with open_store(where, create=keeps) as store:
                state = await folded(store, run)
        except StoreError as error:
            raise ConfigError(f"selector.history: {error}") from error
        if state.started is not None and state.started.judge not in (None, parts.judge.digest):
            notices.append(
                f"history run {run} was scored by another judge (digest {state.started.judge}, "
                f"now {parts.judge.digest}): what it teaches may not hold for this one"
            )
        return state

    with parts.study.places.locating("selector", "history"):
        found = [str(base / source) if _is_file(source) else source for source in sources]
        scores, n_dropped = await past_scores(found, parts.examples, read_run)
        model, name = learn_once(scores, folder_of(where) / _FOLDER if keeps else None)
    return History(model, name, (described(model.validation, scores, n_dropped), *notices))


def recorded_history(state: RunState, store: StorePlace) -> HistoryModel | None:
    """Load the history model that a stored run uses; raise ConfigError if it is gone."""
    name = None if state.started is None else state.started.lesson
    if name is None:
        return None
    folder = folder_of(store) / _FOLDER
    model = _kept(folder / f"{name}.npz")
    if model is None:
        raise ConfigError(
            f"the history {name!r} that the run goes by is not in {folder}; restore that file, or"
            " begin a new run"
        )
    return model


async def past_scores(
    sources: Sequence[str], examples: Sequence[Example], read_run: ReadRun
) -> tuple[Scores, int]:
    """Gather (H, N) past scores on a study's examples, NaN where there is none.

    A past candidate needs 32 scores on these examples, or on half of them if that is fewer. Also
    return how many had too few.

    Args:
        sources: runs and score tables (``.npz``, ``.csv``, ``.parquet``, and the ``.jsonl`` that
            ``import --out`` writes). A table's examples are matched by id; without ids (a
            ``.npz`` that has no ``examples``) there must be as many as the study has, in its order.
        examples: the study's, in its order.
        read_run: reads and folds a run.

    Raises:
        ConfigError: there is no such file, it holds no scores, or no past candidate has enough
            scores on these examples.
        RunNotFoundError: there is no such run.
    """
    rows: dict[str, Scores] = {}
    for source in sources:
        if _is_file(source):
            wanted = [example.id for example in examples]
            past, ids = _read_file(source, wanted)
            names = [f"{source} {i}" for i in range(len(past))]
        else:
            state, wanted = await read_run(source), [example.digest for example in examples]
            past, ids = scores_of(state), state.example_digests
            names = [candidate.id for candidate in state.candidates]
        for name, row in zip(names, _aligned(past, ids, wanted), strict=True):
            rows[name] = np.where(np.isnan(row), rows.get(name, row), row)  # the later one wins
    scores = np.array(list(rows.values())).reshape(len(rows), -1 if rows else 0)
    fewest = max(2, min(_FEWEST, len(examples) // 2))
    enough = (~np.isnan(scores)).sum(axis=1) >= fewest
    if not enough.any():
        raise ConfigError(
            f"no candidate in {', '.join(sources)} has {fewest} scores on this study's examples; "
            f"name a run or file on the same examples, or leave the history out"
        )
    return scores[enough], int((~enough).sum())


def described(found: Validation, scores: Scores, n_dropped: int) -> str:
    """Say what a model rests on, and which rules will use it."""
    dropped = f" ({n_dropped} more had too few scores)" if n_dropped else ""
    verdict = "it does not predict candidates that were held out, so it is not used"
    if found.is_useful:
        verdict = f"predictions remove {found.gain:.0%} of a new candidate's variance over examples"
        if not found.is_strong:
            verdict += f": enough for pulse, not for auto (surely above {STRONG:.0%})"
    return (
        f"history: {len(scores)} candidates{dropped} on {len(_known(scores))} of the"
        f" {scores.shape[1]} examples; {verdict}"
    )


def learn_once(scores: Scores, folder: Path | None) -> tuple[HistoryModel, str | None]:
    """Learn from (H, N) past scores, or read what was learned from the same ones before.

    It is kept in ``folder``, unless that is None, so that a run can be resumed when its sources
    have changed. Also return the name of the file: a digest of the scores.
    """
    content = np.ascontiguousarray(scores, dtype="<f4")
    digest = hashlib.sha256(f"{_FORMAT} {content.shape} ".encode() + content.tobytes()).hexdigest()
    name = f"lesson-{digest[:16]}"
    model = None if folder is None else _kept(folder / f"{name}.npz")
    if model is None:
        known, columns = _known(scores), np.full(scores.shape[1], -1)
        columns[known] = np.arange(len(known))
        model = learn(content[:, known])
        model = HistoryModel(model.factors.at(columns), model.validation)
        if folder is not None:
            _keep(folder / f"{name}.npz", model)
    return model, None if folder is None else name


def _known(scores: Scores) -> NDArray[np.intp]:
    """Return the examples that any candidate was tried on."""
    return np.flatnonzero(~np.isnan(scores).all(axis=0))


def _kept(path: Path) -> HistoryModel | None:
    """Read a kept model; None if there is none or the file is damaged (a crash while writing)."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            factors = Factors(arrays["offset"], arrays["loadings"])
            return HistoryModel(factors, Validation(**json.loads(str(arrays["foresight"]))))
    except (FileNotFoundError, BadZipFile, EOFError, KeyError, ValueError):
        return None


def _keep(path: Path, model: HistoryModel) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp.npz")
    np.savez_compressed(
        fresh,
        offset=model.factors.offset,
        loadings=model.factors.loadings,
        foresight=np.array(json.dumps(asdict(model.validation))),
    )
    fresh.replace(path)


def _is_file(source: str) -> bool:
    return is_score_file(source) or source.endswith(".jsonl")


def _read_file(location: str, wanted: Sequence[str]) -> tuple[Scores, Sequence[str]]:
    """Return a table's scores and the ids of its examples."""
    if location.endswith(".jsonl"):
        return _read_answers(Path(location))
    table = load_matrix(location)
    if not table.examples and table.scores.shape[1] != len(wanted):
        raise ConfigError(
            f"{location} has no example ids and {table.scores.shape[1]} columns, the study has"
            f" {len(wanted)} examples; add an array `examples` of ids to the file"
        )
    return table.scores.astype(float), table.examples or wanted


def _read_answers(path: Path) -> tuple[Scores, Sequence[str]]:
    """Return the mean scores of recorded answers, and the ids of their examples."""
    found: dict[str, dict[str, list[float]]] = {}  # by candidate and example
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.get("score") is not None:
                scores = found.setdefault(row["candidate"], {}).setdefault(row["example"], [])
                scores.append(row["score"])
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"{path}: a line is no JSON object with `candidate`, `example` and `score`; write the "
            f"file by `bestarm-agent import LOG --out {path.name}`"
        ) from error
    ids = list(dict.fromkeys(example for of in found.values() for example in of))
    rows = [[np.mean(of[id_]) if id_ in of else np.nan for id_ in ids] for of in found.values()]
    return np.array(rows).reshape(len(found), len(ids)), ids


def _aligned(scores: Scores, keys: Iterable[str], wanted: Sequence[str]) -> Scores:
    """Return (H, N) the columns named ``wanted``; NaN where there is none of that name."""
    place = {key: column for column, key in enumerate(keys)}
    known = [column for column, key in enumerate(wanted) if key in place]
    grid = np.full((len(scores), len(wanted)), np.nan)
    grid[:, known] = scores[:, [place[wanted[column]] for column in known]]
    return grid
