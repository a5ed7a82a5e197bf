"""The statement by people's labels: a decision, the sentences for it, and a standing with both."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bestarm_agent.domain.text import percent, points, safe, span
from bestarm_agent.domain.values import Json
from bestarm_agent.engine.results.decision import proved
from bestarm_agent.engine.results.standing import Decision, Next, Row, Standing, Status
from bestarm_agent.errors import counted
from bestarm_agent.stats.agreement import Measure
from bestarm_agent.stats.people import Raced

_LIKELY = 0.5  # chance from which a candidate is said to be probably the best


@dataclass(frozen=True, slots=True)
class ByPeople:
    """The statement by people's labels."""

    run_id: str
    contenders: tuple[str, ...]
    raced: Raced
    n: int  # examples that people scored, those with equal answers among them
    later: int  # examples that were passed over, and count at their worst
    of: int  # examples that the statement is about: those that all contenders have answered
    confidence: float
    kappa: Measure | None  # agreement of the first two raters beyond chance, where two scored
    has_begun: bool = True  # whether somebody scored an answer; equal answers count by themselves
    by_judge: bool = True  # whether a judge scored the answers, and chose the contenders
    is_waiting: bool = False  # whether all answers that were collected so far are labelled
    proved_for_new: bool = False  # also for new examples; never where a judge chose

    @property
    def take(self) -> str:
        """The best by people's scores, as far as is known."""
        return self.contenders[self.raced.leader]

    @property
    def proved(self) -> bool:
        """Tell whether all others are ruled out."""
        return len(self.raced.alive) == 1

    @property
    def equal(self) -> tuple[str, ...]:
        """Those whose labels are worth as much as the best's, once all examples are labelled."""
        raced, least = self.raced, self.raced.means[self.raced.leader][0] - 1e-9
        near = [row for row in raced.alive if row != raced.leader and raced.means[row][0] >= least]
        return tuple(self.contenders[row] for row in near if raced.n == self.of > self.later == 0)

    @property
    def said(self) -> tuple[str, ...]:
        """The sentences that say it."""
        of_these = f"of these {len(self.contenders)}"
        first, mine = self.contenders[0], self.raced.means
        name, labelled = safe(self.take), f"{counted(self.n, 'example')} labelled"
        judges = f"By the scorer: {safe(first)}. " if self.by_judge else ""
        if not (self.n and self.has_begun):
            some = "No example has all its answers labelled" if self.has_begun else ""
            return (f"{judges}{some or 'Nobody has labelled an answer'} yet.",)
        if self.equal:
            names = ", ".join(map(safe, (self.take, *self.equal)))
            result = f"no difference between {names}; {labelled}"
        elif self.proved:
            result = f"{name} is the best {of_these} ({proved(self.confidence)}, {labelled})"
        else:
            tenths = min(9, int(10 * self.raced.chance))  # 10 would be a proof
            likely = f"probably {name} ({tenths} in 10)" if tenths >= 10 * _LIKELY else ""
            result = f"{likely or f'undecided, {name} leads'} {of_these}; {labelled}"
        gap = mine[self.raced.leader][0] - mine[0][0]
        if self.by_judge and self.take != first and gap > 0:
            result += f"; {safe(first)} is {points(gap)} worse{'' if self.proved else ' so far'}"
        lines = [f"{judges}By your labels: {result}."]
        if self.is_waiting and not self.proved:
            lines.append(
                f"All answers so far are scored; `{self._command('resume')}` collects more."
            )
        elif not self.proved and self.raced.more:
            n_left = self.of - self.raced.n
            about = "" if self.raced.more >= n_left else f"about {self.raced.more}, "
            lines.append(
                f"To a proof: {about}perhaps all {n_left} examples that are left to label."
            )
        if self.later and not self.proved:
            lines.append(
                f"{counted(self.later, 'example')} left for later: each counts as if the answers "
                f"were the worst for the one that leads, until it is scored."
            )
        means = zip(self.contenders, mine, strict=True)
        listed = (
            f"{safe(name)} {percent(mean)} ({span(lower, upper)})"
            for name, (mean, lower, upper) in means
        )
        lines.append(f"Mean by your labels: {', '.join(listed)}.")
        if self.kappa is not None:
            lines.append(f"Two people agree beyond chance by {self.kappa.value:.2f} (kappa).")
        if self.by_judge:
            lines.append(
                f"That is about the {self.of:,} examples that all of them answered, not about new "
                f"ones: the choice of these candidates has seen them."
            )
        else:
            new = "proved for new ones, too" if self.proved_for_new else "not proved for new ones"
            lines.append(f"That is about the {self.of:,} examples of the study; it is {new}.")
        return tuple(lines)

    @property
    def decision(self) -> Decision:
        """The statement as a decision, of the contenders alone."""
        raced, names = self.raced, self.contenders
        at_top = (self.take, *self.equal)
        return Decision(
            take=self.take if self.n and self.has_begun else None,
            as_good=self.equal,
            cheaper=None,
            undecided=tuple(n for row in raced.alive if (n := names[row]) not in at_top),
            worse=tuple(names[row] for row in range(len(names)) if row not in raced.alive),
            unmeasured=(),
            chance=raced.chance,
            proved=self.proved,
            proved_for="new" if self.proved_for_new else "seen",
            confidence=self.confidence,
            scored_by="people",
            problem=None,
            next=self._next,
            said=self.said,
        )

    @property
    def _next(self) -> Next | None:
        if self.proved or self.equal:
            return None
        if self.is_waiting:
            return Next("collect more answers", self._command("resume"))
        return Next("label more answers", self._command("label"))

    def _command(self, verb: str) -> str:
        return f"bestarm-agent {verb} {self.run_id}"

    @property
    def as_json(self) -> dict[str, Json]:
        """The facts beside the decision: means, agreement, what a proof may still take."""
        means = zip(self.contenders, self.raced.means, strict=True)
        return {
            "labelled": self.n,
            "later": self.later,
            "examples": self.of,
            "more": self.raced.more,
            "means": {
                name: {"estimate": mean, "lower": lower, "upper": upper}
                for name, (mean, lower, upper) in means
            },
            "kappa": None if self.kappa is None else self.kappa.value,
        }


def with_people(standing: Standing, stand: ByPeople) -> Standing:
    """Add what people's labels say; where they are the scorer, it is the decision and the table."""
    if not (stand.n and stand.has_begun):
        return standing
    if stand.by_judge:
        return replace(standing, decision_by_people=stand.decision)
    decision = stand.decision
    groups = dict.fromkeys(decision.undecided, Status.UNDECIDED)
    groups |= dict.fromkeys(decision.as_good, Status.EQUAL)
    groups |= dict.fromkeys(decision.worse, Status.WORSE) | {stand.take: Status.TAKE}
    ends = zip(stand.raced.means, stand.raced.ruled_out, strict=True)
    means = dict(zip(stand.contenders, ends, strict=True))

    def scored(row: Row) -> Row:
        if (raced := means.get(row.candidate.label)) is None:
            return row
        (mean, lower, upper), out = raced
        n = out or stand.n
        changed = replace(row, n=n, total=mean * n, estimate=mean, lower=lower, upper=upper)
        return replace(changed, status=groups[row.candidate.label], problem=None, is_barred=False)

    order = [Status.TAKE, Status.EQUAL, Status.UNDECIDED, Status.WORSE]

    def rank(row: Row) -> tuple[int, float]:
        return order.index(row.status) if row.status in order else 9, -(row.estimate or 0)

    rows = tuple(sorted(map(scored, standing.rows), key=rank))
    return replace(standing, rows=rows, graded=True, _decision=decision)
