"""The decision of a run: what to take, what is as good, how sure that is, and what to do next.

It is made once, by ``decided``, from what a standing holds; terminal, report, pages, JSON, exit
codes and Python show this value and work nothing out again.

    evidence in the standing                          ->  group of a candidate
    named by the rule or the objective                    TAKE (LEADING while the run goes on)
    breaks a limit of the objective                       BARRED
    no score, or cannot be called                         UNMEASURED
    where a bar is to be cleared: shown to clear it       GOOD, else UNDECIDED
    shown to be behind on new examples                    WORSE
    nothing more is asked of it, and all examples, not
      too few, cannot tell it from the one to take        EQUAL
    shown not to be the best, for what was asked for      WORSE
    all its answers are there, and the run ended of
      itself or all of the one to take are there          EQUAL
    else                                                  UNDECIDED

    Where the cheapest of all that are good enough is looked for, GOOD takes the place of EQUAL.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from shlex import quote
from typing import Any

from bestarm_agent.config.goal_specs import PRICE, Objective, ObjectiveSpec
from bestarm_agent.domain.spend import NANOS_PER_USD
from bestarm_agent.domain.text import duration, money, percent, points, safe, span
from bestarm_agent.engine.results.new_examples import SURE
from bestarm_agent.engine.results.standing import (
    Cheaper,
    Decision,
    LimitState,
    Next,
    Obstacle,
    ProblemKind,
    Row,
    Standing,
    Status,
    Unmeasured,
)
from bestarm_agent.errors import counted
from bestarm_agent.selectors.types import Guarantee
from bestarm_agent.stats.new_examples import FEWEST_EXAMPLES, chance_of_all, chance_of_at_least

_DEARER = 0.95  # of the price of the one to take, from which another is no cheaper
_FAILED = "asked, but no answer could be had"
_NAMED = 3  # candidates by name in a sentence
_TIME_SLACK = 1.01  # of the time cap, for writing down what happened


def decided(standing: Standing) -> Standing:
    """Return a standing with its decision, and with the group of each candidate in its row."""
    # In this order, since each step rests on those before it: what stands in the way decides
    # whether anybody is named at all; every other candidate is grouped beside the one named; and
    # sentences and advice only word what the groups say.
    s = standing
    problems = _problems(s)
    blocking = next((problem for problem in problems if problem.kind in NO_WINNER), None)
    named = None if blocking else _named(s)
    named_row = next((row for row in s.rows if row.index == named), None)
    groups = {row.index: _group(s, row, named_row) for row in s.rows}
    if blocking is not None and blocking.kind is not ProblemKind.NO_SCORES:
        # what a scorer at fault has ruled out may be the best
        groups = {
            i: Status.UNDECIDED if group in _COMPARED else group for i, group in groups.items()
        }
    labels: dict[Status, list[str]] = {group: [] for group in Status}
    for row in s.rows:
        labels[groups[row.index]].append(row.candidate.label)
    take: Any = None
    if named_row is not None:
        take = s.objects[named_row.index] if s.objects else named_row.candidate.label
    untried = "not tried: the budget is too small" if s.end == "budget" else "not tried"
    if s.scored_by == "people":
        untried = "nobody has scored its answers"
    draft = Decision(
        take=take,
        as_good=(*labels[Status.EQUAL], *labels[Status.GOOD]),
        cheaper=_cheaper(s, named_row, groups),
        undecided=tuple(labels[Status.UNDECIDED]),
        worse=(*labels[Status.WORSE], *labels[Status.BARRED]),
        unmeasured=tuple(
            Unmeasured(row.candidate.label, row.problem or (_FAILED if row.void else untried))
            for row in s.rows
            if groups[row.index] is Status.UNMEASURED
        ),
        chance=None if named_row is None else _chance(s, groups),
        proved=blocking is None and _is_proved(s, named_row),
        proved_for="new" if s.for_new else "seen",
        confidence=s.confidence,
        scored_by=s.scored_by,
        problem=problems[0] if problems else None,
        next=None,
        said=(),
    )
    next_one = _next(s, draft, named_row, blocking)
    if next_one is not None:
        next_one = replace(next_one, command=_of_study(s, next_one.command))
    decision = _with_words(s, draft, named_row, next_one, problems)
    rows = tuple(
        row if row.status is groups[row.index] else row.with_status(groups[row.index])
        for row in s.rows
    )
    return replace(s, rows=rows, _decision=decision)


# The keys that a proposed command replaces by itself, by a part of it. Parameters are those of one
# rule, and another may not take them; with ``plan`` it is the budget, which is to be raised.
_OWN = {"--for": "stop.for", "--cheapest-within": "objective", "--set scorer": "scorer"}
_OWN |= {"--selector": "selector.name selector.params", "agent plan": "budget"}
_VERBS = {"gate": "gate", "certify": "certify", "router": "preselect run"}  # by rule; else select


def _of_study(s: Standing, command: str | None) -> str | None:
    """Return a command for the study as it was run, its file and changes; None in a script."""
    if s.objects or command is None:
        return None
    named = f" {quote(PurePosixPath(s.study).name)}" if s.study else ""
    own = [key for part, keys in _OWN.items() if part in command for key in keys.split()]
    changes = "".join(f" --set {quote(text)}" for text in _without(s.changes, own))
    command = command.replace("agent select", f"agent {_VERBS.get(s.selector, 'select')}")
    verbs = rf"agent (select|try|plan|{'|'.join(_VERBS.values())})\b"
    command, n = re.subn(verbs, lambda verb: verb[0] + named, command)
    return command + (changes if n else "")


def _without(changes: Iterable[str], own: Sequence[str]) -> Iterator[str]:
    """Yield changes (KEY=VALUE) but for some keys; of a section given whole, what else it holds."""
    for text in changes:
        key, _, value = text.partition("=")
        if any(name.startswith(f"{key}.") for name in own):
            held = json.loads(value) if value.startswith("{") else {}
            named = ((f"{key}.{name}", json.dumps(held[name])) for name in held)
            yield from (f"{name}={text}" for name, text in named if name not in own)
        elif not f"{key}.".startswith(tuple(f"{name}." for name in own)):
            yield text


_COMPARED = (Status.EQUAL, Status.GOOD, Status.WORSE)
NO_WINNER = (ProblemKind.NO_SCORES, ProblemKind.SCORER, ProblemKind.NOTHING_RIGHT)


def _problems(s: Standing) -> list[Obstacle]:
    """Return what stands in the way, the worst first."""
    problems: list[Obstacle] = []
    # No score, a scorer at fault and nothing right exclude each other, and forbid to name anybody:
    # the first that holds is told. The others may come on top, and leave the decision standing.
    # Where calls are refused for good, by an account without credit for one, that ended the run and
    # is said first; not where other failures alone would have ended it.
    refused = next((row.problem for row in s.rows if row.is_broken and row.problem), "")
    if s.end != "failures" or 2 * sum(row.void for row in s.rows) > s.told:
        refused = ""
    why = next((row.problem for row in s.rows if row.problem), "") or s.latest_failure
    because = f": {why}" if why else ""
    if not any(row.n for row in s.rows):
        by_people = s.scored_by == "people" and s.told
        text = "people have not scored the answers" if by_people else "no answer has a score"
        text = text if s.asked or s.end != "budget" else "the budget does not pay for one answer"
        text = f"{refused}; {text}" if refused else f"{text}{because}"
        problems.append(Obstacle(ProblemKind.NO_SCORES, text))
    elif s.suspect is not None and s.suspect.rejects and not s.scorer_trusted:
        problems.append(Obstacle(ProblemKind.SCORER, s.suspect.text))
    elif s.suspect is not None and not s.suspect.rejects:
        problems.append(Obstacle(ProblemKind.NOTHING_RIGHT, s.suspect.text))
    elif (s.seeks_best or s.selector == "gate") and not any(row.total for row in s.rows):
        n = sum(row.n for row in s.rows)
        text = f"none of the {n:,} answers is right" if n > 1 else "the only answer is wrong"
        problems.append(Obstacle(ProblemKind.NOTHING_RIGHT, text))
    if s.end == "failures" and not (problems and problems[0].kind is ProblemKind.NO_SCORES):
        text = refused or f"too many answers could not be had{because}"
        problems.append(Obstacle(ProblemKind.CALLS, text))
    problems += [Obstacle(ProblemKind.CAP_PASSED, text) for text in passed_caps(s)[:1]]
    if s.seeks_best and len(s.rows) > 1 and s.n_independent < FEWEST_EXAMPLES:
        few = f"{counted(s.n_independent, s.unit)} {'is' if s.n_independent == 1 else 'are'}"
        text = f"{few} too few to choose by; use at least {FEWEST_EXAMPLES}"
        problems.append(Obstacle(ProblemKind.TOO_FEW, text))
    return problems


def _named(s: Standing) -> int | None:
    """Return the row of the candidate that answers the objective; None if none does."""
    if not s.seeks_best:
        return None
    if s.objective is not None:
        usable = {row.index for row in s.rows if row.n and not row.is_broken}
        return s.objective.answer if s.objective.answer in usable else None
    eligible = (row for row in s.rows if row.n and not row.is_broken and not row.is_barred)
    first = next(eligible, None)
    return None if first is None else first.index


def _group(s: Standing, row: Row, named: Row | None) -> Status:
    """Return the group of one candidate, as the table at the top of this module says."""
    if row is named:
        return Status.LEADING if s.end is None else Status.TAKE
    if row.is_barred:
        return Status.BARRED
    if row.is_broken or not row.n:
        return Status.UNMEASURED
    if _bar(s) is not None:
        is_kept = named is not None and row.limits[0].state is LimitState.KEPT
        return Status.GOOD if is_kept else Status.UNDECIDED
    near = Status.EQUAL
    if _seeks_cheapest(s) and s.objective is not None:
        # as far as is seen; who is further below may yet be ruled out
        good = (s.rows[0].estimate or 0.0) - s.objective.spec.epsilon
        near = Status.GOOD if (row.estimate or 0.0) >= good else Status.UNDECIDED
    against = row.against if named is not None else None
    if against is not None and against.is_beaten:
        return Status.WORSE
    # that very few examples cannot tell two apart says nothing about the two
    is_level = against is not None and against.is_level and s.n_independent >= FEWEST_EXAMPLES
    if is_level and (row.is_ruled_out or s.is_settled):
        return near
    if row.is_ruled_out:
        return Status.WORSE
    # nothing is left to ask of it; or it is good enough, and no cheaper than the one to take
    if named is None:
        return Status.UNDECIDED
    # all that is missing of either may yet separate the two
    if row.n >= s.n_examples and (named.n >= s.n_examples or (s.is_settled and not named.void)):
        return near
    return near if near is Status.GOOD and s.is_settled else Status.UNDECIDED


def _seeks_cheapest(s: Standing) -> bool:
    """Return whether the cheapest of all that are good enough is looked for."""
    cheapest = (Objective.CHEAPEST, Objective.AT_LEAST)
    return s.objective is not None and s.objective.spec.name in cheapest


def _chance(s: Standing, groups: Mapping[int, Status]) -> float | None:
    """Return the probability that none of the others is better on new examples.

    None where missing scores could change who leads, where something else than the best is
    looked for, and where examples are chosen by their scores.
    """
    # One that was beaten for good is not asked about: that was proved, whatever its chance says.
    others = [row for row in s.rows if groups[row.index] not in (Status.TAKE, Status.LEADING)]
    is_missing = any(not row.n and not row.is_broken for row in others) or s.rivals_by_voids
    if not others or s.objective is not None or is_missing or s.new_examples is None:
        return None
    known = [
        row.against
        for row in others
        if row.against is not None and groups[row.index] is not Status.UNMEASURED
    ]
    if not known:
        return None
    return chance_of_all([other.chance for other in known if not other.is_beaten])


def _is_proved(s: Standing, named: Row | None) -> bool:
    """Tell whether what was asked for is shown at the confidence."""
    if named is None:  # that no candidate keeps the limits is an answer, too
        return s.objective is not None and s.objective.answer is None and s.objective.established
    if s.guarantee is Guarantee.HEURISTIC:
        return False
    # Of the cheapest within epsilon it is to be proved that it is good enough, by its margin. That
    # no cheaper one is good enough, too, is not part of the statement.
    if s.objective is not None:
        objective = s.objective
        if objective.spec.name is Objective.CHEAPEST:
            return objective.margin is not None and objective.margin <= objective.spec.epsilon
        return objective.established or _bar(s) is not None  # else nobody is named
    if s.for_new:
        return s.new_examples is not None and s.new_examples.shown
    if named is not s.rows[0]:
        return False  # a better one cannot be called: statements are about that one
    return s.separated or (s.margin is not None and s.margin <= s.within)


def _bar(s: Standing) -> float | None:
    """Return the score that the cheapest is to be proved to have, if that is asked for."""
    return None if s.objective is None else s.objective.spec.at_least


def price_of_use(row: Row) -> tuple[str, float] | None:
    """Return what 1,000 answers of a candidate take, with its unit; None where it is unknown.

    It belongs to the candidate and not to the run: replies from the cache count as if they were
    bought, judging does not count.
    """
    if row.usd_per_1000 is not None:
        return "usd", row.usd_per_1000
    if row.gpu_seconds_per_1000:
        return "gpu_seconds", row.gpu_seconds_per_1000
    return None


def _cheaper(s: Standing, named: Row | None, groups: Mapping[int, Status]) -> Cheaper | None:
    """Return the cheapest of those that are about as good as the one to take."""
    # Prices are compared in one unit only: dollars and worker seconds have no rate of exchange, and
    # nothing is a share of a price of 0.
    own = None if named is None else price_of_use(named)
    if own is None or own[1] <= 0.0:
        return None
    offers = []
    for row in s.rows:
        price = price_of_use(row) if groups[row.index] is Status.EQUAL else None
        if price is None or row.against is None or price[0] != own[0]:
            continue
        share = price[1] / own[1]
        if share < _DEARER:
            worse = min(1.0, max(0.0, row.against.most_behind))
            offers.append(Cheaper(row.candidate.label, share, worse, SURE))
    return min(offers, key=lambda offer: (offer.price, offer.at_most), default=None)


def passed_caps(s: Standing) -> list[str]:
    """Say of each configured cap that was passed by how much, and why."""
    lines, budget = [], s.configured or s.budget
    for name, unit in (("usd_nanos", ""), ("tokens", " tokens"), ("calls", " calls")):
        used, cap = getattr(s.spent, name), getattr(budget, name)
        if cap is None or used <= cap:
            continue
        text = money if name == "usd_nanos" else "{:,}".format
        over = f"{text(used - cap)} too much"
        why = "calls cost more than their providers said they could"
        lines.append(f"{text(used)}{unit} of {text(cap)}, {over}: {why}")
    if budget.seconds is not None and s.seconds > _TIME_SLACK * budget.seconds:
        took = f"{duration(s.seconds)} of {duration(budget.seconds)}"
        over = f"{duration(s.seconds - budget.seconds)} too long"
        lines.append(f"{took}, {over}: calls in flight were waited for")
    return lines


def _with_words(
    s: Standing,
    draft: Decision,
    named: Row | None,
    next_one: Next | None,
    problems: Sequence[Obstacle],
) -> Decision:
    """Add the sentences: what to take, what is as good, how sure, and what to do next."""
    advice = () if next_one is None else (next_one.said,)
    if not s.seeks_best:  # a mode with an answer of its own says all else; a router has none
        why = [f"{text}." for text in [doubt(draft)] if text and s.selector == "router"]
        return replace(draft, next=next_one, said=(*why, *advice))
    caps = [f"Cap passed: {p.text}." for p in problems if p.kind is ProblemKind.CAP_PASSED]
    if named is None:
        lines = _no_winner(s, problems)
    elif len(s.rows) == 1:
        name = safe(named.candidate.label)
        lines = [f"{name} is the only candidate, so nothing was compared: {_score(s, named)}."]
    else:
        lines = [*_head(s, draft, named), *_others(s, draft)]
    calls = [p for p in problems if p.kind is ProblemKind.CALLS]
    lines += [f"Stopped: {text}." for p in calls if (text := safe(p.text)) not in " ".join(lines)]
    if named is not None and len(s.rows) > 1:
        few = [p for p in problems if p.kind is ProblemKind.TOO_FEW]
        lines += [f"But {p.text}." for p in few] or _on_new(s, draft)
    return replace(draft, next=next_one, said=(*caps, *lines, *advice))


def doubt(decision: Decision) -> str:
    """Say why what a mode finds by its scores is not to be trusted; "" where nothing is wrong."""
    problem = decision.problem
    if problem is None or problem.kind not in NO_WINNER[1:]:
        return ""
    return f"The scores cannot be trusted: {safe(problem.text)}"


def _no_winner(s: Standing, problems: Sequence[Obstacle]) -> list[str]:
    """Say that there is nobody to take, and why."""
    blocked = next((p for p in problems if p.kind in NO_WINNER), None)
    if blocked is not None:
        is_early = blocked.kind is ProblemKind.NO_SCORES and s.end is None
        return ["No score yet." if is_early else f"No winner yet: {safe(blocked.text)}."]
    bar = _bar(s)
    if s.objective is not None and s.objective.established:
        what = "keeps the limits" if bar is None else f"scores at least {percent(bar, exact=True)}"
        return [f"No candidate {what}, {proved(s.objective.confidence)}."]
    what = "fits" if s.objective is not None else "can be called any more"
    return _nobody_clears(s, bar) if bar is not None else [f"No winner yet: no candidate {what}."]


def _nobody_clears(s: Standing, bar: float) -> list[str]:
    """Say that nobody is proved to score enough, and who probably does, the cheapest of these."""
    yet = " so far" if s.end is None else ""
    lines = [f"No candidate is proved to score at least {percent(bar, exact=True)}{yet}."]
    usable = [row for row in s.rows if row.n and not row.is_barred and not row.is_broken]
    chances = {row.index: chance_of_at_least(bar, row.total / row.n, row.n) for row in usable}
    likely = [row for row in usable if chances[row.index] >= SURE]
    ranked = sorted(likely, key=lambda row: row.usd_per_1000 or 0.0)  # a known price, or nothing
    ranked = ranked or sorted(usable, key=lambda row: -chances[row.index])
    for row in ranked[:1]:
        chance = f"{round(100 * min(chances[row.index], 0.99))} in 100"
        name, facts = safe(row.candidate.label), [_score(s, row), price_text(row)]
        start = f"{name} probably does" if likely else f"{name} comes nearest"
        lines.append(f"{start} ({chance}): {', '.join(filter(None, facts))}.")
    return lines


def _head(s: Standing, draft: Decision, named: Row) -> list[str]:
    """Say what to take, or what leads so far."""
    name = safe(named.candidate.label)
    states = {limit.state for limit in named.limits}
    is_known = draft.proved or states == {LimitState.KEPT}
    what = f", {objective_text(s.objective.spec, proved=is_known)}" if s.objective else ""
    facts = [_score(s, named)]
    if (price := price_text(named)) is not None:
        facts.append(price)
    start = f"{name} leads so far" if s.end is None else f"Take {name}{what}"
    lines = [f"{start}: {', '.join(facts)}."]
    if s.objective is None and draft.proved and not s.for_new:
        if s.separated or s.margin == 0:
            lines.append("More calls on these examples would not change that.")
        else:
            within = points(s.within)
            lines.append(f"It is proved to be at most {within} below the best of these examples.")
    return lines


def _score(s: Standing, row: Row) -> str:
    """Write what was seen of a candidate."""
    by = {"rule": "", "people": " by people"}.get(s.scored_by, f" by the {safe(s.scored_by)}")
    return f"{score_text(row, graded=s.graded)}{by}"


def score_text(row: Row, *, graded: bool) -> str:
    """Write what was seen of a candidate: right answers of those asked, or the mean score.

    A failure of the candidate itself counts as asked and scores the floor.
    """
    if not row.n:
        return "no score"
    if graded:
        return f"mean score {percent(row.total / row.n)} of {counted(row.n, 'answer')}"
    return f"{row.total:,.0f} of {row.n:,} right"


def price_text(row: Row) -> str | None:
    """Write what 1,000 calls of a candidate cost; None where nothing is known, or it is free."""
    price = price_of_use(row)
    if price is None or not price[1]:
        return None
    unit, amount = price
    if unit == "usd":
        return f"{money(round(amount * NANOS_PER_USD))} per 1,000 calls"
    return f"{amount:,.3g} worker seconds per 1,000 calls"


def _others(s: Standing, draft: Decision) -> list[str]:
    """Say which candidates are about as good, cheaper, undecided and not measured."""
    lines, equal = [], set(draft.as_good)
    row_of = {row.candidate.label: row for row in s.rows if row.candidate.label in equal}
    if draft.as_good:
        those = (
            f"{safe(label)} ({score_text(row_of[label], graded=s.graded)})"
            for label in draft.as_good
        )
        what = "Good enough, too, and no cheaper" if _seeks_cheapest(s) else "About as good"
        lines.append(f"{what}: {listed(those, len(draft.as_good))}.")
    if draft.cheaper is not None:
        offer = draft.cheaper
        price = f"{share_text(offer.price)} of the price" if offer.price else "which is free"
        lines.append(
            f"Cheaper: {safe(offer.label)}, {price}; probably at "
            f"most {points(offer.at_most)} worse ({min(9, round(10 * offer.probability))} in 10)."
        )
    if (bar := _bar(s)) is not None:
        if s.objective is not None and not s.objective.established and s.end is not None:
            lines.append(
                f"A cheaper one may score {percent(bar, exact=True)}, too: it was not asked enough."
            )
    elif draft.undecided:
        n = len(draft.undecided)
        some = f" ({listed(map(safe, draft.undecided), n)})" if n <= _NAMED else ""
        ends = "could still win"
        # it is proved that nobody is better, not that nobody is equal
        if s.objective is None and s.margin == 0:
            ends = "may be as good on these examples, but not better"
        elif s.is_settled:
            ends = f"{'is' if n == 1 else 'are'} not ruled out, but probably worse"
        elif s.end is not None:
            ends = f"could be better: {'it was' if n == 1 else 'they were'} not asked enough"
        lines.append(f"{counted(n, 'other')}{some} {ends}.")
    if draft.unmeasured and s.end is not None:
        n = len(draft.unmeasured)
        reasons = {row.reason for row in draft.unmeasured}
        why = f": {safe(min(reasons))}" if len(reasons) == 1 else ""
        those = (safe(row.label) for row in draft.unmeasured)
        broken = {row.candidate.label for row in s.rows if row.is_broken}  # some have scores
        are_broken = broken.issuperset(row.label for row in draft.unmeasured)
        what = "Cannot be called" if are_broken else "Not measured"
        lines.append(f"{what}: {listed(those, n)}{why}.")
    if s.rivals_by_voids:
        lines.append("Answers that are missing could change who leads.")
    return lines


def _on_new(s: Standing, draft: Decision) -> list[str]:
    """Say how sure it is, in one sentence about new examples."""
    if s.guarantee is Guarantee.HEURISTIC:
        return ["It was chosen by a model of the scores, which proves nothing."]
    on_new = s.new_examples
    # of one or two answers an interval may be all that there is, and so says nothing
    if on_new is None or span(on_new.lower, on_new.upper) == span(0.0, 1.0):
        return []
    mean, ends = percent(on_new.mean, whole=True), span(on_new.lower, on_new.upper, "and")
    what = f"mean score {mean}" if s.graded else f"{mean} right"
    text = f"On new {on_new.unit}s like these: {what}, between {ends}"
    within = s.objective.spec.epsilon if s.objective and _seeks_cheapest(s) else s.within
    sure = percent(draft.confidence, exact=True)
    if on_new.shown and _bar(s) is None:
        best = f"at most {points(within)} below the best" if within else "the best"
        return [f"{text}; proved to be {best} there too, at {sure}."]
    if draft.chance is None:
        return [f"{text}."]
    chances = round(100 * min(max(draft.chance, 0.01), 0.99))
    if draft.chance > 0.5:
        return [
            f"{text}; probably the best there too ({chances} in 100), which is not proof at {sure}."
        ]
    return [f"{text}; the chance that no other is better there is {chances} in 100."]


def _next(s: Standing, draft: Decision, named: Row | None, blocked: Obstacle | None) -> Next | None:
    """Return the one thing to do next; None while the run goes on."""
    # The first that fits is the advice, from what makes all else useless (scores that cannot be
    # trusted, calls that fail) to what would only make a good answer surer.
    # By the time that it is read another run may be the newest one, so each command names its run.
    resume, label = (f"bestarm-agent {verb} {s.run_id}" for verb in ("resume", "label"))
    wrong = f"bestarm-agent answers {s.run_id} --wrong"
    if s.suspect is not None and blocked is not None and blocked.kind in NO_WINNER[1:]:
        once = "; no reply is paid for twice" if s.suspect.rejects and not s.objects else ""
        return Next(s.suspect.way_out + once, s.suspect.command or wrong)
    if s.end is None or s.selector == "router":  # whose prompts come from outside
        return None
    kind = None if draft.problem is None else draft.problem.kind
    if s.scored_by == "people" and s.told and s.end in ("labels", "budget", "exhausted"):
        return Next("score the answers", label)
    if s.end == "budget" and not s.asked:
        return Next("raise the budget; see what one answer can cost", "bestarm-agent plan")
    if s.end == "failures" or kind is ProblemKind.NO_SCORES:
        return Next("mend what fails, then go on, or begin again if you edit the study", resume)
    if kind is ProblemKind.NOTHING_RIGHT:
        return Next("read some of the answers", wrong)
    if s.end in ("interrupted", "error"):
        return Next("go on", resume)
    if not s.seeks_best:
        again = Next("spend as much again, to prove more", _as_much_again(s))
        return again if s.end == "budget" else None
    if kind is ProblemKind.TOO_FEW:
        return Next("add examples" + " of other clusters" * (s.unit == "cluster"))
    if s.objective is not None and _bar(s) and (named is None or not s.objective.established):
        return _next_to_clear(s, named)
    if named is None:
        return Next("loosen a limit, or add candidates")
    is_untried = any(row.problem is None and not row.n for row in s.rows)
    if s.end == "budget" and (draft.undecided or is_untried):
        return Next("spend as much again to decide between them", _as_much_again(s))
    if s.rivals_by_voids:  # going on asks for no answer again that could not be had
        return Next("mend what fails, then run again", "bestarm-agent select")
    if s.scored_by.startswith("judge ") and s.objective is None:
        return Next("label 20 examples, to see whether people agree with the judge", label)
    name = safe(named.candidate.label)
    if s.new_examples is None or s.new_examples.shown or s.objective is not None:
        return Next(f"use {name}")
    if draft.cheaper is not None:
        saying = f"use {name}, or say how much worse a cheaper one may be"
        return Next(saying, "bestarm-agent select --cheapest-within 0.02")
    n_needed = s.new_examples.examples_needed or 0  # 0: nobody knows
    if n_needed > s.new_examples.n_examples:
        least = f"about {_rounded(n_needed - s.new_examples.n_examples)} more {s.unit}s"
        return Next(f"use {name}; {least} should prove it for new ones")
    if n_needed and named.n < s.n_examples:
        text = f"use {name}; the {s.unit}s that are left should prove it for new ones"
        return Next(text, "bestarm-agent select --for new")
    return Next(f"use {name}")


def _next_to_clear(s: Standing, named: Row | None) -> Next:
    """Return what to do next where nobody clears the bar, or perhaps a cheaper one does, too."""
    if s.objective is not None and s.objective.established:
        return Next("lower the bar, or add candidates")
    if s.end == "budget":
        why = "prove it" if named is None else "see whether a cheaper one does, too"
        return Next(f"spend as much again to {why}", _as_much_again(s))
    if s.guarantee is Guarantee.HEURISTIC:
        return Next("take a rule that can prove it", "bestarm-agent select --selector auto")
    return Next("add examples, or lower the bar")


def _as_much_again(s: Standing) -> str | None:
    """Return the command that adds to the cap which ended a run; None if it is set elsewhere."""
    caps = s.configured or s.budget
    known = {
        "answers": (s.spent.answers, caps.answers, 1),
        "calls": (s.spent.calls, caps.calls, 1),
        "tokens": (s.spent.tokens, caps.tokens, 1),
        "usd": (s.spent.usd_nanos, caps.usd_nanos, NANOS_PER_USD),
        "minutes": (s.seconds, caps.seconds, 60),
        "": (s.spent.gpu_seconds, caps.gpu_seconds, 60),  # a matter of the study alone
    }
    shares = {name: used / cap for name, (used, cap, _) in known.items() if cap}
    flag = max(shares, key=shares.__getitem__, default="")
    _, amount, unit = known[flag]
    more = f"--budget-{flag} {(amount or 0) / unit:.10g}"
    return f"bestarm-agent resume {s.run_id} {more}" if flag else None


def _rounded(count: int) -> str:
    """Write a number with one significant digit, or two that are nearest."""
    return f"{float(f'{count:.1g}'):,.0f}" if count >= 100 else f"{math.ceil(count / 10) * 10}"


def listed(names: Iterable[str], n: int) -> str:
    """Name the first three of ``n``, and count the others.

    Example:
        >>> listed(["a", "b"], 2), listed(iter("abcde"), 5)
        ('a, b', 'a, b, c and 2 more')
    """
    first = [name for name, _ in zip(names, range(_NAMED), strict=False)]
    others = f" and {n - len(first)} more" if n > len(first) else ""
    return ", ".join(first) + others


def proved(confidence: float) -> str:
    """Say that something is proved: the one word for it, wherever a statement is made.

    Example:
        >>> proved(0.95)
        'proved at 95 %'
    """
    return f"proved at {percent(confidence, exact=True)}"


def share_text(share: float) -> str:
    """Write a share of a price in words where there is one.

    Example:
        >>> share_text(0.21), share_text(0.5), share_text(0.71), share_text(0.004)
        ('a fifth', 'half', '71 %', 'less than a hundredth')
    """
    # a word where it is at most 6 % off, as "about a fifth" of .19 to .21
    if share < 0.01:
        return "less than a hundredth"
    words = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 10: "a tenth"}
    part = round(1.0 / share)
    if part in words and abs(share * part - 1.0) <= 0.06:
        return words[part]
    return percent(share)


def objective_text(spec: ObjectiveSpec, *, proved: bool = True) -> str:
    """Describe an objective.

    Example:
        >>> objective_text(ObjectiveSpec(name="cheapest-within-epsilon", epsilon=0.05))
        'the cheapest within 5 points of the best'
    """
    if spec.at_least is not None:
        return f"the cheapest that is proved to score at least {percent(spec.at_least, exact=True)}"
    if spec.name is Objective.CHEAPEST:
        likely = "" if proved else "that is probably "
        return f"the cheapest {likely}within {points(spec.epsilon)} of the best"
    limits = [
        f"costs at most ${limit.limit:g} per 1,000 calls"
        if limit.name == PRICE
        else f"keeps {limit.text}"
        for limit in spec.constraints
    ]
    likely = "" if proved else "probably "
    return f"the best that {likely}{' and '.join(limits)}" if limits else "the best"
