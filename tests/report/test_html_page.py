"""The report opens offline, runs nothing, and shows what others wrote as text."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bestarm_agent.domain.values import Failure
from bestarm_agent.engine.results.from_log import FailureLine
from bestarm_agent.errors import Blame, FailureKind
from bestarm_agent.report.html_page import render_report
from bestarm_agent.store.run_state import Session
from bestarm_agent.study import Archive
from tests.support.standings import changed, standing_with
from tests.support.studies import run_all, store_of, write_lines, write_study

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"&\x1b[31m"


class Tags(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data + " "


@pytest.fixture
def page() -> str:
    standing = standing_with(
        [HOSTILE, "plain"], [[1.0, 1.0, 0.5], [0.0, 0.5]], name=HOSTILE, broken={"plain": HOSTILE}
    )
    return render_report(
        standing,
        config={"name": HOSTILE, "models": ["hf/x"]},
        failures=[FailureLine(HOSTILE, 3, Failure(FailureKind.SERVER, Blame.PROVIDER, HOSTILE))],
        sessions=[Session("2026-01-01T00:00:00+00:00", "0.1.0")],
    )


def test_what_others_wrote_is_text(page: str) -> None:
    tags = Tags(page)
    assert {"script", "img", "a", "link", "iframe"}.isdisjoint(tags.tags)
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert tags.text.count("<script>alert(1)</script>") >= 4
    assert "\x1b" not in page


def test_nothing_outside_the_page_is_used(page: str) -> None:
    tags = Tags(page)
    policy = next(value for name, value in tags.attributes if "default-src" in (value or ""))
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert not [value for name, value in tags.attributes if name in ("src", "href")]
    assert "http" not in page.replace("http-equiv", "")


def test_the_page_tells_the_ranking_and_the_failures(page: str) -> None:
    text = " ".join(Tags(page.replace("<wbr>", "")).text.split())
    assert "<script>alert(1)</script><img src=x onerror=alert(1)>'\"&�[31m 83 % of 3" in text
    assert "2 candidates x 20 examples" in text
    assert "20 examples are too few to choose by" in text
    assert "server error the provider 3" in text
    assert "cut off" in text


def test_what_servers_ignored_is_told(page: str) -> None:
    standing = standing_with(["a"], [[]])
    remarks = [f"p/m1 ignores {HOSTILE}"]
    told = render_report(standing, config=None, failures=[], sessions=[], remarks=remarks)
    assert "What the replies showed p/m1 ignores <script>" in " ".join(Tags(told).text.split())
    assert "script" not in Tags(told).tags
    assert "What the replies showed" not in page


def test_a_run_without_scores_says_so() -> None:
    standing = standing_with(["a"], [[]])
    page = render_report(standing, config=None, failures=[], sessions=[])
    assert "No score yet" in page
    assert "None." in page


def test_the_data_of_the_page_cannot_end_the_element_that_holds_it(tmp_path: Path) -> None:
    """JSON escapes no "<": an id such as "</script>" would end the data, and begin markup."""
    hostile = "</script><script>alert(1)</script>&\u2028"
    study = write_study(tmp_path, n_candidates=2, n_examples=4)
    for name in ("questions.jsonl", "scores.jsonl"):
        file = tmp_path / name
        file.write_text(file.read_text().replace('"e0"', json.dumps(hostile)))
    run_all(study)
    report = asyncio.run(Archive(store_of(study)).write_report())
    [data] = re.findall(r'<script[^>]*id="data">(.*?)</script>', report.read_text(), re.DOTALL)
    assert not set("<>&\u2028\u2029") & set(data)
    assert hostile in json.loads(data)["matrix"]["examples"], "it was there to be escaped"


def test_the_race_begins_with_the_one_to_take_wherever_it_ranks(tmp_path: Path) -> None:
    changes = {"objective": {"at_least": 0.3}, "selector": {"name": "auto"}}
    usd = [0.0001 * (i + 1) for i in range(6)]
    path = write_study(tmp_path, n_examples=120, usd=usd, changes=changes)
    standing = run_all(path)
    assert standing.winner is not None
    assert standing.winner is not standing.rows[0]
    report = asyncio.run(Archive(store_of(path)).write_report())
    [data] = re.findall(r'<script[^>]*id="data">(.*?)</script>', report.read_text(), re.DOTALL)
    racers = json.loads(data)["race"]["rows"]
    assert racers[0] == standing.winner.index
    assert len(set(racers)) == len(racers)


def test_why_nobody_can_be_called_is_said_once() -> None:
    why = "HTTP 404: no such model"
    standing = standing_with(["a", "b"], [[], []], broken={"a": why, "b": why})
    page = render_report(changed(standing, end="failures"), config=None, failures=[], sessions=[])
    assert page.count(why) == 1
    standing = standing_with(["a", "b"], [[1.0], [1.0]], broken={"b": why})
    assert render_report(standing, config=None, failures=[], sessions=[]).count(why) == 1


def test_a_race_is_drawn_where_somebody_runs(tmp_path: Path) -> None:
    for scored in (True, False):
        path = write_study(tmp_path / str(scored), n_candidates=2, n_examples=5)
        if not scored:
            calls = [{"candidate": c, "example": "e0", "error": "internal"} for c in ("c0", "c1")]
            write_lines(path.parent / "scores.jsonl", calls)
        run_all(path)
        page = asyncio.run(Archive(store_of(path)).write_report()).read_text()
        assert ("How did the race go?" in page) == scored
        assert "Which answers were asked for?" in page
