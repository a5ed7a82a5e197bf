"""Compare mathematical answers by math-verify, in processes of their own that can be ended.

SymPy can take forever on a hostile expression, and math-verify's time limit is a signal, which
works in the main thread only. A process runs this file as a script, so it imports nothing of the
package. It sees none of the environment's secrets.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from threading import Timer, local
from typing import Any, Final
from unicodedata import decimal, normalize

# where replies are compared: hostile ones keep no other thread of the program from its work
THREADS: Final = ThreadPoolExecutor(min(4, os.cpu_count() or 1), "math")

_KILLED = -9  # by the limit, or for want of memory
# Two words beside each other, "the answer", are prose and no formula. "\sin x" (a command) and "2x
# + 3y" are tried.
PROSE = re.compile(r"(?<!\\)\b[^\W\d_]{2,}\s+[^\W\d_]{2,}")  # two words: no formula
_MAX_BARE = 1000  # characters of a line that is tried as LaTeX
# math-verify compares numbers rounded to 6 decimals: 1e-7 and 3e-7 would be equal.
_SMALL, _CLOSE = 1e-5, 1e-3  # numbers below the first are equal within this share of the larger
# Signs of Unicode that math-verify does not read, as LaTeX.
_SIGNS = str.maketrans(
    {"∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "·": r"\cdot ", "×": r"\times ", "∈": r"\in "}
)
_SIGNS[ord("．")] = "."
_RAISED, _SHARE = re.compile("[⁻⁺⁰¹²³⁴-⁹ⁿ]+"), re.compile("[¼-¾⅐-⅞]")
_PI = re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])")
_ROOT = re.compile(r"√\s*(\d+|\w|\([^()]*\)|\{[^{}]*\})")
# What a Python process needs to start and to find its packages; no keys of providers.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR")


class MathProcess(local):
    """Answers questions one after another; each thread has a process, begun when first asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def compare(self, answer: str, references: Sequence[str], seconds: int) -> str:
        """Return "right", "wrong", or why the two cannot be compared; blocks the thread.

        The reason is "no answer", "no reference", "timeout", or a sentence on what went wrong;
        ``seconds`` limits each step.
        """
        process = self._begun()
        # a step may be one long operation of C, which no signal interrupts
        limit = Timer((2 + 2 * len(references)) * seconds + 1, process.kill)
        limit.start()
        question = {"answer": answer, "references": list(references), "seconds": seconds}
        try:
            verdict = _asked(process, question)
        finally:
            limit.cancel()
        # The process has ended, by the limit or by itself, so the next question begins another.
        if not verdict:
            _end(process)
            self._process = None
            if process.returncode != _KILLED:
                return f"math-verify's process ended with status {process.returncode}"
        return verdict or "timeout"

    def _begun(self) -> subprocess.Popen[str]:
        if self._process is None:
            process = subprocess.Popen(
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            )
            weakref.finalize(THREADS, _end, process)  # at the end of the interpreter
            # loads all that SymPy loads late, which would count against the limit of an answer
            first = {"answer": "$x^2+2x+1$", "references": ["(x+1)^2"], "seconds": 100}
            if _asked(process, first) != "right":
                raise RuntimeError("math-verify does not work in a process of its own")
            self._process = process
        return self._process


MATH: Final = MathProcess()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    with suppress(BrokenPipeError, ValueError):  # a question may lie in the buffer
        process.communicate()


def _asked(process: subprocess.Popen[str], question: dict[str, Any]) -> str:
    """Return the process's line; empty if it ended."""
    if process.stdin is None or process.stdout is None:
        raise TypeError("the process has pipes")
    try:
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return ""
    return process.stdout.readline().strip()


def _answer_lines() -> None:
    """Answer each line of the standard input by a word; ends with the input."""
    package = import_module("math_verify")
    stopped = import_module("math_verify.errors").TimeoutException
    for line in sys.stdin:
        question = json.loads(line)
        try:
            verdict = _compared(package, question)
        except stopped:
            verdict = "timeout"
        except Exception as error:  # of SymPy, which may raise anything
            why = " ".join(str(error).split())
            verdict = f"math-verify raised {type(error).__name__}: {why:.200}"
        sys.stdout.write(verdict + "\n")
        sys.stdout.flush()


def _compared(package: Any, question: dict[str, Any]) -> str:  # noqa: ANN401 - it has no types
    seconds = question["seconds"]

    def parsed(text: str) -> Any:  # noqa: ANN401
        try:
            return package.parse(_latex(text), parsing_timeout=seconds, raise_on_error=True)
        except Exception:  # of SymPy, on a text that is no expression
            return []

    targets = [parsed(_marked(reference)) for reference in question["references"]]
    if not all(targets):
        return "no reference"
    # math-verify looks for marked answers (\boxed, $...$). A bare last line such as "x^2 + 1" is
    # tried too, as if it were marked, unless it reads as a sentence.
    answer = parsed(question["answer"])
    line = (question["answer"].strip().splitlines() or [""])[-1].strip(" *`.")
    bare = [] if PROSE.search(line) or len(line) > _MAX_BARE else parsed(_marked(line))
    for target in targets:
        for expression in filter(None, (answer, bare)):
            equal = package.verify(target, expression, timeout_seconds=seconds, raise_on_error=True)
            if equal and not _only_rounded(target[0], expression[0]):
                return "right"
    return "wrong" if answer or bare else "no answer"


def _latex(text: str) -> str:
    """Return a text with the signs of Unicode written as LaTeX: x², √3, ½, 5×10³, ５."""
    text = "".join(str(decimal(character, character)) for character in text)
    text = _RAISED.sub(lambda m: "^{" + normalize("NFKC", m[0]) + "}", text)
    text = _SHARE.sub(lambda m: "\\frac{" + normalize("NFKC", m[0]).replace("⁄", "}{") + "}", text)
    text = _PI.sub(r"\\pi ", text)
    return _ROOT.sub(r"\\sqrt{\1}", text).translate(_SIGNS)


def _only_rounded(target: Any, answer: Any) -> bool:  # noqa: ANN401 - SymPy's
    """Return whether two small numbers differ that math-verify rounds to the same 6 decimals."""
    try:
        first, second = (complex(number.doit().evalf(20)) for number in (target, answer))
    except (AttributeError, TypeError, ValueError):
        return False  # no numbers
    larger = max(abs(first), abs(second))
    return larger < _SMALL and abs(first - second) > larger * _CLOSE


def _marked(text: str) -> str:
    """Mark a text as LaTeX, unless it says itself where its answer is."""
    text = text.replace("\\$", "")  # of an amount
    is_marked = any(mark in text for mark in ("$", "\\boxed", "\\(", "\\["))
    return text if is_marked else f"\\boxed{{{text}}}"


if __name__ == "__main__":
    _answer_lines()
