"""Signs that the scorer, or a setting, is at fault: said once, with what would change it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bestarm_agent.domain.values import Example, Finish, Reply
from bestarm_agent.engine.suspicion import Seen, Suspicion, finding
from bestarm_agent.errors import FailureKind
from bestarm_agent.judges.numbers import NumericJudge, NumericOptions
from bestarm_agent.judges.text import ExactJudge, ExactOptions
from tests.support.commands import invoke
from tests.support.fake_api import Call, FakeApi
from tests.support.fake_api.threads import in_thread
from tests.support.studies import ANSWERED, study_file

Capsys = pytest.CaptureFixture[str]
EXACT = ExactJudge("exact", ExactOptions())
NUMERIC = NumericJudge("numeric", NumericOptions())
ROWS = [Example(str(i), {}, str(i)) for i in range(5)]


def seen(
    text: Callable[[Example], str],
    score: float | None = 0.0,
    failure: FailureKind | None = None,
    finish: Finish = Finish.STOP,
) -> list[Seen]:
    return [Seen(row, Reply(text(row), finish), score, failure) for row in ROWS]


@pytest.mark.parametrize(
    ("replies", "said"),
    [
        (
            seen(lambda e: f"It is {e.reference}."),
            "the target stands in 5 of 5 replies that scored",
        ),
        (seen(lambda _: " "), "5 of 5 replies are empty: raise `max_tokens`"),
        (seen(lambda _: "no"), "all 5 replies are the same ('no'), for 5 different targets"),
        (seen(lambda _: "no", 1.0), "all 5 replies are the same"),
        (seen(lambda e: f"x{e.id}", None, FailureKind.REFUSED), "5 of 5 replies are refusals"),
        (seen(lambda e: f"x{e.id}", None, FailureKind.UNPARSABLE), "scorer `exact` finds nothing"),
        (seen(lambda e: f"x{e.id}", finish=Finish.LENGTH), "5 of 5 replies were cut off"),
        (seen(lambda e: f"x{e.id}"), ""),
        (seen(lambda e: f"It is {e.reference}.", 0.5), ""),
        ([*seen(lambda e: f"It is {e.id}.")[:2], *seen(lambda e: f"x{e.id}")[2:]], ""),
    ],
)
def test_what_is_wrong_is_said_with_the_way_out(replies: list[Seen], said: str) -> None:
    found = finding(replies, EXACT)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_prompt_is_looked_at_once() -> None:
    suspicion = Suspicion(NUMERIC)
    for i in range(100):
        row = Example(str(i), {}, str(i))
        suspicion.saw("words", Seen(row, Reply(f"so {i} it is"), 0.0))
        suspicion.saw("right", Seen(row, Reply(str(i)), 1.0))
        suspicion.saw("late", Seen(row, Reply(f"{-i - 1}"), float(i > 3)))
        suspicion.saw("wrong", Seen(row, Reply(f"{-i - 1}"), 0.0))
        assert [one.partition("`")[2].partition("`")[0] for one in suspicion.remarks] == (
            ["words"] * (i >= 4) + ["wrong"] * (i >= 19)
        )


def answer(call: Call) -> str:
    number = call.prompt.split()[-1]
    return number if "alone" in call.prompt or call.model == "b" else f"The answer is {number}."


def test_a_run_says_so_and_another_scorer_takes_the_replies_from_the_cache(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scorer is never changed by itself; scored again, every reply costs nothing."""
    monkeypatch.setenv("OPENAI_API_KEY", "fake-key-3f9a")
    with in_thread(FakeApi(answer=answer)) as api:
        path = study_file(
            tmp_path,
            {"rows": [{"q": f"{i}", "answer": i} for i in range(40)]},
            dataset=ANSWERED,
            models=["openai/a", "openai/b"],
            prompts=[{"plain": "Repeat {{ q }}"}, {"short": "The number alone: {{ q }}"}],
            scorer="exact",
            providers={"openai": {"base_url": api.openai_url, "key": "OPENAI_API_KEY"}},
            exclude=[{"model": "openai/b", "prompt": "plain"}],
        )
        done = invoke(capsys, "select", path)
        said = (
            "the target stands in 5 of 5 replies to prompt `plain` that scored 0: scorer `contains`"
        )
        assert done.err.count(said) >= 1, done.err
        [page] = (tmp_path / "runs").glob("*.html")
        assert "replies to prompt" in page.read_text(encoding="utf-8")
        before = len(api.received)
        assert before == 3 * 40
        again = invoke(capsys, "select", path, "--set", "scorer=numeric", "--json")
        assert len(api.received) == before, "every reply is taken from the cache"
        assert said not in again.err
        standing = json.loads(again.out)
        assert standing["spent"]["calls"] == 0
        assert {row["total"] for row in standing["rows"]} == {40.0}
