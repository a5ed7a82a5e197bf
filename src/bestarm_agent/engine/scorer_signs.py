"""Signs that replies are scored wrongly: the scorer, or a setting, is at fault, and not the model.

1. When a reply is scored, ``ScorerSigns.of`` gives it a sign, one word, which the log keeps with
   the outcome: that a more lenient rule would accept it, that it was cut off, and the like.
2. ``fault_of`` looks at the counts of these words, by prompt, whenever where a run stands is asked.

No score changes by itself: the same replies can be scored again by another scorer, from the reply
cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Reply
from bestarm_agent.errors import ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.base import Judge, references
from bestarm_agent.judges.registry import create_judge
from bestarm_agent.judges.rule import RuleJudge

# Rules that find a target inside a reply, in the order in which they are named.
_LENIENT = ("contains", "numeric", "multiple-choice")
# Scorers that read an answer out of a reply, as those above do. That a wrong reply of theirs holds
# the target somewhere says nothing: reasoning names all options before it settles on one.
_READERS = (*_LENIENT, "math", "regex", "python", "tool-call", "json-schema")
# A fault is named on counts alone. Single wrong replies do hold the target by chance; a third of
# them, and at least five, is a pattern. The other faults can be a bad model as well, so that they
# are named only where no reply at all is right.
FEWEST = 5  # wrong replies of a prompt that hold the target make a sign,
_SHARE = 1 / 3  # if they are this share of its wrong replies
_MOST = 0.6  # share of the replies, all of them wrong, that have the same fault
_ENOUGH = 20  # replies without a right one among them


class Sign(StrEnum):
    """Oddities of a reply, besides the names of rules that would accept it."""

    REFUSED = "refused"  # or filtered
    EMPTY = "empty"
    CUT = "cut"  # off at the limit of tokens
    UNREADABLE = "unreadable"  # by the scorer
    SAME = "same"  # as the prompt's first one, though the target is another


class ScorerSigns:
    """Gives the replies that one judge scores their signs."""

    def __init__(self, judge: Judge) -> None:
        adapter = judge.adapter or judge.name
        is_rule = not judge.models
        rules = [name for name in _LENIENT if is_rule and name != adapter]
        if adapter in _READERS:
            rules = [name for name in rules if name != "contains"]
        made = [(name, create_judge(name, {}, Catalog())) for name in rules]
        self._rules = [(name, rule) for name, rule in made if isinstance(rule, RuleJudge)]
        self._first: dict[str, tuple[str, tuple[str, ...]]] = {}  # reply and targets, by prompt

    def of(
        self,
        prompt: str,
        example: Example,
        reply: Reply,
        score: float | None,
        failure: FailureKind | None = None,
    ) -> str:
        """Return the sign of a reply to a prompt; "" if there is none.

        ``score`` is None where the reply could not be scored, for the reason ``failure``.
        """
        # The first sign that fits is kept, so the surest come first: what the model said of itself
        # (refused), what is there at all (empty), then a rule that finds the target, even in a
        # reply that was cut off, since the scorer is then at fault and not the limit. The same text
        # as before is a sign also of a right reply: with few targets, some are right by chance.
        text, targets = reply.said.strip(), references(example)
        first, its_targets = self._first.setdefault(prompt, (text, targets))
        same = Sign.SAME if text == first and targets != its_targets else ""
        if score:
            return same
        if failure in (FailureKind.REFUSED, FailureKind.CONTENT_FILTERED):
            return Sign.REFUSED
        if not text:
            return Sign.EMPTY
        for name, rule in self._rules if targets else ():
            # Whether a rule can read the targets at all is told in a tenth of the time.
            with suppress(ConfigError, JudgeError):
                rule.check(example)
                if rule.scored(example, reply).value == 1.0:
                    return name
        if reply.finish is Finish.LENGTH:
            return Sign.CUT
        return Sign.UNREADABLE if failure is FailureKind.UNPARSABLE else same


@dataclass(frozen=True, slots=True)
class SignCount:
    """Replies to one prompt, or of one candidate, with their signs."""

    whose: str  # "prompt `plain`"
    n: int  # scored, or failed by the candidate
    wrong: int  # of these with the score 0
    signs: Counter[str] = field(default_factory=Counter)  # of the wrong ones; SAME: of all
    is_part: bool = False  # whether these replies are among those of other counts


@dataclass(frozen=True, slots=True)
class ScorerFault:
    """Something that is the matter with a run's scores."""

    text: str  # a sentence without its full stop
    way_out: str  # what would mend it
    command: str = ""  # none where the run's wrong answers are to be read
    # whether it is the scorer that rejects right answers, rather than replies that are none
    rejects: bool = False


