"""Signs that replies are scored wrongly: the scorer, or a setting, is at fault, and not the model.

A prompt whose first replies are all wrong is looked at more closely, once, and what is found is
said with the setting that would change it. No score changes by itself: the same replies can be
scored again by another scorer, from the reply cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Finish, Reply
from bestarm_agent.errors import FailureKind, JudgeError
from bestarm_agent.judges.base import Judge, references
from bestarm_agent.judges.registry import create_judge
from bestarm_agent.judges.rule import RuleJudge

_LOOKS = (5, 20)  # numbers of replies to a prompt after which they are looked at
_MOST = 0.6  # share of the replies that make a sign
_DIFFERENT = 3  # targets whose examples got one and the same reply
# Rules that find a target inside a reply, in the order in which they are named.
_LENIENT = ("contains", "numeric", "multiple-choice")


class Seen(NamedTuple):
    """A reply as it was scored."""

    example: Example
    reply: Reply
    score: float | None  # None: the reply could not be scored
    failure: FailureKind | None = None  # why


class Suspicion:
    """Findings in a run's first replies to each prompt; ``remarks`` grows by a sentence each."""

    def __init__(self, judge: Judge) -> None:
        self.remarks: list[str] = []
        self._judge = judge
        self._seen: dict[str, list[Seen] | None] = {}  # by prompt; None: no more is looked for

    def saw(self, prompt: str, one: Seen) -> None:
        """Take a reply to a prompt."""
        seen = self._seen.setdefault(prompt, [])
        if seen is None:
            return
        seen.append(one)
        if len(seen) not in _LOOKS:
            return
        said = finding(seen, self._judge, f" to prompt `{prompt}`")
        if not said and len(seen) == _LOOKS[-1] and not any(one.score for one in seen):
            said = (
                f"the first {len(seen)} replies to prompt `{prompt}` all scored 0; read some of "
                "them: `bestarm-agent answers --wrong`"
            )
        if said:
            self.remarks.append(said)
        if said or len(seen) == _LOOKS[-1]:
            self._seen[prompt] = None


def finding(seen: Sequence[Seen], judge: Judge, whose: str = "") -> str:
    """Say what is the matter with replies that are all wrong, or all the same; else "".

    Example:
        >>> from bestarm_agent.judges.text import ExactJudge, ExactOptions
        >>> seen = [Seen(Example("1", {}, "42"), Reply("It is 42."), 0.0)]
        >>> print(finding(seen, ExactJudge("exact", ExactOptions()))[:91], "...")
        the target stands in 1 of 1 replies that scored 0: scorer `contains` or `numeric` would ...
    """
    n, name = len(seen), judge.name

    def part(count: int) -> str:
        return f"{count} of {n} replies{whose}" if count >= _MOST * n else ""

    targets = {references(one.example) for one in seen}
    texts = {one.reply.said.strip() for one in seen}
    if len(texts) == 1 and texts != {""} and len(targets) >= _DIFFERENT:
        return (
            f"all {n} replies{whose} are the same ({texts.pop()[:40]!r}), for "
            f"{len(targets)} different targets: the prompt may not show what differs"
        )
    if any(one.score for one in seen):
        return ""
    declined = (FailureKind.REFUSED, FailureKind.CONTENT_FILTERED)
    if said := part(sum(one.failure in declined for one in seen)):
        return f"{said} are refusals: change the prompt, or leave the model out"
    if said := part(sum(not one.reply.said.strip() for one in seen)):
        return (
            f"{said} are empty: raise `max_tokens` under `params` (a model that thinks first may "
            "have spent it), or change the prompt"
        )
    accepted = [] if judge.models else [(rule, _accepted(rule, seen)) for rule in _LENIENT]
    most = max((count for _, count in accepted), default=0)
    if most and part(most):
        names = " or ".join(f"`{rule}`" for rule, count in accepted if count == most)
        return (
            f"the target stands in {most} of {n} replies{whose} that scored 0: "
            f"scorer {names} would accept {'it' if most == 1 else 'them'} (replies are not paid "
            "for again)"
        )
    if said := part(sum(one.reply.finish is Finish.LENGTH for one in seen)):
        return (
            f"{said} were cut off at the token limit, and scored 0: raise `max_tokens` under "
            "`params`, or ask for the answer alone"
        )
    if said := part(sum(one.failure is FailureKind.UNPARSABLE for one in seen)):
        return (
            f"scorer `{name}` finds nothing to read in {said}: ask for an answer in the form that "
            "it reads, or take another scorer"
        )
    return ""


def _accepted(name: str, seen: Sequence[Seen]) -> int:
    """Return how many of the replies a rule scores 1."""
    rule, count = create_judge(name, {}, Catalog()), 0
    assert isinstance(rule, RuleJudge)
    for example, reply, *_ in seen:
        if references(example):
            with suppress(JudgeError):
                count += rule.scored(example, reply).value == 1.0
    return count
