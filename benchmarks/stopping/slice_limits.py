"""Pairs until a limit on slices is decided, with and without pairs beside the rule.

    python -m benchmarks.stopping.slice_limits --worlds 40

Prints a table: medians of the pairs that `select` asks until it is decided whether the best
candidate keeps the limit, and until the answer is established. Six candidates answer 1,000
examples, of which a small slice has 5 %; the limit is `slice_loss <= 0.05`, at 95 %.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bestarm_agent.config.study.objective import ObjectiveSpec
from bestarm_agent.config.study.run_options import SelectorSpec
from bestarm_agent.domain.candidate import Candidate, PromptTemplate
from bestarm_agent.domain.events import (
    Asked,
    CandidatesAdded,
    CandidatesBarred,
    Event,
    ExamplesAdded,
    Told,
)
from bestarm_agent.domain.example import Slice
from bestarm_agent.domain.outcome import Scored
from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.engine.results.objectives import (
    ObjectiveState,
    ObjectiveTracker,
    track_objective,
)
from bestarm_agent.engine.rule_pairs import RulePairs
from bestarm_agent.engine.run.event_log import Size
from bestarm_agent.engine.setup.selection import Selection
from bestarm_agent.selectors.types import Ask, BoolArray, FloatArray, State, Tell

_PROMPT = PromptTemplate("q", text="{{ question }}")
_MEANS = (0.60, 0.80, 0.70, 0.65, 0.55, 0.50)  # of the candidates; the first is the baseline
_STEP = 20  # pairs between looks at a limit
_NOISE = 0.15  # of an answer, beside how hard the example is for all


@dataclass(frozen=True, slots=True)
class World:
    """Scores of the candidates, and the examples of the small slice."""

    scores: FloatArray  # (K, N)
    small: tuple[int, ...]

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The small slice, and the rest."""
        rest = set(range(self.scores.shape[1])).difference(self.small)
        return Slice("l=de", self.small), Slice("l=en", tuple(sorted(rest)))


def draw(rng: np.random.Generator, n: int = 1_000, share: float = 0.05, *, kept: bool) -> World:
    """Draw a world whose best candidate is on the small slice as good as the baseline, or fails."""
    small = np.sort(rng.permutation(n)[: round(share * n)])
    hard = rng.random(n) + rng.normal(0.0, _NOISE, (len(_MEANS), n))
    scores = (hard < np.array(_MEANS)[:, None]).astype(float)
    scores[1:3, small] = scores[0, small]
    if not kept:
        scores[1, small] = 0.0
    return World(scores, tuple(small.tolist()))


class Race:
    """A run of `select` on known scores, one pair at a time, without an engine.

    Args:
        beside: whether pairs are asked beside the rule; else the best candidate and the baseline
            go on along the common order.
    """

    def __init__(
        self,
        world: World,
        seed: int,
        *,
        limit: float = 0.05,
        confidence: float = 0.95,
        beside: bool = True,
    ) -> None:
        n_candidates, n_examples = world.scores.shape
        spec = ObjectiveSpec(subject_to={"slice_loss": f"<= {limit}"}, baseline="c0")
        chosen = SelectorSpec(name="auto", seed=seed, confidence=confidence)
        labels = [f"c{i}" for i in range(n_candidates)]
        candidates = tuple(Candidate("p", name, _PROMPT, {}, name) for name in labels)
        ids = tuple(f"e{j}" for j in range(n_examples))
        size = Size(n_candidates, n_examples, slices=world.slices)
        pairs = Selection(chosen, spec).pairs(size, candidates)
        assert isinstance(pairs, RulePairs)
        tracker = track_objective(spec, chosen, [], pairs)
        assert tracker is not None
        self.pairs: RulePairs = pairs
        self.tracker: ObjectiveTracker = tracker
        self.events: list[Event] = []
        self._scores, self._beside = world.scores, beside
        self._record(ExamplesAdded(ids, ids, world.slices))
        self._record(CandidatesAdded(candidates))

    @property
    def state(self) -> ObjectiveState:
        """What is known of the objective."""
        return self.tracker.state(self.pairs)

    def is_decided(self, row: int) -> bool:
        """Return whether a candidate is shown to keep the limit, or to break it."""
        found = self.state.findings
        return bool(found) and bool(found[0].kept[row] or found[0].broken[row])

    def run_until_decided(self, row: int) -> int:
        """Run until it is shown whether a candidate keeps the limit; return the pairs so far."""
        asked = self.run(_STEP)
        while not self.is_decided(row):
            before, asked = asked, self.run(asked + _STEP)
            if asked == before:
                raise RuntimeError(f"the run ended after {asked} pairs without an answer")
        return asked

    def run(self, most: int | None = None) -> int:
        """Run until the answer is established, or ``most`` pairs are asked; return their number."""
        while most is None or self.pairs.table.n_asked < most:
            if gone := self.tracker.review(self.pairs):
                self._record(CandidatesBarred(tuple(gone), "limit"))
                self.pairs.bar(tuple(gone))
            elif self.tracker.is_reached:
                break
            elif asks := self._ask():
                for one in asks:
                    self._answer(one)
            elif self.tracker.is_behind(self.pairs):
                self.tracker.review(self.pairs, now=True)
            else:
                break
        return self.pairs.table.n_asked

    def _ask(self) -> list[Ask]:
        if self._beside and (choice := self.tracker.beside(None)) is not None:
            asks = [Ask(self.pairs.table.n_asked, *choice)]
            self.pairs.adopt(asks)
            return asks
        available = self.tracker.worth
        if not self._beside and available is not None:
            available = self._behind(available)
        return self.pairs.ask(1, allowed=available)

    def _behind(self, worth: BoolArray) -> BoolArray:
        """Return a mask of the best candidate or the baseline, whichever has seen less."""
        rows = (0, self.pairs.best().best)
        row = min(rows, key=lambda one: int(self.pairs.table.n_trials[one]))
        return np.asarray(np.arange(len(worth)) == row)

    def _answer(self, ask: Ask) -> None:
        score = float(self._scores[ask.pair])
        self._record(Asked(ask.seq, *ask.pair, ask.propensity, ask.reason))
        outcome = Scored(score, None, Usage(), Spend(), 1.0, "key")
        self._record(Told(ask.seq, outcome, score))
        self.pairs.tell([Tell(ask.seq, State.DONE, score)])

    def _record(self, event: Event) -> None:
        self.events.append(event)
        self.tracker.take(event)


def table(worlds: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| the best candidate | pairs | until its limit is decided | until established |"
    yield "| --- | --- | ---: | ---: |"
    for kept, what in ((True, "keeps the limit"), (False, "breaks it on the small slice")):
        for beside, how in ((False, "in one order"), (True, "beside it, too")):
            decided, asked = [], []
            for seed in range(worlds):
                world = draw(np.random.default_rng(seed), kept=kept)
                race = Race(world, seed, beside=beside)
                decided.append(race.run_until_decided(1))
                asked.append(race.run())
            yield f"| {what} | {how} | {np.median(decided):,.0f} | {np.median(asked):,.0f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=40)
    for line in table(parser.parse_args().worlds):
        print(line, flush=True)
