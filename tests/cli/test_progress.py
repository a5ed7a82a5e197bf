"""What the terminal shows."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO

import pytest
from rich.console import Console

from bestarm_agent.cli import progress
from bestarm_agent.cli.output import Column, numbers, print_line, table_lines
from bestarm_agent.cli.progress import (
    CandidateTable,
    LiveTable,
    PlainLines,
    busy,
    screen_of,
    waits_line,
)
from bestarm_agent.cli.result_output import print_result, standing_json
from bestarm_agent.cli.run import print_notices
from bestarm_agent.config.goal_specs import ObjectiveSpec
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.values import Failure
from bestarm_agent.engine.limits.waits import Wait, WaitBoard, provider_wait
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.from_log import FailureLine
from bestarm_agent.engine.results.standing import (
    ObjectiveResult,
    Standing,
    estimate,
    hidden_line,
    interval,
    seen,
)
from bestarm_agent.errors import Blame, FailureKind
from bestarm_agent.report.words import (
    budget_line,
    most_used,
    state,
    time_left,
    used_line,
)
from tests.support.runs import Actor, Answer, scored
from tests.support.standings import changed, standing_with


def printed(shown: object, width: int = 110, *, terminal: bool = True) -> str:
    """Return what a console of that width shows."""
    file = StringIO()
    Console(file=file, width=width, force_terminal=terminal, color_system=None).print(shown)
    return file.getvalue()


def drawn(width: int = 110, max_rows: int = 10) -> str:
    standing = standing_with(
        ["model-a/plain/t=0", "model-b/chat/t=1 \x1b[2J"],
        [[1.0] * 6, [0.0, 1.0, 0.0]],
        budget=Budget(answers=20, usd_nanos=2_000_000_000),
        spent=Spend(answers=9, calls=11, tokens=1234, usd_nanos=250_000_000),
        waits=(Wait("openai", "backing off after: rate-limited", 2, 12.4),),
    )
    return printed(screen_of(changed(standing, told=6), max_rows), width)


def test_a_model_that_is_being_loaded_is_a_reason_to_wait() -> None:
    board = WaitBoard()
    loader = Loader()
    board.watch(partial(provider_wait, loader))
    board.watch(partial(provider_wait, Actor("remote", lambda _request, _before: scored(1.0))))
    assert board.summary(now=0.0) == ()
    loader.models = ["models/large", "models/larger"]
    standing = replace(standing_with(["a"], [[1.0]]), waits=board.summary(now=0.0))
    assert waits_line(standing.waits) == "hf is loading models/large and 1 more"


@pytest.mark.parametrize(
    ("terminal", "wanted", "said"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_a_terminal_is_told_what_takes_a_while(terminal: bool, wanted: bool, said: bool) -> None:
    file = StringIO()
    with busy(Console(file=file, force_terminal=terminal), "reading the study", wanted=wanted):
        pass
    assert ("reading the study" in file.getvalue()) == said


def test_what_waits_for_the_same_is_told_together() -> None:
    reason = "at its limit of 200 requests a minute"
    waits = (
        Wait("openai/a", reason, 0, 0.1),
        Wait("judge j", "queue full", 4, None),
        Wait("openai/b", reason, 3, 1.4),
    )
    standing = replace(standing_with(["a"], [[1.0]]), waits=waits)
    assert waits_line(standing.waits) == f"3 x openai/a and 1 more {reason}; 4 x judge j queue full"


@dataclass
class Loader(Actor):
    """A provider that loads models."""

    name: str = "hf"
    answer: Answer = lambda _request, _before: scored(1.0)
    models: list[str] = field(default_factory=list)

    @property
    def loading(self) -> list[str]:
        return self.models


def test_the_screen_shows_candidates_totals_and_why_it_waits() -> None:
    screen = drawn()
    assert "model-a/plain/t=0" in screen
    assert "6 of 6" in screen
    assert "● leading" in screen
    assert "○ undecided" in screen
    assert "9 of 40 answers (22 %), at most 20, 11 calls, 1,234 tokens, $0.25 of $2.00" in screen
    assert "in flight: 3\nwaiting: 2 x openai backing off after: rate-limited, 12 s" in screen
    assert "\x1b[2J" not in screen, "labels cannot steer the terminal"
    assert "... and 1 more" in drawn(max_rows=1)
    assert max(map(len, drawn(width=80).splitlines())) <= 80
    spent = Spend(answers=1, calls=1, tokens=1, usd_nanos=0)
    assert "1 call, 1 token," in budget_line(standing_with(["a"], [[1.0]], spent=spent))


def test_the_screen_says_why_candidates_cannot_be_called_and_what_failed_last() -> None:
    standing = replace(wide_standing(), latest_failure="HTTP 503: \x1b[2Jbusy " + 90 * "x")
    rows = (replace(standing.rows[0], void=2), *standing.rows[1:])
    *_, broken, failed = printed(screen_of(replace(standing, rows=rows), 12), 80).splitlines()
    assert broken.startswith(f"Cannot be called: {LABELS[3]}: HTTP")
    assert failed.startswith("failures: 2 without an answer; the latest: HTTP 503:")
    assert failed.rstrip().endswith("…")
    assert "\x1b[2J" not in failed


LABELS = [f"openai/gpt-6-luna-2026/a-long-prompt-name/t={i}" for i in range(300)]


def wide_standing(scores: list[list[float]] | None = None) -> Standing:
    """300 candidates of which a few are known."""
    known = scores or [[1.0] * 13 + [0.0], [1.0] * 5 + [0.0] * 5, [0.0] * 60]
    return standing_with(
        LABELS,
        known + [[]] * (300 - len(known)),
        n_examples=2000,
        broken={LABELS[3]: "HTTP 404"},
        spent=Spend(answers=84, calls=90, tokens=123_456, usd_nanos=250_000_000),
    )


def test_on_80_columns_label_counts_estimate_interval_and_state_can_be_read() -> None:
    lines = printed(screen_of(wide_standing(), 14), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    title = next(line for line in lines if line.startswith("candidate"))
    assert re.split(r"  +", title) == ["candidate", "right", "estimate", "95 % interval", "state"]
    best = next(line for line in lines if "/t=0 " in line)
    label, *cells = best.split()
    assert label.startswith("openai/gpt-6")
    assert "…" in label
    assert cells[:3] == ["13", "of", "14"]
    assert 50 < float(cells[3]) < 100
    assert interval(wide_standing().rows[0]) in best
    assert best.rstrip().endswith("● leading")


def test_on_60_columns_the_state_is_whole_and_no_estimate_stands_without_its_interval() -> None:
    standing = wide_standing()
    for width in (80, 60, 50):
        lines = printed(CandidateTable(standing, 4), width).splitlines()
        assert max(map(len, lines)) <= width
        head = " ".join(lines[0].split())
        assert ("estimate 95 % interval" in head) == (width == 80)
        assert head.startswith("candidate right")
        states = [state(row) for row in standing.rows[:4]]
        assert [text in line for text, line in zip(states, lines[1:], strict=False)] == [True] * 4


def test_the_screen_counts_in_flight_what_its_rows_do() -> None:
    standing = wide_standing()
    rows = tuple(replace(row, pending=2) for row in standing.rows)
    told = standing.asked - sum(row.pending for row in rows)
    shown = printed(screen_of(changed(standing, rows=rows, told=told, in_flight=0), 10), 120)
    assert f"in flight: {2 * len(rows)}" in shown


def test_states_are_words_with_marks_and_one_vocabulary() -> None:
    standing = wide_standing([[1.0] * 900 + [0.0] * 50, [1.0] * 850 + [0.0] * 100, [0.0] * 900])
    states = {row.candidate.label: state(row) for row in standing.rows}
    assert states[LABELS[0]] == "● leading"
    assert states[LABELS[2]] == "– worse"
    assert states[LABELS[3]] == "× cannot be called"
    assert states[LABELS[4]] == "· not measured"
    named = {row["status"] for row in standing_json(standing)["rows"]}
    assert named == {"leading", "worse", "not measured"}


def test_who_leads_is_taken_once_the_run_has_ended() -> None:
    standing = standing_with(["a", "b"], [[1.0] * 20, [0.0] * 20])  # all answers
    assert state(standing.rows[0]) == "● leading"
    assert state(changed(standing, end="separated").rows[0]) == "● take"


def test_rows_that_are_not_shown_are_counted_by_state() -> None:
    assert hidden_line(wide_standing().rows[1:]) == (
        "... and 299 more: 1 undecided, 1 worse, 297 not measured"
    )


def test_right_answers_are_counted_and_graded_scores_averaged() -> None:
    right = standing_with(["a", "b"], [[1.0] * 13 + [0.0], []])
    assert [seen(row, graded=right.graded) for row in right.rows] == ["13 of 14", "-"]
    graded = standing_with(["a"], [[0.5, 1.0, 0.25, 1.0]])
    assert graded.graded
    assert seen(graded.rows[0], graded=True) == "69 % of 4"
    row = standing_json(right)["rows"][0]
    assert (row["total"], row["n"]) == (13.0, 14)
    assert row["estimate"] == right.rows[0].estimate


def test_an_estimate_is_in_percent() -> None:
    row = standing_with(["a"], [[1.0, 0.0]]).rows[0]
    rough = replace(row, estimate=0.8765, lower=0.61, upper=0.991)
    assert (estimate(rough), interval(rough)) == ("88 %", "61 to 99 %")


def test_the_time_left_is_guessed_once_something_was_seen() -> None:
    budget, spent = Budget(answers=100), Spend(answers=25)
    standing = standing_with(["a"], [[1.0]], n_examples=1000, budget=budget, spent=spent)
    assert time_left(standing) == "at most about 3:45 left"
    assert time_left(replace(standing, spent=Spend(answers=1))) == ""
    assert time_left(replace(standing, end="budget")) == ""


def test_the_bar_follows_the_cap_that_is_nearest() -> None:
    standing = standing_with(
        ["a"], [[1.0]], budget=Budget(answers=100, calls=4), spent=Spend(answers=1, calls=3)
    )
    assert most_used(standing) == (0.75, "the calls")


def test_what_is_used_is_named_on_the_screen_and_in_plain_lines() -> None:
    budget = Budget(answers=100, usd_nanos=1_000_000_000)
    spent = Spend(answers=3, usd_nanos=620_000_000)
    standing = standing_with(["a"], [[1.0] * 3], budget=budget, spent=spent)
    assert used_line(standing) == "62 % of the dollars"
    assert "62 % of the dollars" in printed(screen_of(standing, 5))
    file = StringIO()
    lines = PlainLines(Console(file=file, width=200))
    for _ in range(2):  # they come every few seconds
        lines.show(standing)
    assert file.getvalue().count("\n") == 1
    assert "62 % of the dollars" in file.getvalue()


def test_the_live_table_draws_and_cleans_up() -> None:
    file = StringIO()
    with LiveTable(Console(file=file, force_terminal=True, width=100, height=30)) as live:
        live.show(standing_with(["a"], [[1.0]]))
    assert "● leading" in file.getvalue()


@pytest.mark.parametrize("end", list(End))
def test_why_a_run_ended_is_explained_and_how_it_goes_on(
    end: End, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = [[1.0] * 9 + [0.0], [1.0] * 7 + [0.0] * 3]
    standing = standing_with(["a", "b"], scores, n_examples=2000)
    standing = changed(standing, end=end, budget=Budget(answers=20))
    print_result(standing, as_json=False)
    out = capsys.readouterr().out
    assert "so far" not in out
    assert ("finished: " in out) or ("stopped" in out)
    goes_on = end in (End.INTERRUPTED, End.BUDGET, End.FAILURES, End.ERROR)
    assert ("`bestarm-agent resume" in out) == goes_on


def test_on_a_terminal_lines_break_between_words_and_paths_stay_whole() -> None:
    path = "runs/" + "x" * 60
    for terminal in (True, False):
        file = StringIO()
        console = Console(file=file, width=40, force_terminal=terminal, color_system=None)
        text = f"Report:    at {path} as one page\n  [bold]and {'word ' * 9}"
        print_line(console, text, indent=11)
        lines = file.getvalue().splitlines()
        if not terminal:
            assert len(lines) == 2
            continue
        assert lines[:3] == ["Report:    at", f"{' ' * 11}{path}", f"{' ' * 11}as one page"]
        assert lines[3].startswith("  [bold]and word")
        assert all(len(line) <= 40 for line in lines if path not in line)


def test_candidates_without_a_score_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(standing_with(["a", "b", "c"], [[1.0], [], [0.0]]), as_json=False)
    assert "Not measured" not in capsys.readouterr().out, "it may be tried yet"
    standing = changed(standing_with(["a", "b", "c"], [[1.0], [], [0.0]]), end="budget")
    print_result(standing, as_json=False)
    assert "Not measured: b: not tried: the budget is too small." in capsys.readouterr().out


def test_a_reason_that_several_cannot_be_called_for_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = {"b": "HTTP 404"} | dict.fromkeys("acde", "HTTP 401")
    print_result(
        standing_with(list("abcde"), [[0.9], [0.5], [0.4], [0.3], [0.1]], broken=broken),
        as_json=False,
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if "Cannot be called" in line]
    many = "Cannot be called: a, c, d and 1 more: HTTP 401"
    assert lines == [many, "Cannot be called: b: HTTP 404"]


def test_failures_are_counted_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    failures = [
        FailureLine("a", 5, Failure(FailureKind.SERVER, Blame.PROVIDER, "HTTP 500")),
        FailureLine("b", 4, Failure(FailureKind.REFUSED, Blame.CANDIDATE, "I cannot")),
        FailureLine("c", 2, Failure(FailureKind.SERVER, Blame.PROVIDER, "HTTP 500")),
    ]
    print_result(standing_with(["a"], [[1.0]]), as_json=False, failures=failures)
    counts = "7 x server error, 4 x refused of 3 candidates; mostly: HTTP 500"
    assert f"Failed: {counts}\n" in capsys.readouterr().out


@pytest.mark.parametrize(("estimate", "is_said"), [(0.53, True), (0.9, False)])
def test_an_estimate_far_from_what_was_right_is_explained(estimate: float, is_said: bool) -> None:
    standing = standing_with(["a"], [[1.0] * 9 + [0.0]])
    row = replace(standing.rows[0], estimate=estimate)
    screen = printed(screen_of(replace(standing, rows=(row,)), 5), 80, terminal=False)
    assert ("estimates are corrected for" in screen) is is_said


def test_what_an_objective_chose_is_shown_and_not_called_worse() -> None:
    rivals = standing_with(list("abcdefgh"), [[1.0 - i / 10] for i in range(8)])
    chosen = replace(rivals.rows[7], is_ruled_out=True)
    spec = ObjectiveSpec(name="cheapest-within-epsilon", epsilon=0.2)
    objective = ObjectiveResult(spec, chosen.index, established=True, margin=0.0, confidence=0.95)
    rows = (*rivals.rows[:7], chosen)
    standing = changed(rivals, rows=rows, objective=objective, end="separated")
    *_, last, others = printed(CandidateTable(standing, 3), 100, terminal=False).splitlines()
    assert last.split()[0] == "h"
    assert "● take" in last
    assert others == "... and 5 more: 1 good enough, 4 undecided"  # without the one to take
    shown, said = standing.parted(3)
    assert ([row.candidate.label for row in shown], said) == (["a", "b", "h"], others)
    *_, text, _, _ = str(standing).splitlines()
    assert text == "... and 3 more, all undecided"


def test_the_first_rows_are_shown_unless_all_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    standing = standing_with(list("abcdefgh"), [[1.0 - i / 10] for i in range(8)])
    print_result(standing, as_json=False)
    assert "... and 3 more, all undecided" in capsys.readouterr().out
    print_result(standing, as_json=False, everything=True)
    assert "more: " not in capsys.readouterr().out


def test_a_notice_is_one_line_where_no_terminal_sets_a_width() -> None:
    file = StringIO()
    print_notices(Console(file=file, width=40), ["a word " * 20])
    assert file.getvalue().count("\n") == 1


def test_a_number_stays_beside_its_unit() -> None:
    file = StringIO()
    print_line(Console(file=file, width=18, force_terminal=True), "right: between 21 % and 97 %")
    assert file.getvalue().splitlines() == ["right: between", "21 % and 97 %"]


def test_on_a_narrow_terminal_the_bar_gives_way_to_what_is_used_and_left() -> None:
    standing = standing_with(["a", "b"], [[1.0], [0.0]], budget=Budget(answers=20))
    spent = Spend(answers=9, calls=9)
    _, used, *_ = printed(screen_of(replace(standing, spent=spent), 3), 60).splitlines()
    assert used.endswith("45 % of the answers allowed  at most about 1:31 left")


def test_names_between_colons_are_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    file = StringIO()
    print_line(Console(file=file), "fn:boom: failed")
    assert file.getvalue() == "fn:boom: failed\n"
    print_result(standing_with(["fn:boom:", ":key:"], [[1.0, 1.0], [0.0]]), as_json=False)
    assert {"fn:boom:", ":key:"} <= set(capsys.readouterr().out.split())


class Heard(StringIO):
    """A file that tells when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.said = threading.Event()

    def write(self, text: str) -> int:
        self.said.set()
        return super().write(text)


def test_what_takes_long_is_said_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.01)
    file = Heard()
    with busy(Console(file=file), "reading the study"):
        assert file.said.wait(30.0)
    assert "reading the study" in file.getvalue()


def test_a_table_leaves_out_columns_before_it_is_wider_than_the_terminal() -> None:
    columns = [Column("candidate", "middle"), Column("state"), *numbers("n", "cost", leaves=True)]
    rows = [["vendor/model-with-a-long-name", "undecided", "1,234", "$0.0123"]]
    for width, titles in ((80, "state n cost"), (50, "state n"), (40, "state"), (30, "state")):
        head, lines = table_lines(columns, rows, width)
        assert head.split()[1:] == titles.split()
        assert max(map(len, lines)) <= width
