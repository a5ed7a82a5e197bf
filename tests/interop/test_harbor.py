"""Races of real trials of Harbor, with its `oracle` and `nop` and agents of known worth.

They run in a folder of this machine instead of a container; one test runs in Docker.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bestarm_agent.domain.spend import Budget
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import ConfigError
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.study import Archive

pytest.importorskip("harbor.trial.trial", reason="needs the extra `harbor`, and Python 3.12")

from bestarm_agent.interop.harbor import HarborRace
from tests.docs.pages import blocks, execute, page
from tests.support.harbor_world import AGENT, ENVIRONMENT, Folder, write_tasks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),  # LiteLLM alone takes half a minute to import on a busy machine
    pytest.mark.filterwarnings("ignore:Task.checksum:DeprecationWarning"),  # Harbor's own
    pytest.mark.filterwarnings("ignore:.*reports no cost:RuntimeWarning"),
]
N = 40


@pytest.fixture(autouse=True)
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tasks in a folder of their own, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    Folder.started = 0
    return write_tasks(tmp_path / "tasks", N)


def planted(label: str, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"import_path": AGENT, "label": label, "kwargs": kwargs}


def select(race: HarborRace, agents: list[Any], tasks: Any = "tasks", **options: Any) -> Standing:  # noqa: ANN401
    settings = {"environment": ENVIRONMENT, "in_flight": 8, "show": False, **options}
    return race.select(agents, tasks, **settings)


def asked(standing: Standing) -> dict[str, int]:
    return {row.candidate.label: row.n for row in standing.rows}


def outcomes() -> list[PairOutcome]:
    async def read() -> list[PairOutcome]:
        return [pair async for pair in Archive("runs.sqlite").outcomes()]

    return asyncio.run(read())


def trials() -> list[dict[str, Any]]:
    """Return the results of all trials that Harbor has finished."""
    texts = [path.read_text() for path in Path("jobs").glob("*/*/result.json")]
    return [json.loads(text) for text in texts if text.endswith("}")]  # not half written


def usd(standing: Standing) -> float:
    return standing.spent.usd_nanos / 1e9


@pytest.mark.parametrize("in_flight", [1, 16])
def test_the_best_is_found_with_a_part_of_the_trials(in_flight: int) -> None:
    quality = {"good": 0.95, "fair": 0.6, "poor": 0.3}
    race = HarborRace(budget=70)
    agents = [planted(label, quality=worth) for label, worth in quality.items()]
    standing = select(race, [*agents, "nop"], in_flight=in_flight)

    assert standing.best is not None
    assert standing.best.candidate.label == "good"
    assert race.verdict().startswith("Take good")
    assert race.standing().told == standing.told == len(trials()) <= 70
    n = asked(standing)
    assert n["nop"] < n["good"]
    assert standing.rows[-1].candidate.label == "nop"
    assert standing.spent.tokens == 110 * sum(n[label] for label in quality)
    # the page names the folder of each trial, and no path of this machine
    page = race.report.read_text()
    assert all(pair.prompt and "write 1 into the file" in pair.prompt for pair in outcomes())
    assert "write 1 into the file" in page
    stored = Path("runs.sqlite").read_bytes()
    assert str(Path.cwd()).encode() not in stored
    for pair in outcomes():
        run, _, name = (pair.reply or "").rpartition("(trial ")[2].rstrip(")").partition("/")
        assert (Path("jobs") / run / name / "result.json").exists()


def test_oracle_beats_nop_over_models_of_one_agent() -> None:
    agents: list[Any] = ["oracle", {"name": "nop", "model_name": "lab/own"}]
    standing = select(HarborRace(budget=24), agents, models=["lab/a", "lab/b"])
    assert {row.candidate.label for row in standing.rows} == {"oracle a", "oracle b", "nop own"}
    assert standing.rows[-1].candidate.label == "nop own"
    axes = {(row.candidate.params["agent"], row.candidate.model) for row in standing.rows}
    assert axes == {("oracle", "lab/a"), ("oracle", "lab/b"), ("nop", "lab/own")}


@pytest.mark.parametrize(
    ("means", "score", "kinds"),
    [("fails", 0.0, {"gave-up"}), ("reward", 1.0, set()), ("void", None, {"internal"})],
)
def test_a_time_out_of_the_agent_means_what_was_said(
    means: Any,  # noqa: ANN401
    score: float | None,
    kinds: set[str],
) -> None:
    slow = {**planted("slow", seconds=30), "override_timeout_sec": 0.2}
    options = {"agent_timeout": means, "overrides": {"limits.max_failed_share": 1}}
    standing = select(
        HarborRace(budget=12), [slow, "nop"], [*Path("tasks").iterdir()][:6], **options
    )
    row = next(row for row in standing.rows if row.candidate.label == "slow")
    assert (row.total / row.n if row.n else None) == score
    told = [pair for pair in outcomes() if pair.candidate == "slow"]
    assert told
    assert {pair.failure for pair in told if pair.failure} == kinds


def test_an_environment_that_does_not_start_is_tried_again_at_no_cost() -> None:
    environment = {"import_path": ENVIRONMENT, "kwargs": {"broken": 2}}
    agents = [planted("good", usd=0.5), planted("bad", quality=0.0, usd=0.5)]
    standing = select(HarborRace(budget=20), agents, environment=environment, in_flight=1)
    assert all(pair.failure is None for pair in outcomes())
    assert len(trials()) == standing.told + 2
    assert usd(standing) == 0.5 * standing.told


@pytest.mark.parametrize(
    ("error", "kind", "trials_of_a_pair"),
    [
        ("ConnectError", "server", 3),  # of the network: Harbor's table does not know it
        ("ApiRateLimitError", "server", 3),
        ("VerifierTimeoutError", "internal", 1),
        ("NonZeroAgentExitCodeError", None, 1),  # the agent's own: its reward counts
    ],
)
def test_errors_count_by_the_table_of_harbor(
    error: str, kind: str | None, trials_of_a_pair: int
) -> None:
    options = {"overrides": {"limits.max_failed_share": 1}}
    few = [*Path("tasks").iterdir()][:3]
    select(HarborRace(), [planted("odd", error=error, usd=0.1), "nop"], few, **options)
    told = [pair for pair in outcomes() if pair.candidate == "odd"]
    assert told
    for pair in told:
        assert pair.failure == kind
        assert pair.usd == pytest.approx(0.1 * trials_of_a_pair)
        assert f"{error}: it went wrong" in (pair.reply or pair.message or "")


def test_an_agent_that_can_never_work_is_left_behind() -> None:
    agents = [planted("locked out", error="AgentAuthenticationError"), planted("good"), "nop"]
    standing = select(HarborRace(), agents, in_flight=2)
    assert standing.best is not None
    assert standing.best.candidate.label == "good"
    row = next(row for row in standing.rows if row.candidate.label == "locked out")
    assert row.is_broken
    n = Counter(trial["config"]["agent"]["kwargs"].get("error") for trial in trials())
    assert n["AgentAuthenticationError"] <= 2


def test_a_trial_takes_no_longer_than_was_said() -> None:
    race = HarborRace(seconds_per_trial=0.5, usd_per_trial=0.25)
    options = {"overrides": {"limits.max_failed_share": 1, "limits.max_attempts": 1}}
    hangs = [planted("hangs", seconds=60, usd=0.1), "nop"]
    began = time.monotonic()
    select(race, hangs, [*Path("tasks").iterdir()][:2], **options)
    assert time.monotonic() - began < 30
    told = [pair for pair in outcomes() if pair.candidate == "hangs"]
    assert {pair.failure for pair in told} == {"timeout"}
    assert {pair.usd for pair in told} == {0.25}  # it may have cost so much


def test_a_cap_in_dollars_is_hard_with_many_trials_in_flight() -> None:
    agents = [planted("good", usd=0.4), planted("bad", quality=0.1, usd=0.4)]
    race = HarborRace(budget=Budget(usd=5), usd_per_trial=1.0)
    standing = select(race, agents, in_flight=16)
    assert standing.end == "budget"
    assert 4 < usd(standing) <= 5
    assert usd(standing) == pytest.approx(0.4 * len(trials()))


def test_a_trial_without_cost_is_booked_at_its_bound_and_said_so() -> None:
    agents = [planted("told", usd=0.25), planted("untold", quality=0.5)]
    race = HarborRace(budget=20, usd_per_trial={"told": 1.0, "untold": 2.0})
    with pytest.warns(RuntimeWarning, match=r"reports no cost; \$2 \(usd_per_trial\) is booked"):
        standing = select(race, agents)
    n = asked(standing)
    assert usd(standing) == pytest.approx(0.25 * n["told"] + 2.0 * n["untold"])
    assert "reports no cost" in race.report.read_text()
    with pytest.warns(RuntimeWarning, match="cost more than usd_per_trial"):
        select(HarborRace(budget=4, usd_per_trial=0.1, store="more.sqlite"), [*agents[:1], "nop"])


def test_what_one_race_bought_another_does_not_buy_again() -> None:
    agents, few = [planted("good"), planted("fair", quality=0.6)], [*Path("tasks").iterdir()][:3]
    options = {"overrides": {"selector.stop_when_separated": False}}
    for _ in range(2):
        standing = select(HarborRace(), agents, few, **options)
        assert asked(standing) == {"good": 3, "fair": 3}
        assert len(trials()) == 6
    (few[0] / "tests" / "test.sh").write_text("#!/bin/sh\nexit 0\n")  # another task now
    select(HarborRace(), agents, few, **options)
    assert len(trials()) == 8


SCRIPT = """
import sys
from bestarm_agent.domain.spend import Budget
from bestarm_agent.interop.harbor import HarborRace
from tests.docs.pages import blocks, execute, page
from tests.support.harbor_world import AGENT, ENVIRONMENT
agents = [
    {"import_path": AGENT, "label": str(q), "kwargs": {"quality": q, "seconds": 0.3, "usd": 0.5}}
    for q in (0.9, 0.5, 0.1)
]
race = HarborRace(budget=Budget(usd=20), usd_per_trial=0.5, resume=sys.argv[1] or None)
race.select(agents, "tasks", environment=ENVIRONMENT, in_flight=6, show=False)
print(race.verdict())
"""


def test_a_killed_race_goes_on_and_buys_no_finished_trial_again() -> None:
    command = [sys.executable, "-c", SCRIPT]
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen([*command, ""], env=env, stderr=subprocess.DEVNULL) as process:
        while len(trials()) < 10:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    done = {one["trial_name"] for one in trials()}
    paid = {(one["task_name"], one["config"]["agent"]["kwargs"]["quality"]) for one in trials()}

    subprocess.run([*command, "latest"], env=env, check=True, stderr=subprocess.DEVNULL)
    after = [one for one in trials() if one["trial_name"] not in done]
    twice = {(one["task_name"], one["config"]["agent"]["kwargs"]["quality"]) for one in after}
    assert after
    assert not twice & paid
    assert len({path.parent.parent for path in Path("jobs").glob("*/*/result.json")}) == 1
    standing = asyncio.run(Archive("runs.sqlite").record("latest")).standing
    assert usd(standing) <= 20
    assert standing.best is not None
    assert standing.best.candidate.label == "0.9"


def test_a_race_goes_on_with_more_budget_and_only_with_what_it_began_with() -> None:
    agents = [planted("a", quality=0.6), planted("b", quality=0.5)]
    select(HarborRace(budget=10), agents)
    standing = select(HarborRace(budget=24, resume="latest"), agents)
    assert standing.told == len(trials()) == 24
    with pytest.raises(ConfigError, match="the run has 'b'; give all that it began with"):
        select(HarborRace(resume="latest"), agents[:1])
    (Path("tasks") / "task-00" / "tests" / "test.sh").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(ConfigError, match="the dataset has changed"):
        select(HarborRace(resume="latest"), agents)


def test_attempts_are_draws_of_a_task() -> None:
    few = [*Path("tasks").iterdir()][:3]
    options = {"overrides": {"selector.stop_when_separated": False}}
    standing = select(HarborRace(), [planted("a"), "nop"], few, attempts=2, **options)
    assert standing.n_examples == 6
    assert Counter(one["task_name"] for one in trials()) == dict.fromkeys(
        (task.name for task in few), 4
    )


def test_rewards_of_several_kinds_need_a_name(tmp_path: Path) -> None:
    rewards = json.dumps({"passed": 0.5, "speed": 7})
    folder = write_tasks(tmp_path / "several", 3, file="reward.json", answer=rewards)
    named = select(HarborRace(metric="passed"), ["oracle"], folder, models=["lab/a", "lab/b"])
    assert named.best is not None
    assert {row.total / row.n for row in named.rows} == {0.5}
    for metric in (None, "speed"):
        race = HarborRace(metric=metric, store=f"{metric}.sqlite")
        standing = select(race, ["oracle"], folder, models=["lab/a", "lab/b"])
        assert standing.end == "failures"
        assert all(
            "in [0, 1]: HarborRace(metric=...)" in (row.problem or "") for row in standing.rows
        )


@pytest.mark.parametrize(
    ("agents", "options", "told"),
    [
        (["claude-cod"], {}, "agent 'claude-cod'.* is not valid"),
        (["no.such:Agent"], {}, "agent 'no.such:Agent'"),
        ("oracle", {}, "agents must be a list"),
        ([], {}, "there are no agents"),
        (["nop", "nop"], {}, "is there twice"),
        (
            [{"name": "nop", "modelname": "x"}],
            {},
            "cannot set 'modelname'; did you mean `model_name`",
        ),
        (["nop"], {"tasks": "./none"}, "there is no such folder"),
        (["nop"], {"tasks": []}, "there are no tasks"),
        (["nop"], {"tasks": ["tasks/task-01", "tasks/task-01"]}, "two tasks 'task-01'"),
        (["nop"], {"tasks": {"path": "tasks", "n_task": 3}}, "did you mean `n_tasks`"),
        (["nop"], {"environment": "doker"}, "the environment.*docker"),
        (["nop"], {"environment": "no.such:Environment"}, "the environment"),
        (["nop"], {"agent_timeout": "ignored"}, "agent_timeout must be fails, reward or void"),
        (["nop"], {"timeout_multiplyer": 2}, "did you mean `timeout_multiplier`"),
        (["nop"], {"trial_name": "x"}, "cannot set 'trial_name'"),
        (["nop"], {"verifier": {"disable": True}}, "without the verifier"),
        (["nop"], {"overrides": {"selector.nam": "x"}}, "selector.nam"),
    ],
)
def test_what_is_wrong_is_said_before_any_trial(
    agents: Any,  # noqa: ANN401
    options: dict[str, Any],
    told: str,
) -> None:
    with pytest.raises(ConfigError, match=f"(?s){told}"):
        select(HarborRace(), agents, **options)
    assert not trials()


def test_a_task_without_a_verifier_is_refused() -> None:
    (Path("tasks") / "task-07" / "tests" / "test.sh").unlink()
    with pytest.raises(ConfigError, match=r"task 'task-07': .* does not contain tests/test.sh"):
        select(HarborRace(), ["oracle", "nop"])
    assert not trials()


def test_a_cap_in_dollars_needs_the_most_that_a_trial_costs() -> None:
    with pytest.raises(ConfigError, match="say the most: usd_per_trial"):
        HarborRace(budget=Budget(usd=5))
    with pytest.raises(ConfigError, match="usd_per_trial says nothing of 'nop'"):
        select(HarborRace(usd_per_trial={"oracle": 1.0}), ["oracle", "nop"])
    with pytest.raises(ConfigError, match="cap calls instead"):  # nothing bounds a trial's tokens
        select(HarborRace(budget=Budget(tokens=100)), ["oracle", "nop"])
    with pytest.raises(ConfigError, match="call select first"):
        HarborRace().verdict()


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = blocks(page("how-to/agents"), "python")
    here = {
        '["terminus-2", "mini-swe-agent"]': '["oracle", "nop"]',
        '"name": "terminal-bench", "version": "2.0"': '"path": "tasks"',
        '"n_tasks": 60': '"n_tasks": 30',
        '"docker"': repr(ENVIRONMENT),
        "answers=240": "answers=32",
    }
    for text, other in here.items():
        assert code.count(text) == 1
        code = code.replace(text, other)
    execute(code)
    verdict, report = capsys.readouterr().out.splitlines()
    assert verdict.startswith("Take oracle")
    assert Path(report).exists()


def docker_runs() -> bool:
    """Return whether a container can be started."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


DOCKER = docker_runs()


@pytest.mark.skipif(not DOCKER, reason="there is no Docker, or its daemon does not run")
def test_trials_run_in_docker() -> None:
    few = [*Path("tasks").iterdir()][:2]
    standing = select(
        HarborRace(budget=4), ["oracle", "nop"], few, environment="docker", in_flight=2
    )
    assert standing.best is not None
    assert standing.best.candidate.label == "oracle"


@pytest.mark.skipif(DOCKER, reason="Docker runs here")
def test_docker_that_does_not_run_is_said_before_any_trial() -> None:
    with pytest.raises(ConfigError, match=r"(?i)the environment: docker"):
        select(HarborRace(), ["oracle", "nop"], environment="docker")
