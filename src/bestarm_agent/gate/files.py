"""The answer of a gate as Markdown, for step summaries and comments, and as JUnit XML."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from bestarm_agent.gate.summary import GateSummary
from bestarm_agent.report.text import safe
from bestarm_agent.stats.intervals.non_inferiority import Verdict

_MARKS = {Verdict.PASSED: "✅", Verdict.FAILED: "❌", Verdict.UNDECIDED: "⚠️"}
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def markdown(found: GateSummary) -> str:
    """Return the answer as Markdown; names of candidates are shown as they are, and do nothing."""
    head = [
        f"### {_MARKS[found.verdict]} Gate {_plain(found.name)}: {found.word}",
        "",
        f"Baseline: {_plain(found.baseline)}, {found.question.n_examples:,} examples.",
        "",
        f"| {' | '.join(found.columns)} |",
        f"| --- | --- |{' ---: |' * (len(found.columns) - 2)}",
    ]
    rows = [
        f"| {_plain(label)} | {_MARKS[one.alone]} {' | '.join(cells)} |"
        for (_, one), (label, *cells) in zip(found.entries(), found.rows(), strict=True)
    ]
    notes = [f"- {_plain(line)}" for line in found.outlooks()]
    remarks = [f"- {_plain(' '.join(line.split()))}" for line in found.remarks]
    return "\n".join([*head, *rows, "", *notes, f"- {found.sure}", *remarks]) + "\n"


def junit(found: GateSummary) -> str:
    """Return the answer as JUnit XML: a test per challenger, in error if it is undecided."""
    count = dict.fromkeys(Verdict, 0)
    for one in found.compared:
        count[one.verdict] += 1
    suite = ElementTree.Element(
        "testsuite",
        name=_xml(f"gate {found.name}"),
        tests=str(len(found.compared)),
        failures=str(count[Verdict.FAILED]),
        errors=str(count[Verdict.UNDECIDED]),
    )
    for one in found.compared:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml(f"gate.{found.name}"), name=_xml(one.label)
        )
        statement = _xml(found.statement(one))
        if one.verdict is Verdict.PASSED:
            ElementTree.SubElement(case, "system-out").text = statement
        else:
            kind = "failure" if one.verdict is Verdict.FAILED else "error"
            ElementTree.SubElement(case, kind, message=statement, type=one.word_in_all)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _plain(text: str) -> str:
    """Write what has a meaning in Markdown or HTML, such as a link or a mention, as entities."""
    return re.sub(r"[^\w ,;+=()/%-]|_", lambda found: f"&#{ord(found[0])};", safe(text))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
