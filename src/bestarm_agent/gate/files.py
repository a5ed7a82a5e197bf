"""The answer of a gate as Markdown, for step summaries and comments, and as JUnit XML."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bestarm_agent.engine.mode import ModeResult
from bestarm_agent.report.words import safe
from bestarm_agent.stats.non_inferiority import Decision

_MARKS = {Decision.PASSED: "✅", Decision.FAILED: "❌", Decision.UNDECIDED: "⚠️"}
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def markdown(found: ModeResult, name: str) -> str:
    """Return the answer as Markdown; names of candidates are shown as they are, and do nothing.

    ``name`` is that of the study.
    """
    verdict = next(row.cells[1] for row in found.rows if row.verdict is found.verdict)
    head = [
        f"### {_MARKS[found.verdict]} {found.title} {_plain(name)}: {verdict}",
        "",
        f"| {' | '.join(found.columns)} |",
        f"| --- | --- |{' ---: |' * (len(found.columns) - 2)}",
    ]
    rows = [
        f"| {_plain(row.cells[0])} | {_MARKS[row.verdict]} {' | '.join(row.cells[1:])} |"
        for row in found.rows
    ]
    lines = [f"- {_plain(' '.join(line.split()))}" for line in found.lines]
    return "\n".join([*head, *rows, "", *lines]) + "\n"


def junit(found: ModeResult, name: str) -> str:
    """Return the answer as JUnit XML: a test per challenger and slice, in error if undecided."""
    verdicts = [row.verdict for row in found.rows]
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(f"gate {name}"),
        tests=str(len(verdicts)),
        failures=str(verdicts.count(Decision.FAILED)),
        errors=str(verdicts.count(Decision.UNDECIDED)),
    )
    for row in found.rows:
        label, verdict, *_ = row.cells
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml(f"gate.{name}"), name=_xml(label)
        )
        if row.verdict is Decision.PASSED:
            ElementTree.SubElement(case, "system-out").text = _xml(row.said)
        else:
            kind = "failure" if row.verdict is Decision.FAILED else "error"
            ElementTree.SubElement(case, kind, message=_xml(row.said), type=verdict)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _plain(text: str) -> str:
    """Write what has a meaning in Markdown or HTML, such as a link or a mention, as entities."""
    return re.sub(r"[^\w ,;+=()/%-]|_", lambda found: f"&#{ord(found[0])};", safe(text))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
