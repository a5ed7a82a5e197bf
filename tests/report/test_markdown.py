"""Texts of others in Markdown: plain for GitHub, and readable as they are in a log."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bestarm_agent.engine.results.standing import Next
from bestarm_agent.report.markdown import escaped, markdown
from tests.support.standings import standing_with

RENDER = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render
SAID = (
    "PASS large-1/steps: difference +0.036 [-0.020, +0.076], after 167 of 300 examples; a_b (50 %)."
)


def shown(text: str) -> str:
    """The text that a reader of the rendered page sees in a list, in which a line stands."""
    page = RENDER(f"- {text}")
    assert set(re.findall(r"<(\w+)", page)) <= {"ul", "li"}, page
    return unescape(re.sub(r"<[^>]+>", "", page)).strip("\n").replace("\u200b", "")


def test_what_the_program_says_stays_as_it_is() -> None:
    assert escaped(SAID) == SAID
    assert escaped("0.0976") == "0.0976"
    assert escaped("1. one") == "1\\. one"


def shown_page(page: str) -> str:
    """The text that a reader of a whole rendered page sees."""
    return unescape(re.sub(r"<[^>]+>", "", RENDER(page))).replace("\u200b", "")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "[a](http://b.c)",
            "![a](b)",
            "[a][b]",
            "<b>x</b>",
            "<!-- x",
            "&lt;b&gt;",
            "*a*",
            "**a**",
        ),
        *(
            "_a_",
            "__a__",
            "`a`",
            "~~a~~",
            "~a~",
            "a|b",
            "# a",
            "> a",
            "- a",
            "+ a",
            "12. a",
            "1) a",
        ),
        *("[ ] a", "[a]: http://b", "=====", "\\*a*", "a\\", "a_b_c", "$x$ and $y$", "---", "***"),
    ],
)
def test_markup_is_text(text: str) -> None:
    assert shown(escaped(text)) == text


@given(st.text(alphabet=r"ab1 _*`~[](){}<>&;#:!|\-+.=$@/", min_size=1, max_size=24))
def test_no_text_is_markup(text: str) -> None:
    text = " ".join(text.split()) or "a"
    assert shown(escaped(text)) == text


@pytest.mark.parametrize(
    "text", ["@team", "#12", "o/r#12", "GH-12", "https://a.b", "www.a.b", "a@b.c"]
)
def test_nobody_is_told_and_nothing_linked(text: str) -> None:
    plain = escaped(text)
    assert plain.replace("\u200b", "").removeprefix("\\") == text
    assert not re.search(r"@\w|#\d|GH-\d|://|www\.", plain)


def test_missing_answers_and_broken_candidates_are_named() -> None:
    standing = standing_with(["a", "b"], [[1.0], [0.0]], broken={"b": "HTTP 404"})
    rows = (replace(standing.rows[0], void=23), *standing.rows[1:])
    page = shown_page(markdown(replace(standing, rows=rows)))
    assert "23 without an answer." in page
    assert "Cannot be called: b: HTTP 404." in page


def test_the_command_of_the_advice_stands_as_code_and_nothing_else_does() -> None:
    standing = standing_with(["a`b", "c"], [[1.0] * 40, [1.0] * 39 + [0.0]], n_examples=40)
    advice = Next("use it", "bestarm-agent select --cheapest-within 0.02")
    said = ("Take a`b`.", f"Next: use `it`: `{advice.command}`.")
    decision = replace(standing.decision, said=said, next=advice)
    text = markdown(replace(standing, _decision=decision))
    assert "**Take a\\`b\\`.**" in text
    assert "Next: use \\`it\\`: `bestarm-agent select --cheapest-within 0.02`." in text
