from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.request_reply import Reply
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges.registry import check_examples, create_judge
from tests.support.no_calls import NoCalls

Judged = Callable[..., float | str]

RIGHT, WRONG, UNPARSABLE = 1.0, 0.0, "unparsable"


@pytest.mark.parametrize(
    ("options", "text", "reference", "expected"),
    [
        ({"pattern": r"\d+"}, "it is 46", None, RIGHT),
        ({"pattern": r"\d+"}, "none", None, WRONG),
        ({"pattern": r"\d+"}, "", None, WRONG),
        ({"pattern": r"^$"}, "", None, RIGHT),
        ({"pattern": r"^\d+$"}, "46", None, RIGHT),
        ({"pattern": r"^\d+$"}, "it is 46", None, WRONG),
        ({"pattern": r"\A\{.*\}\Z"}, '{"a": 1}', None, RIGHT),
        ({"pattern": "paris"}, "Paris", None, WRONG),
        ({"pattern": "paris", "flags": ["ignore-case"]}, "Paris", None, RIGHT),
        ({"pattern": "^b$"}, "a\nb\nc", None, WRONG),
        ({"pattern": "^b$", "flags": ["multi-line"]}, "a\nb\nc", None, RIGHT),
        ({"pattern": "a.b"}, "a\nb", None, WRONG),
        ({"pattern": "a.b", "flags": ["dot-all"]}, "a\nb", None, RIGHT),
        ({"pattern": r"^\w+$"}, "café", None, RIGHT),
        ({"pattern": r"^\w+$", "flags": ["ascii"]}, "café", None, WRONG),
        ({"pattern": r"\p{Han}"}, "答", None, RIGHT),
        ({"pattern": r"(\d+)", "group": 1}, "46 or 47", "46", RIGHT),
        ({"pattern": r"(\d+)", "group": 1}, "47", "46", WRONG),
        ({"pattern": r"(\d+)", "group": 1}, "none", "46", UNPARSABLE),
        ({"pattern": r"(\d+)", "group": 0}, "x46", "46", RIGHT),
        ({"pattern": r"is (?P<city>\w+)", "group": "city"}, "It is PARIS", "Paris", RIGHT),
        ({"pattern": r"is (\w+)", "group": 1, "normalise": []}, "is PARIS", "Paris", WRONG),
        ({"pattern": r"a|(b)", "group": 1}, "a", "b", UNPARSABLE),
        ({"pattern": r"(\w*)", "group": 1}, "", "b", UNPARSABLE),
        ({"pattern": r"(\d+)", "group": 1}, "46", ("45", "46"), RIGHT),
        ({"pattern": r"(\d+)", "group": 1, "after": "####"}, "12 #### 46", "46", RIGHT),
        ({"pattern": r"^end$", "flags": ["multi-line"]}, "x" * 50_000 + "\nend", None, RIGHT),
        ({"pattern": "middle"}, "x" * 15_000 + "middle" + "x" * 15_000, None, WRONG),
        ({"pattern": r"(\d+)", "group": 1}, "46", None, "judge-failed"),
    ],
)
def test_matching(
    judged: Judged,
    options: dict[str, object],
    text: str,
    reference: str | tuple[str, ...] | None,
    expected: float | str,
) -> None:
    assert judged("regex", text, reference, **options) == expected


def test_a_catastrophic_pattern_is_given_up_and_blamed_on_the_judge() -> None:
    options = {"pattern": "(a|aa)+$", "timeout_seconds": 0.01}
    judge = create_judge("regex", options, Catalog())  # type: ignore[arg-type]
    reply = Reply("a" * 60 + "!")
    with pytest.raises(JudgeError) as caught:
        asyncio.run(judge.score(Example("e1", {}), reply, NoCalls()))
    assert caught.value.kind is FailureKind.JUDGE_FAILED
    assert caught.value.blame is Blame.JUDGE
    assert "took more than 0.01 s on a reply of 61 characters" in str(caught.value)
    assert "possessive" in str(caught.value)


def test_only_a_group_needs_a_reference() -> None:
    catalog = Catalog()
    assert not create_judge("regex", {"pattern": "a"}, catalog).needs_reference
    assert create_judge("regex", {"pattern": "(a)", "group": 1}, catalog).needs_reference
    check_examples(create_judge("regex", {"pattern": "a"}, catalog), [Example("e1", {}, " ")])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "judge `regex`: option `pattern` is required"),
        ({"pattern": "(a"}, "judge `regex`: `pattern` is malformed: missing \\) at position 2"),
        ({"pattern": ""}, "`pattern` must not be empty, got"),
        ({"pattern": "a" * 2001}, "`pattern` must have at most 2,000 characters"),
        ({"pattern": "a", "group": 1}, r"`group` must be in \[0, 0\] for this `pattern`, got 1"),
        ({"pattern": "(a)", "group": "b"}, "`pattern` has no group named 'b'"),
        ({"pattern": "a", "flags": ["i"]}, r"`flags\[0\]` must be 'ignore-case', 'multi-l"),
        ({"pattern": "a", "timeout_seconds": 0}, "`timeout_seconds` must be greater than 0, got 0"),
        ({"pattern": "a", "timeout": 1}, "unknown option `timeout`; did you mean `timeout_secon"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create_judge("regex", options, Catalog())  # type: ignore[arg-type]
