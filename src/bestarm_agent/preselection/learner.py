"""Features and rule of a router together: from prompts and records to arrays, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bestarm_agent.preselection.feedback import Record
from bestarm_agent.preselection.prompt_features import Prompt, PromptEncoder
from bestarm_agent.preselection.router_state import Arrays
from bestarm_agent.preselection.rules.base import Preselector
from bestarm_agent.preselection.rules.joint_features import joint_features
from bestarm_agent.preselection.rules.registry import make_preselector
from bestarm_agent.preselection.rules.types import (
    BoolArray,
    Feedback,
    FloatArray,
    PreselectionProblem,
    score_feedback,
)
from bestarm_agent.preselection.settings import RoutedCandidate, RouterSettings, candidate_features
from bestarm_agent.stats.keyed_random import KeyedRandom


class Learner:
    """Chooses rows for prompts once features have been made; random rows before.

    ``n_first`` is the number of candidates at first; None: all.
    """

    def __init__(
        self,
        candidates: Sequence[RoutedCandidate],
        settings: RouterSettings,
        n_first: int | None = None,
    ) -> None:
        self._settings = settings
        self._row = {candidate.name: row for row, candidate in enumerate(candidates)}
        self._usd = {candidate.name: candidate.usd for candidate in candidates}
        self._arms = candidate_features(candidates, settings, n_first)
        self._encoder = PromptEncoder(settings)
        self._rule: Preselector | None = None
        self._early = KeyedRandom(settings.seed, "early choice")
        self._ties = KeyedRandom(settings.seed, "ties of scores")

    @property
    def ready(self) -> bool:
        """Return whether features have been made."""
        return self._rule is not None

    @property
    def n_learnt(self) -> int:
        """Records that taught the rule something."""
        return self._rule.n_learnt if self._rule else 0

    def check(self, prompt: Prompt) -> None:
        """Check that a prompt has what features are made of; raises ConfigError."""
        self._encoder.check(prompt)

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Make features from prompts, and the rule that learns on them."""
        self._encoder.fit(prompts)
        self._rule = self._new_rule()

    def choose(self, prompt: Prompt, k: int, allowed: BoolArray, draw: int) -> list[int]:
        """Choose k of the rows allowed; raise ValueError if there are fewer."""
        if self._rule is not None:
            contexts = self._contexts(prompt)
            return [int(i) for i in self._rule.choose(contexts, k, allowed=allowed, draw=draw)]
        rows = np.flatnonzero(allowed)
        if not 1 <= k <= len(rows):
            raise ValueError(f"k must be in 1..{len(rows)}, the arms that can be run, got {k}")
        return [int(row) for row in self._early.at(draw).permutation(rows)[:k]]

    def learn(self, record: Record) -> bool:
        """Learn a record; False if it says nothing about who is better."""
        if self._rule is None:
            raise ValueError("nothing can be learnt before features are made")
        return self._rule.learn(self._feedback(record))

    def state(self) -> tuple[Arrays, Arrays] | None:
        """State of rule and encoder; None before features are made."""
        return None if self._rule is None else (self._rule.state(), self._encoder.state())

    def restore(self, rule: Arrays, encoder: Arrays) -> None:
        """Take over what ``state`` gave out."""
        self._encoder.restore(encoder)
        self._rule = self._new_rule()
        self._rule.restore(rule)

    def take_over(self, other: Learner) -> None:
        """Go on from what another learned about the first of these candidates."""
        state = other.state()
        if state is None:
            return
        rule, encoder = state
        self._encoder.restore(encoder)
        self._rule = self._new_rule()
        width, before = self._arms.shape[1], other._arms.shape[1]  # columns keep their places
        prompt_features = np.arange(self._encoder.n_features)
        places = (prompt_features[:, None] * width + np.arange(before)).ravel()
        self._rule.take_over(rule, places)

    def _new_rule(self) -> Preselector:
        settings = self._settings
        width = self._encoder.n_features * self._arms.shape[1]
        problem = PreselectionProblem(len(self._row), width, settings.seed)
        return make_preselector(settings.rule, problem, **settings.rule_params())

    def _contexts(self, prompt: Prompt) -> FloatArray:
        return joint_features(self._encoder.vector(prompt), self._arms)

    def _feedback(self, record: Record) -> Feedback:
        contexts = self._contexts((record.prompt, record.features))
        if record.scores or self._settings.cost_weight:
            rows = [self._row[name] for name in record.shown]
            quality = record.scores or quality_by_place(record)
            utility = np.array(
                [self._utility(record, name, quality[name]) for name in record.shown]
            )
            return score_feedback(contexts, rows, utility, self._ties.at(self.n_learnt))
        rest = [name for name in record.shown if name not in record.ranking]
        order = np.array([self._row[name] for name in (*record.ranking, *rest)], dtype=np.intp)
        return Feedback(contexts, order, len(record.ranking))

    def _utility(self, record: Record, name: str, quality: float) -> float:
        """Quality minus what the call's dollars weigh."""
        usd = record.usd.get(name, self._usd[name])
        return quality - self._settings.cost_weight * (usd or 0.0)


def quality_by_place(record: Record) -> dict[str, float]:
    """Turn a ranking into numbers in [0, 1]: 1 for the first, 0 for the last and the unranked.

    Example:
        >>> quality_by_place(Record("x", ("a", "b", "c"), ranking=("c", "a")))
        {'a': 0.5, 'b': 0.0, 'c': 1.0}
    """
    steps = min(len(record.ranking), len(record.shown) - 1)
    place = {name: j for j, name in enumerate(record.ranking)}
    return {name: 1.0 - place.get(name, steps) / steps for name in record.shown}
