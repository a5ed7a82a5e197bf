"""The pairs of a run: which were asked, what came back, and which come next.

1. ``ask`` lets the rule choose among the candidates that may be asked now; the choice gets the next
   number, and the table holds it as pending.
2. ``tell`` puts an outcome into the table, then tells the rule and its answer.
3. ``replay`` rebuilds the same state from the log of an earlier process, as ``adopt`` and ``tell``
   would move by move.
4. ``answer`` says what is known so far; ``stopped`` says why nothing will be asked any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bestarm_agent.selectors.rule import Rule
from bestarm_agent.selectors.types import Ask, Choice, Moves, Pair, State, Stop, Tell, events_of
from bestarm_agent.stats.arrays import BoolArray, IntArray
from bestarm_agent.stats.keyed_random import KeyedRandom


class Pairs:
    """All that a rule, or a plan with another aim, has asked and been told, and asks next.

    Callers loop: ``ask`` for pairs, evaluate them in any order and number, ``tell`` the outcomes.
    Only one thread may use it. Its state changes by ``ask`` (or ``adopt``), ``tell`` and what joins
    or leaves: fed the same log, a new one asks the same pairs. ``ask(n)`` equals n times
    ``ask(1)``.

    Attributes:
        rule: chooses the pairs; its ``problem`` is as it is now: candidates and budget may have
            grown.
        table: everything asked and told so far; read only for callers.
        answer: what the table says about the candidates.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.table = rule.table
        self.answer = rule.answer
        self._random = KeyedRandom(rule.problem.seed, "selector")
        self.wanted: list[int] | None = None  # rows whose missing pairs are asked, by no rule

    def complete(self, candidates: Sequence[int] | None) -> None:
        """Ask from now on for what these rows have not been asked, and for nothing else.

        None gives the word back to the rule. The examples come in the rule's order, so that its
        statements stay what they are.
        """
        self.wanted = None if candidates is None else list(candidates)

    def ask(
        self, n: int = 1, *, allowed: BoolArray | None = None, busy: BoolArray | None = None
    ) -> list[Ask]:
        """Choose up to ``n`` >= 0 pairs and mark them as pending.

        ``allowed`` (K,) marks the candidates that can be called and paid for; None means all.
        ``busy`` (K,) marks those that have to wait now: when it is the turn of one of them, no
        other takes its place, or the budget would go to the fast ones.

        Fewer than ``n`` come back, or none, when nothing can be asked until something is told, or
        when no allowed candidate matters any more (see ``stopped`` for "never again").
        """
        # A plan that looks for no best wants all its pairs in the end, so their order is free, and
        # a busy candidate's turn may go to others. A rule that looks for the best spends a budget
        # on those that deserve it: there, waiting keeps the choice independent of who answers fast.
        if busy is not None and not self.rule.seeks_best:
            allowed, busy = ~busy if allowed is None else allowed & ~busy, None
        asks: list[Ask] = []
        while len(asks) < n and (choice := self.next_choice(allowed)) is not None:
            if busy is not None and busy[choice.pair.candidate]:
                break
            # The choice goes into the table before the next one is made, which is why ``ask(n)``
            # equals n times ``ask(1)``.
            asks.append(Ask(self.table.n_asked, *choice))
            self.adopt(asks[-1:])
        return asks

    def next_choice(self, allowed: BoolArray | None = None) -> Choice | None:
        """Return what would be asked next among the ``allowed`` (K,) candidates; change nothing."""
        rows = self._askable if allowed is None else self._askable & allowed
        if self.wanted is not None:
            if not rows.any():
                return None
            row = int(np.where(rows, self.table.n_trials, self.table.n_examples).argmin())
            example = self.rule.draw_unseen(row, self._random.at(self.table.n_asked))
            return Choice(Pair(row, example), "complete")
        if not rows.any() or self._ending() is not None:
            return None
        # If those that may still be called cannot change whether the best is established, their
        # calls would be paid for nothing: better none, until others may be asked again. A mask that
        # keeps nobody out is none: a run asked again knows who was offered, and not how.
        is_masked = allowed is not None and not allowed.all()
        if is_masked and self.rule.problem.seeks_proof and not self._may_decide(rows):
            return None
        choice = self.rule.choose(rows, self._random.at(self.table.n_asked))
        return None if isinstance(choice, Stop) else choice

    def adopt(self, asks: Sequence[Ask]) -> None:
        """Mark pairs as pending, in order, such as those that an earlier process of the run asked.

        Raises ValueError if an ask's number is not the next one, or its pair was asked before.
        """
        for ask in asks:
            self.table.ask(ask)
            self.answer.asked([ask.pair.candidate])

    def tell(self, results: Sequence[Tell]) -> None:
        """Record outcomes, in any order: all of them, or none.

        Raises ValueError for an ask that is unknown or has an outcome, a score outside [0, 1] or a
        negative cost.
        """
        for result in results:
            self.table.check(result)
        if len({result.seq for result in results}) < len(results):
            raise ValueError(f"each ask has one outcome, got {[result.seq for result in results]}")
        for result in results:
            self.table.tell(result)
            self._heed(result)

    def _heed(self, latest: Tell, coming: int = 0) -> None:
        """Let the rule and its answer look at the table, of which this is the latest outcome.

        ``coming`` scores of a log follow it, before anything is chosen.
        """
        self.answer.forget()
        self.rule.told(latest)
        self.answer.forget()
        if self.rule.seeks_best:
            self.answer.review(self.rule.top_k, coming)

    def replay(self, moves: Moves) -> None:
        """Take in the next asks and outcomes of a log, as ``adopt`` and ``tell`` would each.

        Raises what they raise, with what came before it taken in.
        """
        if self.rule.until_look <= 1 or not self.table.accepts(moves):
            for event in events_of(moves):
                if isinstance(event, Ask):
                    self.adopt([event])
                else:
                    self.tell([event])
            return
        # Many at once, up to the outcome at which the rule may fit its model or the answer be
        # reviewed, and to the ask that commits a leader, by what the table held before it. Such an
        # ask is the first of the next moves, and the answer notes asks before the table has them.
        is_tell, n_moves = moves["number"] < 0, len(moves)
        n_told, asks = np.cumsum(is_tell), np.flatnonzero(~is_tell)
        n_scored = np.cumsum(is_tell & (moves["state"] != State.VOID))
        commits = asks[self.answer.commits(moves["candidate"][asks])]
        start = 0
        while start < n_moves:
            until = min(self.rule.until_look, self.answer.until_review, n_moves)
            look = n_told.searchsorted((n_told[start - 1] if start else 0) + max(1, until))
            later = commits[commits.searchsorted(start, side="right") :]
            end = min(look + 1, n_moves, *later[:1])
            rows = moves["candidate"][start:end][~is_tell[start:end]]
            self.answer.asked(rows.tolist())
            self.table.take(moves[start:end])
            for latest in events_of(moves[start:end][is_tell[start:end]][-1:]):
                if isinstance(latest, Tell):
                    self._heed(latest, int(n_scored[-1] - n_scored[end - 1]))
            start = end

    def add_candidates(
        self, count: int, costs: Sequence[float] | None = None, axes: IntArray | None = None
    ) -> None:
        """Add ``count`` >= 0 candidates as the last rows; intervals begin anew over all of them.

        ``costs`` (count,) and ``axes`` (count, A) are theirs; without axes, their levels are their
        own. Raises ValueError where costs or axes do not fit those of the others.
        """
        problem = self.rule.problem
        if problem.axes is not None:
            own = np.full((count, problem.axes.shape[1]), -1) if axes is None else axes
            axes = np.concatenate([problem.axes, own])
        self.rule.problem = replace(
            problem,
            n_candidates=problem.n_candidates + count,
            costs=(*(problem.costs or ()), *(costs or ())) or None,
            axes=axes,
        )
        self.table.add_candidates(count)
        self.answer.restart()
        self.rule.changed()
        self.answer.forget()

    def add_examples(self, count: int) -> None:
        """Add ``count`` >= 0 examples as the last columns of a plan that looks for no best.

        Raises ValueError for a rule: it draws from all examples from the start.
        """
        if self.rule.seeks_best:
            raise ValueError(f"no examples can join a run by {self.rule.name!r}; begin a new one")
        self.table.add_examples(count)

    def add_budget(self, count: int) -> None:
        """Add ``count`` >= 0 pairs to the budget of rules that plan for one.

        Raises ValueError if ``count`` is negative, or no budget was given at the start.
        """
        budget = self.rule.problem.budget
        if count < 0 or budget is None:
            raise ValueError(f"cannot add {count} pairs to a budget of {budget}")
        self.rule.problem = replace(self.rule.problem, budget=budget + count)
        self.rule.changed()

    def bar(self, candidates: Sequence[int]) -> None:
        """Take candidates out of the competition for good, for a reason that is not their scores.

        Statements about the others stay valid, since intervals are joint over all candidates.
        Nobody leaves a plan that does not look for the best. Raises ValueError for a row that is
        not there.
        """
        if not set(candidates) <= set(range(n := self.table.n_candidates)):
            raise ValueError(f"candidates are numbered 0 to {n - 1}, got {list(candidates)}")
        rows = [candidate for candidate in candidates if not self.answer.barred[candidate]]
        if rows and self.rule.seeks_best:
            self.answer.bar(rows)
            self.rule.changed()
            self.answer.forget()

    def stopped(self) -> Stop | None:
        """Return why nothing will be asked any more, or None while that may still happen."""
        if self.wanted is not None:
            return None if self._askable.any() else Stop.EXHAUSTED
        ending, is_over = self._ending(), self.rule.seeks_best and not self.rule.askable.any()
        # Nothing is left to ask. While pairs are pending, their scores may still say more than
        # that.
        if is_over and ending in (None, Stop.INDIFFERENT):
            return ending if self.table.count(State.PENDING).any() else Stop.EXHAUSTED
        if ending is not None:
            return ending
        choice = self.rule.choose(self.rule.askable, self._random.at(self.table.n_asked))
        return choice if isinstance(choice, Stop) else None

    @property
    def _askable(self) -> BoolArray:
        """(K,) rows of which something may be asked."""
        if self.wanted is None:
            return self.rule.askable
        wanted = np.isin(np.arange(self.table.n_candidates), self.wanted)
        return wanted & self.rule.askable

    def _ending(self) -> Stop | None:
        """Return why the best is known well enough to end the run; None if it is not."""
        if not self.rule.seeks_best:
            return None
        # From the strongest statement to the weakest: proved to be the best, near enough to the
        # best, equal as far as the examples can tell, and last that more scores cannot part them.
        established = self.answer.established(self.rule.top_k)
        if established is Stop.SEPARATED:
            return established
        if self.answer.is_within:
            return Stop.WITHIN
        return Stop.LEVEL if self.answer.is_level else established

    def _may_decide(self, rows: BoolArray) -> bool:
        """Return whether scores of any of these rows can still help to establish the best."""
        if not self.rule.seeks_best:
            return True
        contenders = self.answer.contenders(self.rule.top_k)
        return bool((rows & contenders).any()) or not contenders.any()
