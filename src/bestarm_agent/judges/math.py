"""Score a mathematical answer by whether it equals a reference, in whatever form it is written."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from importlib.util import find_spec

from pydantic import Field

from bestarm_agent.domain.values import Example, Reply, Score
from bestarm_agent.judges.base import Calls, judge_failed, references, unparsable
from bestarm_agent.judges.math_process import MATH, PROSE, THREADS
from bestarm_agent.judges.numbers import formula, is_number
from bestarm_agent.judges.rule import ShortRuleOptions, WholeTextJudge
from bestarm_agent.plugins import missing

_WORDS = re.compile(r"[^\W\d_]{3,}|[^\W\d_]+(?:\s+[^\W\d_]+)+")  # "even", "no solution"

_TAGS = re.compile(r"<([A-Za-z]\w*)>(.{0,2000}?)</\1>", re.DOTALL)  # <answer>5</answer>

_STATED = re.compile(r"^.*(?:\b(?:is|are|be|equals?)\s|'s\s|[:：是为は])")  # before an expression


def _formula(text: str) -> str:
    """Return a text with its number or expression as LaTeX, if it holds none yet."""
    if "$" in text or "\\" in text:
        return text
    if (latex := formula(text)) is not None:
        return latex
    line = _STATED.sub("", text.strip().splitlines()[-1]).strip(" *`.。")
    if len(line) > 1000 or PROSE.search(line):  # a longer one is no answer
        raise unparsable("no number by itself, and no formula alone", text)
    return f"\\boxed{{{line}}}"


def _plain(text: str) -> str:
    """Return a text without the spaces around it; words alone in lower case and without marks."""
    plain = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).strip(" \n$.*")
    return plain.casefold() if _WORDS.fullmatch(plain) else text.strip()


class MathOptions(ShortRuleOptions):
    """Options of ``math``."""

    # most seconds for reading an answer, and for each comparison; beyond it the pair has no answer
    timeout_seconds: int = Field(5, ge=1, le=60)


class MathJudge(WholeTextJudge[MathOptions]):
    r"""Scores 1 if the answer equals any reference, by math-verify: 0.5 is ``\frac{1}{2}``.

    The answer is ``\boxed{...}``, else LaTeX such as ``$...$``, else a number or an expression; or
    the last line, if it is as a whole LaTeX that equals a reference.
    """

    adapter = "math"
    # 2: a bare formula counts; 3: signs of Unicode, 4: its digits, and tags around an answer; 5:
    # numbers outside of LaTeX are those that `numeric` reads
    version = 5
    recognises = True
    options_type = MathOptions

    def __init__(self, name: str, options: MathOptions) -> None:
        super().__init__(name, options)
        if find_spec("math_verify") is None:  # it is imported in the other process only
            raise missing("metrics", f"judge `{name}`")

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Score one reply as all rules do, but in a thread: the comparison may take seconds."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(THREADS, self.scored, example, reply)

    def _agrees(self, answer: str, example: Example) -> bool:
        answer, targets = _TAGS.sub(r"\n\2\n", answer), references(example)
        # The same text needs no algebra. This also spares the process for most right answers.
        if _plain(answer) in map(_plain, targets):
            return True
        try:
            # of a target, only one as "3e8" or "5 million" is no LaTeX as it stands
            read = [formula(target) or "" if is_number(target) else "" for target in targets]
            pairs = zip(targets, read, strict=True)
            written = [latex if latex.startswith("\\boxed") else target for target, latex in pairs]
            verdict = self._compared(_formula(answer), written)
        except ValueError as error:
            raise judge_failed(
                f"judge `{self.name}` cannot compare a reply with the reference of example "
                f"`{example.id}`: {error}"
            ) from None
        if verdict == "no answer":
            raise unparsable("no number or formula", answer)
        return verdict == "right"

    def _target(self, reference: str, example: Example) -> str:
        # A reference is checked by comparing anything with it: the process reads references first,
        # and says so if it cannot.
        self._compared("1", [super()._target(reference, example)])
        return reference

    def _compared(self, answer: str, targets: Sequence[str]) -> str:
        """Return "right", "wrong" or "no answer"; raises ValueError for a reference or a limit."""
        seconds = self.options.timeout_seconds
        verdict = MATH.compare(answer, targets, seconds)
        if verdict == "timeout":
            raise ValueError(f"it took more than {seconds} s; raise `timeout_seconds`")
        if verdict == "no reference":
            raise ValueError(
                "it is no number or formula; write it as LaTeX, such as `\\frac{1}{2}`"
            )
        if verdict not in ("right", "wrong", "no answer"):
            raise ValueError(verdict)
        return verdict
