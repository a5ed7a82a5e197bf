"""The answer so far: estimates, who is still open, and whether the best is established.

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

Nothing is worked out before it is looked at, and then from where it stood: what is found does not
depend on how often one looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import comb, inf

import numpy as np

from bestarm_agent.selectors.score_table import ScoreTable
from bestarm_agent.selectors.types import (
    Belief,
    BoolArray,
    Bounds,
    Estimates,
    FloatArray,
    Guarantee,
    IntArray,
    Problem,
    State,
    Stop,
    Verdict,
)
from bestarm_agent.stats.betting import MeanIntervals, bounds_on_new, early_bets
from bestarm_agent.stats.keyed_random import KeyedRandom
from bestarm_agent.stats.new_examples import (
    FEWEST_EXAMPLES,
    SHARE_OF_TEST,
    Lead,
    Leads,
    nearness,
)
from bestarm_agent.stats.paired_sequences import PairedSequences

# A look compares the leading one with all its rivals, and 2 % more scores seldom change it.
_SHARE_NEW = 0.02  # of the scores, between two looks at whether the best is near enough
_WORST = 32  # rivals that are compared first
_SLACK = 1e-9  # of means that are equal but for rounding
_MORE = 1.6  # so many times the examples are worth asking to show for new ones what is beaten here


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
        barred: (K,) candidates that left the competition for a reason that is not their scores.
        tie_ranks: (K,) random numbers in [0, 1) that put equals in order.
        presumed_order: the candidates by a recent ranking, best first, or None. A rule whose belief
            is expensive may set it: what that order leaves open counts as not established.
        is_within: whether the best are shown to be within ``problem.within``, as of the last
            review.
        is_level: whether the leading one and all that are open are nearer to each other than all N
            examples can tell apart, as of the last review.
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
        self._ties = KeyedRandom(problem.seed, "ties")
        self.barred: BoolArray = np.empty(0, dtype=np.bool_)
        self.tie_ranks: FloatArray = np.empty(0)
        self.presumed_order: IntArray | None = None
        self._pairs: PairedSequences | None = None
        self.restart()

    def restart(self) -> None:
        """Begin anew, over all rows that the table has now.

        Candidates that join later take the same order from its beginning; whoever led at a place
        stays its leader.
        """
        table, problem = self._table, self._problem
        n_old, n_rows = len(self.barred), table.n_candidates
        self.barred = np.concatenate([self.barred, np.full(n_rows - n_old, False)])
        self.tie_ranks = np.concatenate(
            [self.tie_ranks, self._ties.at(n_old).random(n_rows - n_old)]
        )
        # Whoever led at a place was chosen before its scores were known, by what was known then.
        # Choosing again, now that the scores are there, would break the guarantee, so leaders
        # outlive the restart.
        leaders = () if self._pairs is None else self._pairs.leaders
        alpha = 1.0 - problem.confidence if problem.track_intervals and self._exogenous else None
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
            for row in range(n_rows):
                for _ in table.row(row):
                    self._pairs.ask(row)
        self._tops: tuple[IntArray, FloatArray] | None = None  # upper ends, for so many outcomes
        self._on_new: dict[int, tuple[tuple[int, ...], tuple[float, float]]] = {}
        self._intervals = MeanIntervals(n_rows, table.n_examples, of_means)  # (B)
        self.is_within = self.is_level = False
        self._next_review = 0  # number of scores
        self.forget()

    def forget(self) -> None:
        """Work the rule's belief and what follows from scores out again when it is looked at."""
        self._belief: Belief | None = None
        self._rivals: tuple[int, BoolArray] | None = None  # of the leading one, by (A)

    def asked(self, candidate: int) -> None:
        """Note that a candidate is asked for its next example, after the table did."""
        self._belief = None
        if self._pairs is not None:
            # This ask is the first at its place and commits a leader: the rows that may lead must
            # have all scores that are known by now, and no later ask of the same place changes the
            # choice.
            if self._pairs.asked[candidate] == len(self._pairs.leaders):
                self._feed(self._pairs.front)  # one of them leads, by what is known now
            self._pairs.ask(candidate)

    def commits(self, rows: IntArray) -> BoolArray:
        """(n,) mask of those asks of some rows, one after the other, that commit a leader."""
        if self._pairs is None:
            return np.full(len(rows), False)
        return self._pairs.commits(rows)

    def asked_all(self, rows: IntArray) -> None:
        """Note that candidates are asked, as ``asked`` would, where none commits a leader."""
        self._belief = None
        if self._pairs is not None:
            np.add.at(self._pairs.asked, rows, 1)

    @property
    def until_review(self) -> float:
        """Number of scores until ``review`` looks again."""
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
        lower, upper = self._bounds()
        return Estimates(
            mean=np.clip(self._now().mean, 0.0, 1.0),
            lower=lower.copy(),
            upper=upper.copy(),
            n=self._table.n_scored,
            pending=self._table.count(State.PENDING).copy(),
            void=self._table.count(State.VOID).copy(),
            guarantee=self._guarantee(),
            confidence=self._problem.confidence,
        )

    def best(self) -> Verdict:
        """Name the candidate with the highest estimate, and those it is not shown to beat.

        Raises ValueError if there is no candidate, or all have left the competition.
        """
        self._check_any()
        [best] = self.leading(1)
        if self.barred[best]:
            raise ValueError("all candidates have left the competition; there is no best one")
        return Verdict(best, self.tied(best), self._guarantee())

    def tied(self, best: int) -> tuple[int, ...]:
        """Return the candidates that the leading one, ``best``, is not shown to beat."""
        rivals = self._rivals_of_leader(best, self._bounds)
        return tuple(np.flatnonzero(rivals).tolist())

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
        belief, field = self._now(), np.flatnonzero(self.barred == self.barred.min())
        if belief.tier is not None:
            field = field[belief.tier[field] == belief.tier[field].min()]
        means = np.nan_to_num(belief.mean[field], nan=-np.inf)
        field = field[means == means.max()]
        return [int(field[self.tie_ranks[field].argmin()])]

    def open(self, order: Sequence[int], top_k: int) -> BoolArray:
        """(K,) mask of those whose scores can still show that the first ``top_k`` are the best.

        These are the first ``top_k`` with a rival that they are not shown to beat, the rivals, and
        the one without whose next score nothing more can be shown, if there is one.
        """
        field = np.full(self._table.n_candidates, False)
        for one, rivals in self._undecided(order, top_k, self._means_within):
            field |= rivals
            field[one] |= rivals.any()
        if field.any() and self._pairs is not None and self._pairs.awaited is not None:
            field[self._pairs.awaited] = True
        return field

    def established(self, top_k: int) -> Stop | None:
        """Return SEPARATED or INDIFFERENT if no more scores are needed to name the best ``top_k``.

        SEPARATED if they are shown to beat all others, INDIFFERENT if more scores cannot part them
        from their rivals. Only valid intervals may say so, and only if the problem asks to stop.
        """
        if not self._problem.stop_when_separated or self.barred.all():  # none is left to name
            return None
        # A cheap look first: if the order at the last fit leaves rivals open, the best is not
        # established, and the rule's belief need not be worked out for this score.
        presumed = self.presumed_order
        first = None if presumed is None else presumed[:top_k].tolist()
        if first is not None and self._may_change(first, top_k, self._means_within):
            return None
        if self._guarantee() is Guarantee.HEURISTIC:
            return None
        if self._may_change(first := self.leading(top_k), top_k, self._bounds):
            return None
        undecided = self._undecided(first, top_k, self._bounds)
        return Stop.INDIFFERENT if any(rivals.any() for _, rivals in undecided) else Stop.SEPARATED

    def review(self, top_k: int) -> None:
        """See whether the best are near enough to stop, whenever 2 % more scores are in."""
        gap, ends_level = self._problem.within, self._problem.ends_level and top_k == 1
        if gap is None and not ends_level:
            return
        if (n := self._table.n_scores) < self._next_review or self.barred.all():
            return
        self._next_review = n + max(1, int(_SHARE_NEW * n))
        leading = self.leading(top_k)
        self.is_within = gap is not None and self._are_within(gap, leading)
        self.is_level = ends_level and self._are_level(leading[0])

    def margin(self, candidate: int | None = None) -> float:
        """Bound how far a candidate, by default the leading one, is from the best, in [0, 1].

        Statements about the leading candidate hold together with those of ``best``, at all times;
        statements about any number of given candidates with the intervals. Raises ValueError if
        there is no candidate.
        """
        self._check_any()
        if candidate is not None:
            return self._gap_of_any(candidate, self._bounds, self.barred)
        [leader], within = self.leading(1), self._problem.within
        gap = self._gap_of_leader(leader, self._bounds)
        # The bound is rounded upwards and may lie just above what the test has proved: what ended
        # the run must not be taken back by the number that is shown for it.
        if within is not None and gap > within and self._are_within(within, [leader]):
            return within  # bounds are rounded upwards
        return gap

    # New examples.

    @property
    def speaks_of_new(self) -> bool:
        """Return whether anything can be said of new examples: only of a random order."""
        is_random = self._exogenous and self._problem.track_intervals
        return is_random and self._now().bounds is None

    @property
    def n_independent(self) -> int:
        """Return the number of examples that do not depend on each other; draws count once."""
        return len(self._problem.independent) or self._table.n_examples // self._problem.draws

    @property
    def level_of_new(self) -> float:
        """Return the error probability of "ahead of all others on new examples", in (0, 1)."""
        return SHARE_OF_TEST * (1.0 - self._problem.confidence)

    def open_on_new(self, one: int) -> list[int]:
        """Return the others that may be better than a candidate on new examples.

        Those that left the competition are not among them.
        """
        rivals: list[int] = np.flatnonzero(~self.barred).tolist()
        rivals.remove(one)
        if self._pairs is None or self.barred.any():
            leads = self._least_leads(one, rivals)
            return [other for other, least in zip(rivals, leads, strict=True) if least <= 0.0]
        gone = self._behind_on_new(self._pairs, one)
        found: list[int] = np.array(rivals, dtype=np.int64)[~gone[rivals]].tolist()
        return found

    def _behind_on_new(self, pairs: PairedSequences, one: int) -> BoolArray:
        """(K,) mask of those that are shown to be behind ``one``, or not the best, on new ones.

        Whoever leads may be known by examples of the cluster whose turn it is: with clusters,
        candidates meet in fixed pairs.
        """
        self._feed()
        if self._problem.independent:
            return pairs.beaten_on_new(one, self.level_of_new)
        return pairs.rejected_on_new(self.level_of_new)

    def behind_on_new(self, one: int) -> float:
        """Bound how far a candidate is behind the best of the others on new examples, in [0, 1].

        0 if it is shown to be ahead of them all.
        """
        rivals = np.array(self.open_on_new(one), dtype=np.int64)
        if self._pairs is None or self.barred.any():
            return max([0.0, *(-least for least in self._least_leads(one, rivals.tolist()))])
        bound = self._pairs.lag_on_new
        if self._problem.independent:
            bound = self._pairs.shortfall_on_new
        return bound(one, rivals, self.level_of_new)

    def compared(self, one: int, other: int) -> Lead:
        """Return what is seen of one candidate's lead over another."""
        return self.leads_over(one, [other]).each()[0]

    def leads_over(self, one: int, others: Sequence[int]) -> Leads:
        """Return what is seen of one candidate's leads over others, in their order."""
        rows = np.array(others, dtype=np.int64)
        if self._pairs is None:
            means = np.nan_to_num(self._table.mean())
            n = np.minimum(self._table.n_scored, self.n_independent)
            return Leads.by_means((float(means[one]), int(n[one])), means[rows], n[rows])
        self._feed()
        return Leads.by_sums(*self._pairs.common_sums(one, rows))

    def _least_leads(self, one: int, others: Sequence[int]) -> list[float]:
        """Return the lower bound that ``lead`` has for each of the others."""
        if self._pairs is not None:
            return [self.lead(one, other)[0] for other in others]
        n_told = self._table.n_trials - self._table.count(State.PENDING)
        # The upper ends of all are looked up for every candidate: worked out once for so many
        # outcomes.
        if self._tops is None or not np.array_equal(self._tops[0], n_told):
            tops = [self.mean_on_new(row)[1] for row in range(len(n_told))]
            self._tops = n_told, np.array(tops)
        found: list[float] = (self.mean_on_new(one)[0] - self._tops[1][others]).tolist()
        return found

    def lead(self, one: int, other: int) -> tuple[float, float]:
        """Bound the lead of one candidate over another on new examples, in [-1, 1].

        The bounds of all pairs hold together, at all times.
        """
        if self._pairs is None:
            (lower, upper), (least, most) = self.mean_on_new(one), self.mean_on_new(other)
            return lower - most, upper - least
        self._feed()
        # All pairs together, as which one is asked about is not known beforehand; the other part of
        # the error probability belongs to the proof that one is ahead of all.
        n_pairs = max(1, comb(self._table.n_candidates, 2))
        alpha = (1.0 - SHARE_OF_TEST) * (1.0 - self._problem.confidence) / n_pairs
        return self._pairs.difference(one, other, alpha, on_new=True)

    def mean_on_new(self, candidate: int) -> tuple[float, float]:
        """Bound a candidate's mean on new examples; the bounds of all hold together.

        Worked out again only once more is told of it.
        """
        table, n_drawn = self._table, self._table.n_examples // self._problem.draws
        key = (
            table.n_candidates,
            int(table.n_trials[candidate] - table.count(State.PENDING)[candidate]),
        )
        found = self._on_new.get(candidate)
        if found is not None and found[0] == key:
            return found[1]
        alpha = (1.0 - self._problem.confidence) / table.n_candidates
        known = table.told_since(np.zeros_like(table.n_trials), np.array([candidate]))
        low = high = np.empty(0)
        for _, examples, low, high in known:
            if self._problem.draws > 1 or self._problem.independent:
                rows, first = np.unique(examples % n_drawn, return_index=True)
                if self._problem.independent:
                    first = first[np.isin(rows, self._problem.independent)]
                low, high = low[np.sort(first)], high[np.sort(first)]  # of each example, one draw
        bounds = bounds_on_new(low, high, alpha, early_bets(table.n_examples, alpha / 2))
        self._on_new[candidate] = key, bounds
        return bounds

    def _are_level(self, leader: int) -> bool:
        """Tell whether the leading one is so near to all that are open that no call is worth it.

        They are level; or their leads are too small to be shown for new examples, and the leading
        one is shown to be nearer to the best than the examples can tell apart.
        """
        pairs, n, level = self._pairs, self.n_independent, self.level_of_new
        if pairs is None or not self.speaks_of_new:
            return False
        is_rival = self._rivals_of_leader(leader, self._bounds)
        # Three grounds to end, from the cheapest to look at. First: a rival with too few examples,
        # unless the proof below holds however much the two differ. Second: no lead is large enough
        # to be proved by all examples. Third: leads of that size cannot be proved, but the leader
        # is proved to be near.
        if (is_rival & (pairs.length < min(FEWEST_EXAMPLES, n))).any():  # not level: too few
            most = nearness(1.0, n)  # however much they differ
            if self._problem.for_new or n < FEWEST_EXAMPLES:
                return False
            if self._gap_of_leader(leader, self._bounds, most) > most:
                return False
        rivals = [other for other in reversed(self.ranking()) if is_rival[other]]
        # the worst one shows soonest that they are not: most often there is no need for the others
        for some in (rivals[:_WORST], rivals):
            seen = self.leads_over(leader, some)
            if (seen.mean > seen.resolution(n, level)).any():
                return False
        if seen.are_level(n, level).all():
            return bool(rivals)
        if self._problem.for_new or n < FEWEST_EXAMPLES:
            return False
        reach = nearness(float(seen.differing.max()), n)
        return self._gap_of_leader(leader, self._bounds, reach) <= reach

    def _may_change(self, order: list[int], top_k: int, bounds: Callable[[], Bounds]) -> bool:
        """Tell whether more scores may part one of the first ``top_k`` from a rival.

        The complete rivals of a complete candidate stay as good as it.
        """
        table = self._table
        # Two rows that are complete have exact means: if they are equal they stay equal, and no
        # score can part them. A rival that may still get scores can.
        growing = (table.n_unseen > 0) | (table.count(State.PENDING) > 0)  # more scores may come
        return any(
            bool((rivals if growing[one] else rivals & growing).any())
            for one, rivals in self._undecided(order, top_k, bounds)
        )

    def _undecided(
        self, order: Sequence[int], top_k: int, bounds: Callable[[], Bounds]
    ) -> Iterator[tuple[int, BoolArray]]:
        """Yield each of the first ``top_k``, and the (K,) others that it is not shown to beat."""
        chosen = list(order[:top_k])
        for one in chosen:
            if top_k == 1:
                rivals = self._rivals_of_leader(one, bounds)
            else:
                rivals = self._rivals_of_any(one, bounds, self.barred)
            rivals[chosen] = False
            yield one, rivals

    def _rivals_of_leader(self, leader: int, bounds: Callable[[], Bounds]) -> BoolArray:
        """(K,) mask of those who may be better than the leading one, by (A)."""
        if self._pairs is None or self.barred.any():
            return self._rivals_of_any(leader, bounds, self.barred)
        # Kept until a score comes in or another one leads: an ask alone changes nothing here.
        if self._rivals is None or self._rivals[0] != leader:
            self._feed()
            least, most = self._table.certain()
            if self._problem.for_new:
                rivals = ~self._behind_on_new(self._pairs, leader)
            else:
                gone = self._pairs.rejected()
                rivals = ~gone | self._nearly_shown(self._pairs, gone)
                rivals &= most >= least[leader] - _SLACK
            rivals[leader] = False
            self._rivals = leader, rivals
        return self._rivals[1]

    def _nearly_shown(self, pairs: PairedSequences, gone: BoolArray) -> BoolArray:
        """(K,) mask of those ``gone`` whom a few more examples show to be behind on new ones, too.

        Where few more examples may do, these are asked: users ask about new ones.
        """
        if not (self._problem.ends_level and gone.any()):
            return np.full(len(gone), False)
        # The wealth grows about exponentially, so its logarithm grows like the number of examples:
        # a row at the share p of what is enough takes about 1 / p times the examples. Where 1.6
        # times do, and there are as many, the run goes on a little and can speak of new examples,
        # too.
        progress = pairs.progress_on_new(self.level_of_new, gone)
        is_near = gone & (progress < 1.0) & (_MORE * progress >= 1.0)
        return np.asarray(is_near & (_MORE * pairs.length <= self._table.n_examples))

    def _rivals_of_any(self, one: int, bounds: Callable[[], Bounds], out: BoolArray) -> BoolArray:
        """(K,) mask of those not ``out`` who may be better than any one, by (B).

        Where intervals contradict a pair, they win: of two rows known in full they are exact.
        """
        lower, upper = bounds()
        # Pairs are looked at only where the intervals leave the question open, as each costs a
        # wealth.
        reach: BoolArray = (upper >= lower[one]) & ~out
        reach[one] = False
        if self._pairs is None:
            return reach
        self._feed()
        own_lower, own_upper = self._means_within()
        return reach & ~self._pairs.beaten_by(one, reach & (own_lower < own_upper[one]))

    def _gap_of_leader(
        self, leader: int, bounds: Callable[[], Bounds], enough: float = 0.0
    ) -> float:
        """Bound how far the leading one is below the best, by (A).

        With ``enough`` > 0 it only matters whether the bound is above that.
        """
        if self._pairs is None or self.barred.any():
            return self._gap_of_any(leader, bounds, self.barred)
        rivals = self._rivals_of_leader(leader, bounds)
        least, most = self._table.certain()
        return _largest(self._pairs.lag, leader, rivals, most - least[leader], enough)

    def _gap_of_any(self, one: int, bounds: Callable[[], Bounds], out: BoolArray) -> float:
        """Bound how far any one is below the best of those not ``out``, by (B)."""
        lower, upper = bounds()
        rivals, gaps = self._rivals_of_any(one, bounds, out), upper - lower[one]
        if self._pairs is None:
            return float(gaps.max(initial=0.0, where=rivals))
        return _largest(self._pairs.shortfall, one, rivals, gaps)

    def _are_within(self, gap: float, chosen: list[int]) -> bool:
        """Tell whether each of the ``chosen`` is shown to be at most ``gap`` below all others."""
        if self._guarantee() is Guarantee.HEURISTIC:
            return False
        if len(chosen) == 1:
            return self._gap_of_leader(chosen[0], self._bounds, gap) <= gap
        out = self.barred.copy()
        out[chosen] = True
        return all(self._gap_of_any(one, self._bounds, out) <= gap for one in chosen)

    def _now(self) -> Belief:
        if self._belief is None:
            self._belief = self._think()
        return self._belief

    def _bounds(self) -> Bounds:
        return self._now().bounds or self._means_within()

    def _means_within(self) -> Bounds:
        """(K,) ends of the intervals (B), brought up to date; not to be written."""
        for row, _, low, high in self._table.told_since(self._intervals.length):
            self._intervals.extend(row, low, high)
        return self._intervals.lower, self._intervals.upper

    def _guarantee(self) -> Guarantee:
        missing = (self._table.n_scored < self._table.n_examples) & ~self.barred
        if not (missing.any() or self.barred.all()):
            return Guarantee.EXACT
        is_valid = self._exogenous and self._now().bounds is None
        return Guarantee.ANYTIME_VALID if is_valid else Guarantee.HEURISTIC

    def _feed(self, rows: IntArray | None = None) -> None:
        """Let the paired sequences have what is told of some rows, by default of all."""
        if self._pairs is not None:
            for row, examples, low, high in self._table.told_since(self._pairs.length, rows):
                self._pairs.extend(row, examples, low, high)

    def _check_any(self) -> None:
        if not self._table.n_candidates:
            raise ValueError("there is no candidate to choose from; add one first")


def _largest(
    bound: Callable[[int, IntArray, float, FloatArray], float],
    leader: int,
    among: BoolArray,
    bounds: FloatArray,
    enough: float = 0.0,
) -> float:
    """Return the largest bound of those ``among``, none above its (K,) ``bounds``.

    At least ``enough``.
    """
    others = np.flatnonzero(among & (bounds > max(_SLACK, enough)))
    return float(bound(leader, others, enough, bounds[others]))
