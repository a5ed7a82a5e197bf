"""Rounds of runs and proposals: what a proposer sees, what joins, what the budget allows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from bestarm_agent import ConfigError, Feedback, Options, PromptTemplate, Study, optimize
from bestarm_agent.domain.events import Asked, CandidatesAdded
from bestarm_agent.domain.values import Candidate, Json
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.optimization.rounds import Proposals, Proposer, _candidate
from bestarm_agent.study import Archive
from tests.support.commands import invoke
from tests.support.studies import events_of, store_of

# Stands for a model that knows an operation only if the prompt explains it.
MODEL = """
def answer(task):
    a, op, b = task.inputs["a"], task.inputs["op"], task.inputs["b"]
    known = {"plus": a + b, "minus": a - b, "times": a * b}
    return str(known[op]) if f"{op} is" in task.prompt else "no idea"
"""

PROPOSER = """
def propose(feedback):
    missing = feedback.wrong[0].inputs["op"] if feedback.wrong else None
    return [f"{feedback.leader.candidate.prompt.text} {missing} is known."] if missing else None
"""

OPS: dict[str, Callable[[int, int], int]] = {
    "plus": int.__add__,
    "minus": int.__sub__,
    "times": int.__mul__,
}
IDS = [f"{op}{a}" for a in range(10, 20) for op in OPS]


def write_study(folder: Path, **changes: Json) -> Path:
    rows = [
        {"id": f"{op}{a}", "a": a, "op": op, "b": 7, "target": str(OPS[op](a, 7))}
        for a in range(10, 20)
        for op in OPS
    ]
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "solver.py").write_text(MODEL)
    (folder / "proposer.py").write_text(PROPOSER)
    study = {
        "models": ["python/solver:answer"],
        "prompts": [
            {"bare": "{{ a }} {{ op }} {{ b }}? plus is known."},
            {"empty": "{{ a }} {{ op }} {{ b }}?"},
        ],
        "dataset": {"path": "sums.jsonl", "id": "id", "target": "target"},
        "scorer": "exact",
        "limits": {"in_flight": 4},
        "budget": {"answers": 100},
        **changes,
    }
    path = folder / "study.json"
    path.write_text(json.dumps(study))
    return path


def explain(feedback: Feedback) -> Proposals:
    """Explain the operation of the latest wrong answer."""
    if not feedback.wrong:
        return None
    return f"{feedback.leader.candidate.prompt.text} {feedback.wrong[-1].inputs['op']} is known."


def optimized(path: Path, proposer: Proposer, rounds: int = 4) -> tuple[Standing, Study]:
    async def scene() -> tuple[Standing, Study]:
        async with Study.open(path) as study:
            return await optimize(study, proposer, rounds=rounds), study

    return asyncio.run(scene())


def test_a_prompt_is_improved_until_nothing_is_wrong(tmp_path: Path) -> None:
    seen: list[Feedback] = []

    async def propose(feedback: Feedback) -> Proposals:
        seen.append(feedback)
        return explain(feedback)

    standing, _ = optimized(write_study(tmp_path), propose)
    assert standing.best is not None
    assert standing.best.total == standing.best.n > 0
    text = standing.best.candidate.prompt.text or ""
    assert all(f"{op} is known" in text for op in ("plus", "minus", "times"))
    assert standing.spent.answers <= 100
    assert [one.round for one in seen] == list(range(1, len(seen) + 1))
    first = seen[0]
    assert first.leader.candidate.prompt.name == "bare"
    assert {pair.reply for pair in first.wrong} == {"no idea"}
    assert {pair.inputs["op"] for pair in first.wrong} <= {"minus", "times"}
    assert all(pair.target and pair.score == 0.0 for pair in first.wrong)
    assert [row.candidate.label for row in seen[1].standing.rows].count("round1-1") == 1


def test_a_prompt_that_cannot_be_the_best_any_more_is_ruled_out(tmp_path: Path) -> None:
    """The first one led, and is asked no more; what joined has more right than it can reach."""

    def propose(feedback: Feedback) -> Proposals:
        text = " ".join(f"{op} is known" for op in OPS)
        return [f"{{{{ a }}}} {{{{ op }}}} {{{{ b }}}}? {text}{'.' * n}" for n in (1, 2)]

    path = write_study(
        tmp_path,
        prompts=[{"empty": "{{ a }} {{ op }} {{ b }}?"}],
        selector={"stop_when_separated": False},
        scorer={"name": "exact", "trusted": True},
        budget={"answers": 45},
    )
    standing, _ = optimized(path, propose, rounds=1)
    rows = {row.candidate.label.split("/")[0]: row for row in standing.rows}
    assert standing.end == "budget"
    assert standing.winner is not None
    first = rows.pop("solver:answer")
    least = standing.winner.total / standing.n_examples
    assert first.upper < least, "the world is such a one"
    assert standing.decision.worse == (first.candidate.label,)
    assert len(standing.decision.undecided) == 1, "the two that joined are as good"


def test_rounds_share_the_budget_and_the_last_proposals_have_their_part(tmp_path: Path) -> None:
    spent: list[int] = []

    def propose(feedback: Feedback) -> Proposals:
        spent.append(feedback.standing.spent.answers)
        return [PromptTemplate(f"p{feedback.round}", "{{ a }} {{ op }}" + "!" * feedback.round)]

    path = write_study(tmp_path, selector={"name": "uniform", "stop_when_separated": False})
    standing, _ = optimized(path, propose, rounds=3)
    assert spent == [25, 50, 75]
    assert (standing.spent.answers, standing.end) == (100, "budget")
    rows = {row.candidate.label: row for row in standing.rows}
    assert rows["p3"].n > 0
    assert rows["p3"].candidate.model == "solver:answer"


def test_the_winner_is_confirmed_once_on_examples_that_no_proposer_saw(tmp_path: Path) -> None:
    seen: set[str] = set()

    def propose(feedback: Feedback) -> Proposals:
        seen.update(pair.example for pair in feedback.wrong)
        return explain(feedback)

    path = write_study(tmp_path, confirm={"share": "30%"})
    standing, _ = optimized(path, propose)
    late = asyncio.run(Archive(store_of(path)).state(f"{standing.run_id}.confirm"))
    found = standing.confirmation
    assert found is not None
    assert found.n + found.void == found.held_back
    assert found.label.startswith("round")
    assert len(late.example_ids) == 9
    assert late.n_told == 9
    assert standing.spent.answers + 9 <= 100

    assert seen
    assert not seen & set(late.example_ids)


def test_what_cannot_join_is_left_out_and_the_proposer_is_told(tmp_path: Path) -> None:
    told: list[tuple[object, str]] = []

    def propose(feedback: Feedback) -> Proposals:
        told.extend(feedback.refused)
        wrong = {"name": "x", "txet": "{{ a }}"}
        return [
            "{{ nothing }}",
            "{{ a }",
            "{{ a }} {{ op }} {{ b }}?",
            {"model": "python/no:one"},
            wrong,
        ]

    with pytest.raises(
        ConfigError, match=r"no proposal could join, .*unknown.*; the run 2.* is kept"
    ):
        optimized(write_study(tmp_path), propose, rounds=2)
    assert [proposal for proposal, _ in told[:2]] == ["{{ nothing }}", "{{ a }"]
    assert "nothing" in told[0][1]
    assert len(told) == 5


@pytest.mark.parametrize(
    ("proposal", "label"),
    [
        ({"name": "mine", "text": "{{ a }} {{ op }} {{ b }}! minus is known."}, "mine"),
        ({"text": "{{ a }} {{ op }} {{ b }}! minus is known."}, "round1-1"),
        ({"messages": [{"role": "user", "content": "{{ a }} {{ op }} {{ b }}!"}]}, "round1-1"),
    ],
)
def test_a_prompt_as_a_study_holds_it_joins(
    tmp_path: Path, proposal: dict[str, Json], label: str
) -> None:
    standing, _ = optimized(write_study(tmp_path), lambda _: [proposal], rounds=1)
    assert label in {row.candidate.label for row in standing.rows}


def test_a_proposed_prompt_has_the_worked_examples_of_the_leader(tmp_path: Path) -> None:
    row = {"a": 1, "op": "plus", "b": 1, "target": "2"}
    (tmp_path / "train.jsonl").write_text(json.dumps(row))
    path = write_study(tmp_path, shots={"from": "train.jsonl", "k": 1})
    standing, _ = optimized(path, explain, rounds=1)
    assert "round1-1" in {row.candidate.label for row in standing.rows}
    for one in standing.rows:
        assert [shot.target for shot in one.candidate.prompt.shots] == ["2"]


def test_a_proposed_prompt_has_the_tools_of_the_leader_unless_it_has_its_own() -> None:
    prompt = PromptTemplate("p", "{{ a }}", tools=({"name": "f"},), tool_choice="auto")
    leader = Candidate("openai", "m", prompt)
    for proposal, tools in (
        ("Now {{ a }}", prompt.tools),
        (PromptTemplate("q", "{{ a }}", tools=("{{ t }}",)), ("{{ t }}",)),
    ):
        made = _candidate(proposal, "new", leader)
        assert isinstance(made, Candidate)
        assert made.prompt.tools == tools


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (7, "propose returned 7; a proposal is a text"),
        (
            ValueError("no"),
            "proposer .*propose raised ValueError: no; the run is kept, and `[a-z-]+ resume 2",
        ),
    ],
)
def test_a_proposer_that_fails_ends_the_run_which_is_kept(
    tmp_path: Path, returned: object, said: str
) -> None:
    def propose(_feedback: Feedback) -> object:
        if isinstance(returned, Exception):
            raise returned
        return returned

    path = write_study(tmp_path)
    with pytest.raises(ConfigError, match=said):
        optimized(path, cast("Proposer", propose))
    assert any(isinstance(event, Asked) for event in events_of(path))


def test_a_resumed_run_spends_the_whole_budget_and_confirms(tmp_path: Path) -> None:
    path = write_study(tmp_path, confirm={"share": "30%"}, budget={"answers": 60})

    def propose(feedback: Feedback) -> Proposals:
        if feedback.round == 2:
            raise OSError("no connection")
        return explain(feedback)

    with pytest.raises(ConfigError, match="no connection"):
        optimized(path, propose)
    cut = sum(isinstance(event, Asked) for event in events_of(path))

    async def scene() -> Standing:
        options = Options(store=store_of(path))
        async with Study.resume("latest", options=options) as study:
            return await study.run()

    standing = asyncio.run(scene())
    assert cut < 40
    assert standing.spent.answers > cut
    assert "round1-1" in [row.candidate.label for row in standing.rows]
    assert standing.confirmation is not None
    assert standing.confirmation.n == standing.confirmation.held_back


def test_a_stop_ends_the_rounds(tmp_path: Path) -> None:
    asked: list[int] = []

    async def scene() -> Standing:
        async with Study.open(write_study(tmp_path)) as study:

            def propose(feedback: Feedback) -> Proposals:
                asked.append(feedback.round)
                study.stop()
                return explain(feedback)

            return await optimize(study, propose)

    assert asyncio.run(scene()).end == "interrupted"
    assert asked == [1]


@pytest.mark.parametrize("budget", [{"answers": 100}, {}])
def test_rounds_start_from_a_single_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], budget: dict[str, Json]
) -> None:
    prompts: Json = [{"bare": "{{ a }} {{ op }} {{ b }}? plus is known."}]
    path = write_study(tmp_path, prompts=prompts, budget=budget)
    flags = ("--proposer", "proposer:propose", "--rounds", "2", "--quiet", "--json")
    done = invoke(capsys, "optimize", path, *flags, folder=tmp_path)
    assert done.code == 0, done.err
    # it knows one operation of three; the proposals explain the two others
    assert json.loads(done.out)["decision"]["take"] == "round2-1"
    again = invoke(capsys, "optimize", path, *flags, folder=tmp_path)  # in the order of the first
    assert again.json["decision"]["take"] == "round2-1", again.err
    assert again.json["spent"]["calls"] < done.json["spent"]["calls"]
    asks = [event for event in events_of(path) if isinstance(event, Asked)]
    assert len(asks) <= 100


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"certify": {"risk": 0.2, "judge": "exact", "order": "given"}, "budget": {}},
            "look for the best candidate",
        ),
    ],
)
def test_a_study_that_rounds_do_not_suit_is_refused(
    tmp_path: Path, changes: dict[str, Json], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        optimized(write_study(tmp_path, **changes), explain)


def test_rounds_are_at_least_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        optimized(write_study(tmp_path), explain, rounds=0)


def test_the_command_optimizes_and_resume_goes_on_with_what_joined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path)
    flags = ("--proposer", "proposer:propose", "--rounds", "3", "--quiet", "--json")
    done = invoke(capsys, "optimize", path, *flags, folder=tmp_path)
    assert done.code == 0, done.err
    assert json.loads(done.out)["decision"]["take"].startswith("round")
    joined = [event for event in events_of(path) if isinstance(event, CandidatesAdded)]
    assert len(joined) > 1
    again = invoke(capsys, "resume", "--budget-answers", "20", "--quiet", "--json", folder=tmp_path)
    assert json.loads(again.out)["decision"]["take"].startswith("round")
    after = [event for event in events_of(path) if isinstance(event, CandidatesAdded)]
    assert after == joined


CHAT = """
from bestarm_agent import Message, PromptTemplate

