"""Signs that the scorer, or a setting, is at fault: said with what would change it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bestarm_agent.domain.values import Example, Finish, Reply
from bestarm_agent.engine.scorer_signs import ScorerSigns, SignCount, fault_of
from bestarm_agent.errors import FailureKind
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.numbers import NumericJudge, NumericOptions
from bestarm_agent.judges.text import ExactJudge, ExactOptions
from tests.support.commands import invoke
from tests.support.fake_api import Call, FakeApi
from tests.support.fake_api.threads import in_thread
from tests.support.studies import ANSWERED, study_file

Capsys = pytest.CaptureFixture[str]
EXACT = ExactJudge("exact", ExactOptions())
NUMERIC = NumericJudge("numeric", NumericOptions())


def counted(
    text: Callable[[Example], str],
    n: int = 20,
    *,
    right: int = 0,
    failure: FailureKind | None = None,
    finish: Finish = Finish.STOP,
    judge: Judge = EXACT,
) -> SignCount:
    """Replies to one prompt, of which the first ``right`` scored 1."""
    signs, found = ScorerSigns(judge), Counter[str]()
    for i in range(n):
        row = Example(str(i), {}, str(i))
        score = 1.0 if i < right else (None if failure else 0.0)
        found[signs.of("p", row, Reply(text(row), finish), score, failure)] += 1
    return SignCount("prompt `p`", n, n - right, found)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (counted(lambda e: f"It is {e.reference}."), "the target stands in 20 of the 20 wrong"),
        (counted(lambda e: f"It is {e.reference}.", right=14), "the target stands in 6 of the 6"),
        (counted(lambda e: f"It is {e.reference}.", right=16), ""),  # four are too few
        (counted(lambda _: " "), "20 of 20 replies are empty"),
        (counted(lambda _: "no"), "all 20 replies are the same text"),
        (counted(lambda _: "no", right=9), "all 20 replies are the same text"),
        (counted(lambda e: f"x{e.id}", failure=FailureKind.REFUSED), "20 of 20 replies are ref"),
        (counted(lambda e: f"x{e.id}", failure=FailureKind.UNPARSABLE), "20 of 20 replies hold"),
        (counted(lambda e: f"x{e.id}", finish=Finish.LENGTH), "20 of 20 replies were cut off"),
        (counted(lambda e: f"x{e.id}"), "all 20 replies scored 0"),
        (counted(lambda e: f"x{e.id}", right=1), ""),
        (counted(lambda e: f"it is {e.id} or {e.id}0", judge=NUMERIC), "all 20 replies scored 0"),
    ],
)
def test_what_is_wrong_is_said(count: SignCount, said: str) -> None:
    found = fault_of([count], "exact")
    assert said in ("" if found is None else found.text)
    assert (found is not None) == bool(said)


def test_a_third_of_the_wrong_replies_makes_a_sign() -> None:
    """Counted for each prompt by itself: the replies to others are right."""
    fine = SignCount("prompt `a`", 300, 20, Counter())
    for held, is_said in ((6, False), (7, True)):
        one = SignCount("prompt `b`", 60, 20, Counter(contains=held))
        assert (fault_of([fine, one], "exact") is not None) is is_said


def test_the_leaders_replies_are_counted_once() -> None:
    prompt = counted(lambda e: f"x{e.id}")
    found = fault_of([prompt, replace(prompt, whose="candidate `c`", n=9, is_part=True)], "exact")
    assert found is not None
    assert found.text == "all 20 replies scored 0"


def answer(call: Call) -> str:
    number = call.prompt.split()[-1]
    return number if "alone" in call.prompt or call.model == "b" else f"The answer is {number}."


def test_no_winner_is_named_and_another_scorer_takes_the_replies_from_the_cache(
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
            selector={"stop_when_separated": False},
        )
        done = invoke(capsys, "select", path)
        said = "No winner yet: `exact` rejects right answers: the target stands in"
        assert said in done.out, done.out
        assert f"bestarm-agent select {path} --set scorer=contains" in done.out
        assert done.code == 3
        [page] = (tmp_path / "runs").glob("*.html")
        assert "No winner yet" in page.read_text(encoding="utf-8")
        shown = json.loads(invoke(capsys, "show", "--json", folder=tmp_path).out)
        assert shown["decision"]["problem"]["kind"] == "scorer"
        before = len(api.received)
        assert before == 3 * 40
        meant = invoke(capsys, "select", path, "--set", "scorer.trusted=true", "--json")
        assert json.loads(meant.out)["decision"]["take"] is not None
        again = invoke(capsys, "select", path, "--set", "scorer=numeric", "--json")
        assert len(api.received) == before, "every reply is taken from the cache"
        standing = json.loads(again.out)
        assert standing["decision"]["problem"] is None
        assert standing["spent"]["calls"] == 0
        assert {row["total"] for row in standing["rows"]} == {40.0}