def fault_of(
    counts: Iterable[SignCount], scorer: str, *, fewest: int = FEWEST
) -> ScorerFault | None:
    """Say what is the matter with replies; None if nothing is.

    Args:
        counts: by prompt; each may be suspected by itself of holding targets, the other faults
            only if no reply to any prompt scored.
        scorer: its name.
        fewest: wrong replies with a target in them that are suspicious.

    Example:
        >>> print(fault_of([SignCount("prompt `a`", 8, 6, Counter(contains=5))], "exact").text)
        `exact` rejects right answers: the target stands in 5 of the 6 wrong replies to prompt `a`
    """
    # A scorer that rejects right answers is looked for first, prompt by prompt: the form of an
    # answer depends on the prompt, so the scorer may read one prompt's replies and not another's.
    counts = [count for count in counts if count.n]
    for count in counts:
        held = {name: count.signs[name] for name in _LENIENT if count.signs[name]}
        total = sum(held.values())
        if total >= fewest and total >= _SHARE * count.wrong:
            rule = max(held, key=lambda name: held[name])
            return ScorerFault(
                f"`{scorer}` rejects right answers: the target stands in {total:,} of the "
                f"{count.wrong:,} wrong replies to {count.whose}",
                f"try scorer `{rule}`",
                f"bestarm-agent select --set scorer={rule}",
                rejects=True,
            )
    counts = [count for count in counts if not count.is_part]
    n = sum(count.n for count in counts)
    signs = sum((count.signs for count in counts), Counter[str]())
    enough = n >= min(_ENOUGH, fewest)
    # A prompt's first reply has no sign: it is what the others are compared with. So each prompt
    # whose replies repeat has one more than the signs say.
    same = sum(count.signs[Sign.SAME] + 1 for count in counts if count.signs[Sign.SAME])
    if enough and n > 1 and same == n:
        return ScorerFault(
            f"all {n:,} replies are the same text, whatever the target",
            "see whether the prompt shows what differs between examples",
            "bestarm-agent try",
        )
    if any(count.wrong < count.n for count in counts) or not enough:
        return None
    for sign, (what, way_out) in _FAULTS.items():
        if signs[sign] >= _MOST * n:
            return ScorerFault(
                f"{signs[sign]:,} of {n:,} replies {what}", way_out, "bestarm-agent try"
            )
    if n >= _ENOUGH:
        return ScorerFault(
            f"all {n:,} replies scored 0",
            "read some of the replies: the prompt or the scorer may be at fault",
        )
    return None


_FAULTS = {
    Sign.REFUSED: ("are refusals", "change the prompt, or leave the model out"),
    Sign.EMPTY: (
        "are empty",
        "raise `max_tokens` under `params` (a model that thinks first may have spent it), or "
        "change the prompt",
    ),
    Sign.CUT: (
        "were cut off at the token limit, and scored 0",
        "raise `max_tokens` under `params`, or ask for the answer alone",
    ),
    Sign.UNREADABLE: (
        "hold nothing that the scorer can read",
        "ask for an answer in the form that it reads, or take another scorer",
    ),
}
