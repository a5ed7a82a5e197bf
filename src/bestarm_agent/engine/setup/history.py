"""Scores of earlier runs on the same examples, and what is learned from them for rules that can.

Examples are recognised by their content. What is learned takes a minute on a thousand candidates,
so it is kept beside the store, under the digest of the scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from bestarm_agent.domain.values import Example
from bestarm_agent.engine.setup.parts import StudyParts
from bestarm_agent.errors import ConfigError, StoreError
from bestarm_agent.stats.history import STRONG, Factors, HistoryModel, Validation, learn
from bestarm_agent.store.chunks import folded
from bestarm_agent.store.export import matrix as scores_of
from bestarm_agent.store.export import whole_file
from bestarm_agent.store.run_state import RunState
from bestarm_agent.store.store import StorePlace, folder_of, open_store

Scores: TypeAlias = NDArray[np.float64]

_FEWEST = 32  # scores that say something of a past candidate
_FOLDER = "history"  # of the models, beside the store
_FORMAT = 2  # of kept models; raise it when what is learned from the same scores changes


@dataclass(frozen=True, slots=True)
class History:
    """Past candidates' lessons about a study's examples."""

    model: HistoryModel  # factors of all N examples, in the study's order
    name: str  # of the file that keeps it beside the store
    notices: tuple[str, ...]  # what it rests on and what it is good for, a sentence each


async def learn_from_history(parts: StudyParts, where: StorePlace) -> History:
    """Learn from the earlier runs that a study names, at least one; keep it next to their store.

    Raises:
        ConfigError: a run is gone, or nothing in them is of use.
    """
    names = parts.config.selector.history
    with parts.study.positions.at("selector", "history"):
        try:
            async with open_store(where, create=False) as store:
                runs = {name: await folded(store, name) for name in names}
        except StoreError as error:
            raise ConfigError(f"selector.history: {error}") from error
        scores, n_dropped = past_scores(runs, parts.examples)
        model, file = learn_once(scores, folder_of(where) / _FOLDER)
    judges = {name: run.started.judge for name, run in runs.items()}
    notices = (
        f"history run {name} was scored by another judge (digest {judge}, now "
        f"{parts.judge.digest}): what it teaches may not hold for this one"
        for name, judge in judges.items()
        if judge not in (None, parts.judge.digest)
    )
    return History(model, file, (described(model.validation, scores, n_dropped), *notices))


def recorded_history(state: RunState, store: StorePlace) -> HistoryModel | None:
    """Load the history model that a stored run uses; raise ConfigError if it is gone."""
    name = state.started.lesson
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


def past_scores(runs: Mapping[str, RunState], examples: Sequence[Example]) -> tuple[Scores, int]:
    """Gather (H, N) past scores on a study's examples, NaN where there is none.

    A past candidate needs 32 scores on these examples, or on half of them if that is fewer. Also
    return how many had too few. Raises ConfigError if all had.
    """
    rows: dict[str, Scores] = {}
    columns = {example.digest: column for column, example in enumerate(examples)}
    for run in runs.values():
        column_of = [columns.get(digest, -1) for digest in run.example_digests]
        known = [column for column in column_of if column >= 0]
        for candidate, past in zip(run.candidates, scores_of(run), strict=True):
            row = np.full(len(examples), np.nan)
            row[known] = past[np.array(column_of, dtype=np.intp) >= 0]
            before = rows.get(candidate.id, row)
            rows[candidate.id] = np.where(np.isnan(row), before, row)  # the later one wins
    scores = np.array(list(rows.values())).reshape(len(rows), -1 if rows else 0)
    fewest = max(2, min(_FEWEST, len(examples) // 2))
    enough = (~np.isnan(scores)).sum(axis=1) >= fewest
    if not enough.any():
        raise ConfigError(
            f"no candidate in {', '.join(runs)} has {fewest} scores on this study's examples; "
            f"name a run on the same examples, or leave the history out"
        )
    return scores[enough], int((~enough).sum())


def described(found: Validation, scores: Scores, n_dropped: int) -> str:
    """Say what a model rests on, and which rules will use it."""
    dropped = f" ({n_dropped} more had too few scores)" if n_dropped else ""
    verdict = "it does not predict candidates that were held out, so it is not used"
    if found.is_useful:
        gain = f"{100 * found.gain:.0f} % of a new candidate's variance over examples"
        verdict = f"predictions remove {gain}"
        if not found.is_strong:
            verdict += (
                ": enough for pulse and for the intervals of means, not for what auto asks "
                f"(surely above {100 * STRONG:.0f} %)"
            )
    return (
        f"history: {len(scores)} candidates{dropped} on {len(_known(scores))} of the"
        f" {scores.shape[1]} examples; {verdict}"
    )


def learn_once(scores: Scores, folder: Path) -> tuple[HistoryModel, str]:
    """Learn from (H, N) past scores, or read what was learned from the same ones before.

    It is kept in ``folder``, so that a run can be resumed when its sources have changed. Also
    return the name of the file: a digest of the scores.
    """
    # The digest has the format's number and the shape in it: the same bytes in another shape are
    # other scores, and a model of an older format is learned anew.
    content = np.ascontiguousarray(scores, dtype="<f4")
    digest = hashlib.sha256(f"{_FORMAT} {content.shape} ".encode() + content.tobytes()).hexdigest()
    name = f"lesson-{digest[:16]}"
    model = _kept(folder / f"{name}.npz")
    if model is None:
        known, columns = _known(scores), np.full(scores.shape[1], -1)
        columns[known] = np.arange(len(known))
        model = learn(content[:, known])
        model = HistoryModel(model.factors.at(columns), model.validation)
        _keep(folder / f"{name}.npz", model)
    return model, name


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
    with whole_file(path, "history") as stream:  # two studies may learn from the same runs at once
        np.savez_compressed(
            stream,
            offset=model.factors.offset,
            loadings=model.factors.loadings,
            foresight=np.array(json.dumps(asdict(model.validation))),
        )
