"""A naive count of what a selector was asked and told, to compare its score table with."""

from __future__ import annotations

import pytest

from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.types import Pair, State, Tell
from bestarm_agent.testing.selector_runs import Run, World


class Counts:
    """A naive count of everything a selector was asked and told."""

    def __init__(self, selector: Pairs, seed: int) -> None:
        self.run = Run(selector, World.with_failures((60, 70), seed))
        self.told: dict[Pair, Tell] = {}

    def follow(self, acts: list[tuple[str, int]]) -> None:
        """Do one thing after the other, and compare after each."""
        for act, number in acts:
            self.act(act, number)
            self.compare()

    def act(self, act: str, number: int) -> None:
        """Ask, tell, tell again, or let candidates or examples join."""
        run = self.run
        if act == "ask":
            before = set(run.pairs)
            new = [ask.pair for ask in run.ask(number % 6)]
            assert len(before | set(new)) == len(before) + len(new)
        elif act == "tell" and run.waiting:
            place = number % len(run.waiting)
            ask = run.waiting[place]
            self.told[ask.pair] = run.world.outcome(ask)
            run.tell(place)
        elif act == "again" and self.told:
            tells = list(self.told.values())
            with pytest.raises(ValueError, match="was told before"):
                run.selector.tell([tells[number % len(tells)]])
        elif act == "rows":
            run.grow(candidates=number % 3)
        elif act == "columns":
            run.grow(examples=number % 3)

    def compare(self) -> None:
        """Check the selector's table against the naive count."""
        table, asked = self.run.selector.table, self.run.pairs
        for i in range(table.n_candidates):
            told = [tell for pair, tell in self.told.items() if pair.candidate == i]
            scores = [tell.score for tell in told if tell.state != State.VOID]
            pending = [ask for ask in self.run.waiting if ask.pair.candidate == i]
            assert table.n_scored[i] == len(scores)
            assert table.count(State.PENDING)[i] == len(pending)
            assert table.count(State.VOID)[i] == len(told) - len(scores)
            assert table.total[i] == pytest.approx(sum(scores))
            of_row = [pair for pair in asked if pair.candidate == i]
            assert [Pair(i, int(table.example[s])) for s in table.row(i)] == of_row
            assert table.spent[i] == pytest.approx(0.1 * len(told))
        assert table.n_asked == len(asked)
