"""Gold scores of a run: read from the file that its study names, put beside the judge's scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bestarm_agent.checking import Compared, Comparison, JudgeCheck, check_judge
from bestarm_agent.datasets.labels import Label, answer_digest, by_answer, load_labels
from bestarm_agent.domain.outcome import Failed, Scored
from bestarm_agent.errors import Blame
from bestarm_agent.store.base import RunStore
from bestarm_agent.store.fold import RunState


async def compare_run(store: RunStore, state: RunState, labels: Sequence[Label]) -> Comparison:
    """Put a run's scores beside gold scores; no call is made.

    Args:
        store: holds the answers.
        state: the run.
        labels: the gold scores; those of pairs that the run has not scored are missing.
    """
    wanted = by_answer(labels)
    examples = {label.example for label in labels}
    pairs, void = [], []
    for seq, told in state.told.items():
        ask, outcome = state.asks[seq], told.outcome
        example = state.example_ids[ask.example]
        if example not in examples or outcome.reply_key is None:
            continue
        reply = await store.get_reply(outcome.reply_key)
        text = reply.text if reply is not None else ""
        name = state.candidates[ask.candidate].label
        label = wanted.get((example, name)) or wanted.get((example, answer_digest(text)))
        if label is None:
            continue
        if isinstance(outcome, Scored):
            found = (outcome.value, label.score, len(text), outcome.judge_spend, outcome.votes)
            pairs.append(Compared(ask.candidate, *found))
        if isinstance(outcome, Failed) and outcome.blame is Blame.JUDGE:
            void.append(outcome.message)
    return Comparison(tuple(pairs), len(labels), len(void), void[-1] if void else "")


async def check_run(
    store: RunStore, state: RunState, labels: Sequence[Label], confidence: float
) -> JudgeCheck | None:
    """Measure a run's judge on gold scores; None if none of them is about a scored answer."""
    comparison = await compare_run(store, state, labels)
    return check_judge(comparison, confidence) if comparison.pairs else None


def stored_labels(state: RunState, where: str | Path) -> tuple[Label, ...]:
    """The gold scores that a stored run's study names, if their file is still where it was.

    Raises:
        ConfigError: the file is malformed.
    """
    config = state.started.config if state.started is not None else None
    name = config.get("labels") if isinstance(config, Mapping) else None
    if state.started is None or not isinstance(name, str):
        return ()
    folder = Path() if "://" in str(where) else Path(where).parent
    path = folder / state.started.base / name
    return load_labels(path) if path.is_file() else ()