def propose(feedback):
    text = "{{ a }} {{ op }} {{ b }}? plus is, minus is, times is known."
    return PromptTemplate("chat", messages=(Message("user", text),)) if feedback.wrong else None
"""


def test_the_winning_prompt_is_written_and_a_study_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path)
    (tmp_path / "chat.py").write_text(CHAT)
    flags = ("--proposer", "chat:propose", "--rounds", "1", "--quiet")
    done = invoke(capsys, "optimize", path, *flags, "--out", "best.yaml", folder=tmp_path)
    assert done.code == 0, done.err
    assert "Take chat: " in done.out
    path = write_study(tmp_path, prompts=["file://best.yaml"])
    [prompt] = asyncio.run(prompts_of(path))
    assert prompt.messages[0].text.endswith("times is known.")
    nowhere = tmp_path / "none" / "best.yaml"
    done = invoke(capsys, "optimize", write_study(tmp_path), *flags, "--out", nowhere)
    assert done.code == 2
    assert "best.yaml cannot be written: there is no folder" in done.err


async def prompts_of(path: Path) -> list[PromptTemplate]:
    async with Study.open(path) as study:
        return list(study.parts.prompts.values())


def test_a_proposer_that_is_not_there_is_refused_before_a_run_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_study(tmp_path)
    done = invoke(capsys, "optimize", path, "--proposer", "proposer:none", folder=tmp_path)
    assert done.code == 2
    assert "program proposer:none: there is no `none`" in done.err
    (tmp_path / "proposer.py").write_text("def propose(leader, wrong):\n    return None\n")
    done = invoke(capsys, "optimize", path, "--proposer", "proposer:propose", folder=tmp_path)
    assert (done.code, "is to take one argument" in done.told) == (2, True)
    assert not (tmp_path / "runs").exists()
