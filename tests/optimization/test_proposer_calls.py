"""A proposer's own calls: on the run's budget, in its log, and not lost by a kill."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bestarm_agent import Budget, Feedback, Options, Study, optimize
from bestarm_agent.domain.events import Asked, Attempted, Event, Proposed, Settled
from bestarm_agent.domain.values import Json, Reply, Request
from bestarm_agent.engine.call import BudgetEndedError
from bestarm_agent.engine.proposer import Proposer
from bestarm_agent.engine.record import RunRecord
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import FailureKind
from bestarm_agent.optimization.rounds import run_as_configured
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.python import PythonProvider
from tests.optimization.test_rounds import write_study
from tests.support.commands import invoke
from tests.support.studies import events_of, store_of

# Explains, to whoever asks, the operation that is named last.
ADVISER = """
def advise(task):
    assert "what is missing" in task.prompt
    return task.prompt.rpartition(" ")[2] + " is known."
"""
ASKING = """
async def propose(feedback):
    if not feedback.wrong:
        return None
    missing = max(pair.inputs["op"] for pair in feedback.wrong)
    said = await feedback.ask("what is missing: " + missing)
    return f"{feedback.leader.candidate.prompt.text} {said}"
"""


def asking_study(folder: Path, **changes: Json) -> Path:
    (folder / "adviser.py").write_text(ADVISER)
    (folder / "asking.py").write_text(ASKING)
    section: Json = {"proposer": "asking:propose", "rounds": 3, "model": "python/adviser:advise"}
    return write_study(folder, optimize=section, **changes)


def calls_of(path: Path) -> list[Attempted | Settled]:
    """The events of a proposer's attempts."""
    found = (one for one in events_of(path) if isinstance(one, Attempted | Settled))
    return [one for one in found if one.seq is None]


def kinds_of(path: Path) -> list[type[Event]]:
    return [type(one) for one in calls_of(path)]


def resumed(path: Path) -> tuple[Standing, Study]:
    async def scene() -> tuple[Standing, Study]:
        async with Study.resume("latest", options=Options(store=store_of(path))) as study:
            return await run_as_configured(study), study

    return asyncio.run(scene())


def test_the_command_charges_and_shows_what_the_proposer_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = asking_study(tmp_path, budget={"calls": 100})
    done = invoke(capsys, "optimize", path, "--quiet", "--json", folder=tmp_path)
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    calls = calls_of(path)
    lines = {line["what"]: line["spend"]["calls"] for line in shown["costs"]}
    n_asked = len(calls) // 2
    assert kinds_of(path) == [Attempted, Settled] * n_asked
    assert {call.cost.calls for call in calls} == {1}
    assert lines["proposing prompts"] == n_asked > 0
    assert sum(lines.values()) == shown["spent"]["calls"] <= 100
    assert shown["decision"]["take"].startswith("round")


def test_asking_ends_with_the_budget_and_the_rounds_with_it(tmp_path: Path) -> None:
    path = asking_study(tmp_path, budget={"calls": 12})

    async def scene() -> None:
        async with Study.open(path) as study:
            await study.run(Budget(calls=6))
            for attempt in range(6):
                await study.proposer.ask(
                    "python/adviser:advise", "what is missing: minus", attempt=attempt
                )
            assert study.standing().spent.calls == 12
            with pytest.raises(BudgetEndedError):
                await study.proposer.ask("python/adviser:advise", "what is missing: plus")
            await optimize(study, lambda feedback: feedback.ask("what is missing: plus"))
            assert study.standing().spent.calls == 12

    asyncio.run(scene())
    assert kinds_of(path) == [Attempted, Settled] * 6, "the last was refused before it was sent"


class Killed(BaseException):
    """Ends the process, as far as a study can tell."""


