r"""Read a verdict that a prompt asks for in a form of its own: a last line, a pattern, a tag.

Published prompts ask for ``[[8]]`` (MT-Bench), ``[RESULT] 4`` (Prometheus), ``GRADE: C`` (Inspect).
The rules are those of ``verdicts``: all statements of a reply must agree, and what the answer being
judged states too could be a quotation.

Example:
    >>> form = Pattern(pattern=r"\[RESULT\] (\d)")
    >>> read_in_form(Reply("Clear and right. [RESULT] 4"), form, "verdict")["verdict"]
    '4'
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Annotated, Literal, TypeAlias

import regex
from pydantic import BeforeValidator

from bestarm_agent.domain.request_reply import Finish, Reply
from bestarm_agent.judges.base import JudgeOptions
from bestarm_agent.judges.verdicts import (
    Stated,
    UnreadableError,
    Verdict,
    agreed,
    canonical,
    claims,
    in_prose,
    prose,
    prose_forms,
    said_at_last,
)

_SECONDS = 1.0  # of a match, CPU seconds of this process
_AROUND = " \t\r\n#>*_`\"'.“”‘’«»()[]"
_EMPHASIS = str.maketrans("", "", "*_`\"'“”‘’«»")
_LAST_LINE = re.compile(r"(?P<name>[^:：=\d]{0,60}[:：=])?(?P<value>[^:：=]{1,100})")
# a number with what follows it: "8/10" is one on a scale of 10, "4 or 5" and "1-5" are on none
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:\s*(?:/|out of|-|–|to|or)\s*\d+(?:\.\d+)?)?")


class Pattern(JudgeOptions):
    """The verdict is what the only group of ``pattern`` catches, a pattern of package ``regex``."""

    pattern: str

    def compiled(self) -> regex.Pattern[str]:
        """Return the pattern, in which ``^`` and ``$`` are the ends of a line."""
        return regex.compile(self.pattern, regex.MULTILINE)


class Tag(JudgeOptions):
    """The verdict stands between ``<tag>`` and ``</tag>``, in any case."""

    tag: str

    def compiled(self) -> regex.Pattern[str]:
        """Return a pattern for the tag and what stands in it."""
        return regex.compile(rf"<{self.tag}>([^<>]*)</{self.tag}>", regex.IGNORECASE)


def _checked_form(form: object) -> object:
    match form:
        case "json" | "last_line" | Pattern() | Tag():
            return form
        case {"pattern": str(pattern), **rest} if not rest:
            return Pattern(pattern=_checked_pattern(pattern))
        case {"tag": str(tag), **rest} if not rest:
            if re.fullmatch(r"[A-Za-z][\w-]{0,60}", tag):
                return Tag(tag=tag)
            raise ValueError("a tag is a name of letters, digits, `_` and `-`, without `<` and `>`")
    raise ValueError(
        "it must be `json`, `last_line`, `{pattern: 'GRADE: ([CPI])'}` or `{tag: verdict}`"
    )


def _checked_pattern(pattern: str) -> str:
    try:
        groups = regex.compile(pattern).groups
    except regex.error as error:
        raise ValueError(f"the pattern is malformed: {error}") from None
    if groups != 1:
        raise ValueError(
            f"the pattern must have one group, around the verdict, and has {groups}; write any "
            "others `(?:...)`"
        )
    return pattern


TextForm: TypeAlias = Literal["last_line"] | Pattern | Tag
VerdictForm: TypeAlias = Annotated[Literal["json"] | TextForm, BeforeValidator(_checked_form)]


def read_in_form(
    reply: Reply, form: TextForm, key: str, evidence: str = "", labels: Collection[str] = ()
) -> Verdict:
    """Return the verdict under ``key``, as text, and the judge's words as its explanation.

    Args:
        reply: the judge's reply.
        form: the form in which the verdict was asked for.
        key: the key of the verdict.
        evidence: the answer being judged. A verdict that it states too counts as a quotation,
            unless it is the whole reply.
        labels: verdicts that are words.

    Raises:
        UnreadableError: there is no verdict in this form, or there are verdicts that differ.
    """
    text = said_at_last(reply)
    if reply.finish is Finish.LENGTH:  # its last line may be cut off within the verdict
        text = "" if form == "last_line" else text.rpartition("\n")[0]
    prose_form = prose_forms([key], labels)
    claimed = claims(evidence, [key], prose_form)
    if form == "last_line":
        before, _, line = text.rstrip().rpartition("\n")
        value, is_quoted = _on_last_line(line, evidence, labels)
        found = [*in_prose(before, prose_form), Stated({key: value}, not prose(before))]
        claimed[key] |= {canonical(value)} if is_quoted else set()
    else:
        pattern = form.compiled()
        caught = list(_caught(pattern, text, labels))
        whole = prose(text)
        found = [Stated({key: value}, prose(said) == whole) for value, said in caught]
        # a pattern that is bound to the start of a line misses the words within one
        named = {said for value, said in caught if prose(said) != value}
        quoted = {said for said in named if _holds(evidence, said)}
        claimed[key] |= {canonical(value) for value, said in caught if said in quoted}
        theirs = f"{evidence}\n{evidence.translate(_EMPHASIS)}"
        claimed[key] |= {canonical(value) for value, _ in _caught(pattern, theirs, labels)}
    why = "" if found and found[-1].is_whole else text.strip()
    return {**agreed(found, [key], evidence, claimed), "explanation": why}


def _on_last_line(line: str, evidence: str, labels: Collection[str]) -> tuple[str, bool]:
    """Return the verdict of a line, such as "C", "(C)" or "**Grade:** C", and if it is quoted."""
    found = _LAST_LINE.fullmatch(line.strip(_AROUND))
    value = found["value"].strip(_AROUND) if found else ""
    known = {canonical(label) for label in labels}
    if found is None or not (_NUMBER.fullmatch(value) or canonical(value) in known):
        raise UnreadableError(
            f"the last line of the judge's reply, {line[:60]!r}, is no verdict; the template must "
            "ask for one there"
        )
    # an answer that is the bare letter or number is not yet an attempt to state a verdict
    return value, found["name"] is not None and _holds(evidence, line)


def _holds(evidence: str, said: str) -> bool:
    return prose(said).casefold() in prose(evidence).casefold()


def _caught(
    pattern: regex.Pattern[str], text: str, labels: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield what the group catches, extended to whole words and numbers, and the whole match."""
    either = re.compile(
        rf"\s*(?:/|\bor\b)\s*(?:{'|'.join(map(re.escape, labels))})\b", re.IGNORECASE
    )
    try:  # the time limit is for the matches alone
        matches = [(*match.span(1), match[0]) for match in pattern.finditer(text, timeout=_SECONDS)]
    except TimeoutError:
        raise UnreadableError(
            f"the pattern of `verdict` took more than {_SECONDS:g} s; make its repetitions "
            "unambiguous"
        ) from None
    for start, end, said in matches:
        if text[start:end].strip(_AROUND):
            start, end = _extended(text, start, end)
            if labels and (rival := either.match(text, end)):
                end = rival.end()  # "C or I": no verdict
            yield text[start:end].strip(_AROUND), said


def _extended(text: str, start: int, end: int) -> tuple[int, int]:
    """Extend a span: where a pattern catches the 1 of "10" or the C of "Correct", all counts."""
    while start and (
        text[start - 1].isalnum() or (text[start].isdigit() and text[start - 1] in "+-.")
    ):
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    number = _NUMBER.match(text, start)
    return start, max(end, number.end()) if number else end
