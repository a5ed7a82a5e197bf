"""The answer so far: estimates, who may still be the best, and whether the best is proved.

An example is hard or easy for all candidates, which cancels in differences: two candidates are told
apart on common examples long before their intervals are. With alpha = 1 - confidence, two
statements are made. Each holds at all times with probability at least 1 - alpha:

    (A) which candidate is the best, and how far the leading one may be behind it
        common examples: ``PairedSequences.rejected`` and ``lag``, at alpha
        otherwise: as (B)
    (B) every candidate's mean, and every pair of candidates, all together
        common examples: intervals at alpha / 2 (each at alpha / 2K), and the fixed pairs of
        ``PairedSequences.beaten_by`` and ``shortfall`` at alpha / 2
        otherwise: intervals at alpha (each at alpha / K), and pairs whose intervals are apart

(A) is about the leading one alone. A set of k, a candidate that somebody names, and a race that
some have left (one of them may have been the best) need (B).

Both are about the mean over the N examples. A third, at the same level, is about *new* examples
drawn like them:

    (C) how far the leading one is ahead of others, and its own mean
        common examples: ``PairedSequences.rejected_on_new`` and ``lag_on_new`` at alpha / 2, and
        the leads of all pairs of candidates, together, at alpha / 2
        otherwise: the intervals of means
        the mean of any candidate: at alpha, each at alpha / K

Nothing is computed before somebody asks for it, and then it goes on from where it stood: the answer
does not depend on how often one looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from bestarm_agent.selectors.proofs import Evidence, OnNewExamples, Proofs
from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import Belief, Estimates, Guarantee, Problem, Stop, Verdict
from bestarm_agent.stats.arrays import BoolArray, FloatArray, IntArray
from bestarm_agent.stats.control import Controls
from bestarm_agent.stats.history import Factors, HistoryModel
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.new_examples import FEWEST_EXAMPLES, nearness
from bestarm_agent.stats.paired_sequences import PairedSequences

# A look compares the leading one with all its rivals, and 2 % more scores seldom change it.
_SHARE_NEW = 0.02  # of the scores, between two looks at whether the best is near enough
_WORST = 32  # rivals that are compared first


class Answer:
    """Estimates and statements about the candidates, at ``problem.confidence``.

    Args:
        problem: the task; what it says of stopping holds.
        table: everything asked and told.
        belief: what the rule thinks of the candidates now.
        exogenous: whether examples are drawn without regard to scores; only then are there
            intervals.
        paired: whether candidates share one order of the examples; only then are they compared in
            pairs.

    Attributes:
        factors: of what past candidates scored, where it sharpens the intervals of means.
        on_new: what is said of new examples; only if ``speaks_of_new``, of a random order.
        barred: (K,) candidates that left the competition for a reason that is not their scores.
        tie_ranks: (K,) random numbers in [0, 1) that put equals in order.
        presumed_order: the candidates by a recent ranking, best first, or None. A rule whose belief
            is expensive may set it: what that order leaves undecided counts as not established.
        is_within: whether the best are proved to be within ``problem.within``, as of the last
            review.
        is_level: whether the leading candidate and all that may be better are nearer to each other
            than all N examples can tell apart, as of the last review.
    """

    def __init__(
        self,
        problem: Problem,
        table: ScoreTable,
        belief: Callable[[], Belief],
        *,
        exogenous: bool,
        paired: bool,
    ) -> None:
        self._problem, self._table = problem, table
        self._think, self._exogenous, self._paired = belief, exogenous, paired
        self.factors: Factors | None = None
        self.speaks_of_new = exogenous and problem.track_intervals
        self._ties = KeyedRandom(problem.seed, "ties")
        self.barred: BoolArray = np.empty(0, dtype=np.bool_)
        self.tie_ranks: FloatArray = np.empty(0)
        self.presumed_order: IntArray | None = None
        self._pairs: PairedSequences | None = None  # on common examples
        self.restart()

    def restart(self) -> None:
        """Begin anew, over all rows that the table has now.

        Candidates that join later take the same order from its beginning; whoever led at a place
        stays its leader.
        """
        table, problem = self._table, self._problem
        n_old, n_rows = len(self.barred), table.n_candidates
        self.barred = np.pad(self.barred, (0, n_rows - n_old))
        ties = self._ties.at(n_old).random(n_rows - n_old)
        self.tie_ranks = np.concatenate([self.tie_ranks, ties])
        # Whoever led at a place was chosen before its scores were known, by what was known then.
        # Choosing again, now that the scores are there, would break the guarantee, so leaders
        # outlive the restart.
        leaders = () if self._pairs is None else self._pairs.leaders
        alpha = 1.0 - problem.confidence if self.speaks_of_new else None
        of_means, self._pairs = alpha, None
        if alpha is not None and self._paired:
            of_means = alpha / 2
            self._pairs = PairedSequences(  # (A) at alpha, (B) at pair_alpha
                n_rows,
                table.n_examples,
                alpha,
                pair_alpha=alpha / 2,
                leaders=leaders,
                draws=problem.draws,
                independent=problem.independent,
            )
            # All that was asked counts as asked from the start: the leaders of these places are
            # there already.
            for row in np.repeat(np.arange(n_rows), table.n_trials).tolist():
                self._pairs.ask(row)
        self._evidence = Evidence(problem, table, self._pairs, self.barred)
        self.on_new = OnNewExamples(self._evidence)
        controls = None if self.factors is None else Controls(self.factors)
        self._proofs = Proofs(self._evidence, self.on_new, of_means, controls)
        self.is_within = self.is_level = False
        self._next_review = 0  # number of scores
        self.forget()

    def learn(self, history: HistoryModel | None) -> None:
        """Let past candidates' scores on the same examples help, before anything is asked.

        If they predict held-out candidates, they sharpen the intervals (B) of means
        (``stats.control``), which asks for an order of the examples that does not depend on them.
        What is said of pairs and of new examples never looks at them.
        """
        if history is not None and history.validation.is_useful:
            self.factors = history.factors.of(self._table.n_examples)
            self.restart()

    def forget(self) -> None:
        """Work the rule's belief and what follows from scores out again when it is looked at."""
        self._belief: Belief | None = None
        self._proofs.forget()

    def asked(self, rows: Sequence[int]) -> None:
        """Note that candidates are asked for their next examples, in order.

        Only the first may commit a leader (``commits``).
        """
        self._belief = None
        if self._pairs is None or not rows:
            return
        # This ask is the first at its place and commits a leader: the rows that may lead must have
        # all scores that are known by now, and no later ask of the same place changes the choice.
        if self._pairs.asked[rows[0]] == len(self._pairs.leaders):
            self._evidence.feed(self._pairs, self._pairs.front)
        self._pairs.ask(rows[0])
        if len(rows) > 1:
            np.add.at(self._pairs.asked, rows[1:], 1)

    def commits(self, rows: IntArray) -> BoolArray:
        """(n,) mask of those asks of some rows, one after the other, that commit a leader."""
        if self._pairs is None:
            return np.full(len(rows), False)
        return self._pairs.commits(rows)

    @property
    def until_review(self) -> float:
        """Number of scores until ``review`` looks again, infinite if it never does."""
        gap, ends_level = self._problem.within, self._problem.ends_level
        never = gap is None and not ends_level
        return inf if never else self._next_review - self._table.n_scores

    def bar(self, candidates: list[int]) -> None:
        """Take candidates out of the competition."""
        self.barred[candidates] = True
        self.is_within = self.is_level = False
        self._next_review = 0
        self.forget()

    def estimates(self) -> Estimates:
        """Return point estimates and intervals of every candidate's mean over all N examples."""
        lower, upper = self._proofs.bounds()
        # An interval that history narrows may leave out a mean of few scores on easy examples.
        ends = (0.0, 1.0) if self.factors is None else (lower, upper)
        return Estimates(
            mean=np.clip(self._now().mean, *ends),
            lower=lower.copy(),
            upper=upper.copy(),
            n=self._table.n_scored,
            guarantee=self._guarantee(),
        )

    def best(self) -> Verdict:
        """Name the candidate with the highest estimate, and those it is not proved to beat.

        Raises ValueError if there is no candidate, or all have left the competition.
        """
        self._check_any()
        [best] = self.leading(1)
        if self.barred[best]:
            raise ValueError("all candidates have left the competition; there is no best one")
        return Verdict(best, self.tied(best), self._guarantee())

    def tied(self, best: int) -> tuple[int, ...]:
        """Return the candidates that the leading one, ``best``, is not proved to beat."""
        return tuple(np.flatnonzero(self._proofs.rivals(best, [best])).tolist())

    def ranking(self) -> list[int]:
        """Return the candidates by falling estimate, ties in random order.

        Those without an estimate come after the others, and the barred ones last.
        """
        belief = self._now()
        means = np.nan_to_num(belief.mean, nan=-np.inf)
        tier = np.zeros(len(means)) if belief.tier is None else belief.tier
        order: list[int] = np.lexsort((self.tie_ranks, -means, tier, self.barred)).tolist()
        return order

    def leading(self, count: int) -> list[int]:
        """Return the first ``count`` of the ranking; of one, without sorting the others."""
        if count != 1 or not len(self.barred):
            return self.ranking()[:count]
        belief, field = self._now(), self.barred == self.barred.min()
        if belief.tier is not None:
            field &= belief.tier == belief.tier[field].min()
        means = np.where(np.isnan(belief.mean), -np.inf, belief.mean)
        first = np.flatnonzero(field & (means == means[field].max()))
        return [int(first[self.tie_ranks[first].argmin()])]

    def contenders(self, top_k: int) -> BoolArray:
        """(K,) mask of the candidates whose scores can still prove who the best ``top_k`` are.

        They are those of the presumed best with a rival that they are not proved to beat, the
        rivals, and the candidate without whose next score nothing more can be proved, if there is
        one.
        """
        presumed = self.presumed_order
        best = self.leading(top_k) if presumed is None else presumed[:top_k].tolist()
        contenders = np.full(self._table.n_candidates, False)
        for candidate, rivals in self._proofs.undecided(best):
            contenders |= rivals
            contenders[candidate] |= rivals.any()
        if contenders.any() and self._pairs is not None and self._pairs.awaited is not None:
            contenders[self._pairs.awaited] = True
        return contenders

    def established(self, top_k: int) -> Stop | None:
        """Return SEPARATED or INDIFFERENT if no more scores are needed to name the best ``top_k``.

        SEPARATED if they are proved to beat all others, INDIFFERENT if more scores cannot part them
        from their rivals. Only valid intervals may say so, and only if the problem asks to stop.
        """
        if not self._problem.stop_when_separated or self.barred.all():  # none is left to name
            return None
        # A cheap look first: if the order at the last fit leaves rivals undecided, the best is not
        # established, and the rule's belief need not be worked out for this score.
        presumed = self.presumed_order
        if presumed is not None and self._proofs.may_change(presumed[:top_k].tolist()):
            return None
        best = self.leading(top_k)
        if self._guarantee() is Guarantee.HEURISTIC or self._proofs.may_change(best):
            return None
        undecided = self._proofs.undecided(best)
        return Stop.INDIFFERENT if any(rivals.any() for _, rivals in undecided) else Stop.SEPARATED

    def review(self, top_k: int, coming: int = 0) -> None:
        """See whether the best are near enough to stop, whenever 2 % more scores are in.

        Of a log, whose next ``coming`` scores are known, the last look alone counts.
        """
        if self.until_review > 0 or self.barred.all():
            return
        n, gap = self._table.n_scores, self._problem.within
        self._next_review = n + max(1, int(_SHARE_NEW * n))
        if self._next_review <= n + coming:
            return
        leading = self.leading(top_k)
        is_valid = self._guarantee() is not Guarantee.HEURISTIC
        self.is_within = gap is not None and is_valid and self._proofs.are_within(gap, leading)
        self.is_level = self._problem.ends_level and top_k == 1 and self._are_level(leading[0])

    def margin(self, candidate: int | None = None) -> float:
        """Bound how far a candidate, by default the leading one, is from the best, in [0, 1].

        Statements about the leading candidate hold together with those of ``best``, at all times;
        statements about any number of given candidates with the intervals. Raises ValueError if
        there is no candidate.
        """
        self._check_any()
        if candidate is not None:
            return self._proofs.gap(candidate)
        [leader], within = self.leading(1), self._problem.within
        gap = self._proofs.gap(leader, [leader])
        # The bound is rounded upwards and may lie just above what the test has proved: what ended
        # the run must not be taken back by the number that is shown for it.
        if within is not None and gap > within and self._proofs.are_within(within, [leader]):
            return within  # bounds are rounded upwards
        return gap

    def _are_level(self, leader: int) -> bool:
        """Tell whether the leader is so near to all its rivals that no call is worth it.

        They are about equal; or their leads are too small to be proved for new examples, and the
        leader is proved to be nearer to the best than the examples can tell apart.
        """
        pairs, n, alpha = self._pairs, self.on_new.n_independent, self.on_new.alpha
        if pairs is None:
            return False
        is_rival = self._proofs.rivals(leader, [leader])
        says_more = self._problem.for_new or n < FEWEST_EXAMPLES  # than that it is near

        def is_near(differing: float) -> bool:
            return not says_more and self._proofs.are_within(nearness(differing, n), [leader])

        # Three grounds to end, from the cheapest to look at. First: a rival with too few examples,
        # unless the proof below holds however much the two differ. Second: no lead is large enough
        # to be proved by all examples. Third: leads of that size cannot be proved, but the leader
        # is proved to be near.
        has_few = is_rival & (pairs.length < min(FEWEST_EXAMPLES, n))
        if has_few.any() and not is_near(1.0):
            return False
        rivals = [other for other in reversed(self.ranking()) if is_rival[other]]
        # The worst rivals are the likeliest to be clearly behind, so most often there is no need to
        # compare the others.
        for group in (rivals[:_WORST], rivals):
            leads = self.on_new.leads_over(leader, group)
            if (leads.mean > leads.resolution(n, alpha)).any():
                return False
        if leads.are_level(n, alpha).all():
            return bool(rivals)
        return is_near(float(leads.differing.max()))

    def _now(self) -> Belief:
        if self._belief is None:
            self._belief = self._think()
        return self._belief

    def _guarantee(self) -> Guarantee:
        missing = (self._table.n_scored < self._table.n_examples) & ~self.barred
        if not (missing.any() or self.barred.all()):
            return Guarantee.EXACT
        return Guarantee.ANYTIME_VALID if self._exogenous else Guarantee.HEURISTIC

    def _check_any(self) -> None:
        if not self._table.n_candidates:
            raise ValueError("there is no candidate to choose from; add one first")