@pytest.mark.parametrize("when", ["after the answer", "after the proposal"])
def test_a_killed_run_goes_on_with_what_was_proposed(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = asking_study(tmp_path)
    ended = Proposer.end_rounds

    async def end(proposer: Proposer, rounds: int) -> None:
        await ended(proposer, rounds)
        raise Killed

    async def propose(feedback: Feedback) -> str:
        missing = max(str(pair.inputs["op"]) for pair in feedback.wrong)
        said = await feedback.ask(f"what is missing: {missing}")
        if when == "after the answer":
            raise Killed
        return f"{feedback.leader.candidate.prompt.text} {said}"

    async def scene() -> None:
        async with Study.open(path) as study:
            await optimize(study, propose, rounds=3)

    with monkeypatch.context() as patched:
        patched.setattr(Proposer, "end_rounds", end)
        with pytest.raises(Killed):
            asyncio.run(scene())
    bought = calls_of(path)[-1]
    standing, study = resumed(path)
    proposed = [event.rounds for event in events_of(path) if isinstance(event, Proposed)]
    labels = [row.candidate.label for row in standing.rows]

    assert proposed == sorted(set(proposed))
    assert proposed[-1] == study.proposer.rounds == 3
    assert labels.count("round1-1") == 1
    assert standing.best is not None
    assert standing.best.candidate.label.startswith("round")
    again = [call for call in calls_of(path) if call.key == bought.key][2:]
    assert again == [], "what was bought is neither bought nor charged again"


def test_a_call_that_a_kill_cut_off_counts_with_its_bound_until_its_answer_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = asking_study(tmp_path)

    async def scene() -> None:
        async with Study.open(path) as study:
            await study.run(Budget(answers=6))
            await study.proposer.ask("python/adviser:advise", "what is missing: minus")

    with monkeypatch.context() as patched:
        record = RunRecord.record

        def cut_off(self: RunRecord, *events: Event, is_known: bool = True) -> None:
            kept = [event for event in events if not isinstance(event, Settled)]
            record(self, *kept, is_known=is_known)

        patched.setattr(RunRecord, "record", cut_off)
        asyncio.run(scene())
    assert kinds_of(path) == [Attempted]

    async def again() -> list[int]:
        async with Study.resume("latest", options=Options(store=store_of(path))) as study:
            before = study.standing().spent.calls
            assert await study.proposer.ask("python/adviser:advise", "what is missing: minus")
            return [before, study.standing().spent.calls]

    assert asyncio.run(again()) == [7, 7]
    assert kinds_of(path) == [Attempted, Settled]


def test_attempts_that_timed_out_before_a_kill_stay_in_the_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sent = asking_study(tmp_path), 0
    answered = PythonProvider.generate

    async def generate(provider: PythonProvider, request: Request) -> Reply:
        nonlocal sent
        sent += "adviser" in request.model
        if "adviser" in request.model and sent <= 3:
            raise failure(FailureKind.TIMEOUT, "no answer") if sent < 3 else Killed
        return await answered(provider, request)

    monkeypatch.setattr(PythonProvider, "generate", generate)

    async def scene() -> None:
        async with Study.open(path) as study:
            await study.run(Budget(answers=6))
            await study.proposer.ask("python/adviser:advise", "what is missing: minus")

    with pytest.raises(Killed):
        asyncio.run(scene())

    async def again() -> list[int]:
        async with Study.resume("latest", options=Options(store=store_of(path))) as study:
            before = study.standing().spent.calls
            assert await study.proposer.ask("python/adviser:advise", "what is missing: minus")
            return [before, study.standing().spent.calls]

    assert asyncio.run(again()) == [6 + 3, 6 + 4], "two time-outs, and the one that was cut off"
    assert sent == 4


def test_a_model_that_cannot_be_asked_is_refused_before_any_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = asking_study(tmp_path)
    done = invoke(capsys, "optimize", path, "--proposer-model", "python/no:one", folder=tmp_path)
    assert done.code == 2
    assert "program no:one: there is no Python module `no`" in done.err
    assert not any(isinstance(event, Asked) for event in events_of(path))
