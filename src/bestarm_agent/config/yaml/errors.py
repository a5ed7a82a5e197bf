"""Explain errors of YAML texts in plain words."""

from __future__ import annotations

import yaml
from yaml.reader import ReaderError

_PLAIN_WORDS = {
    "<block end>": "the end of the block",
    "'<block mapping start>'": "a key that is indented differently",
    "'<block sequence start>'": "a list that is indented differently",
    "'<block end>'": "the end of the block",
    "'<scalar>'": "more text",
    "'<stream end>'": "the end of the file",
    "'?'": "`?`",
    "a block mapping": "the mapping",
    "a block collection": "the list",
    "a flow node": "the `{` or `[`",
    "a flow mapping": "the `{`",
    "a flow sequence": "the `[`",
}


class YamlProblem(ValueError):
    """The text is not YAML, or not the YAML that a study may use; lines and columns start at 1."""

    def __init__(self, text: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.line = line
        self.column = column


def explained(error: yaml.YAMLError, text: str) -> YamlProblem:
    """Return an error found in ``text`` in plain words, with the way out."""
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return YamlProblem(f"U+{error.character:04X}: {error.reason}", line)
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return YamlProblem(str(error))
    mark = error.problem_mark
    if error.context == "while scanning a quoted scalar" and error.context_mark is not None:
        mark = error.context_mark
    lines = text.splitlines()
    source = lines[mark.line] if mark.line < len(lines) else ""
    return YamlProblem(
        f"{_problem(error)}{_hint(source, error)}",
        mark.line + 1,
        mark.column + 1,
    )


def _problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "malformed"
    if error.context == "while scanning a quoted scalar":
        return "the quote that opens here is never closed"
    if problem.startswith("mapping values are not allowed"):
        return "a `:` is not expected here"
    for jargon, words in _PLAIN_WORDS.items():
        problem = problem.replace(jargon, words)
    if problem == "but found another document":
        return "expected one document, but found a second one after `---`"
    return problem + _context(error)


def _context(error: yaml.MarkedYAMLError) -> str:
    if error.context is None or error.context_mark is None:
        return ""
    part = error.context.removeprefix("while ").removeprefix("parsing ").removeprefix("scanning ")
    return f" in {_PLAIN_WORDS.get(part, part)} that begins on line {error.context_mark.line + 1}"


def _hint(source: str, error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or ""
    if "'\\t'" in problem:
        return "; indent with spaces, not with tabs"
    if "{{" in source:
        return '; put quotes around a template: "{{ a }}"'
    if "'?'" in problem:
        return "; a `?` begins a key within `{` and `[`: put quotes around the text"
    if "cannot start any token" in problem:
        return "; put quotes around the text"
    if problem.startswith("mapping values are not allowed"):
        return "; put quotes around a text that holds `: `, or end the line above with a `:`"
    if "flow" in (error.context or ""):
        return "; close every bracket that is opened"
    if "<block end>" in problem:
        return "; give all keys of one mapping, or items of one list, the same indentation"
    return ""
