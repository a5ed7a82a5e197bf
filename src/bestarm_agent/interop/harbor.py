"""Finds the best of several agents, models and settings by trials of an unmodified Harbor.

A race is an ordinary run of a study: a candidate is an agent with a model and its settings, an
example is a task, a draw is an attempt, and one call is one ``Trial``. So caps, retries, the store,
``kill -9`` and resume, report and view are those of every run. ``HarborRace.select`` reads agents
and tasks as Harbor names them, and refuses what is wrong before any trial; ``_Trials``, the
provider of the study, runs a trial, and says by Harbor's own table of errors what came of it.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from glob import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from warnings import warn

from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.files import shown_path
from bestarm_agent.config.input_specs import DatasetSpec
from bestarm_agent.domain.redaction import masked, redacted
from bestarm_agent.domain.spend import Budget, Spend, Usage, nanos, usd
from bestarm_agent.domain.values import Json, Reply, Request, canonical, clip_rounding, digest
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import STORE_FILE, Options
from bestarm_agent.errors import Blame, ConfigError, FailureKind, ProviderError, nearest
from bestarm_agent.providers.base import Capabilities, Provider, ProviderOptions
from bestarm_agent.providers.failures import BilledError, failure
from bestarm_agent.store.store import StorePlace
from bestarm_agent.study import Study, run_in_thread

if TYPE_CHECKING:
    from harbor.models.job.config import DatasetConfig
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.models.trial.result import ExceptionInfo, TrialResult

    AgentLike: TypeAlias = str | Mapping[str, Any] | AgentConfig
    TaskSource: TypeAlias = str | Path | Mapping[str, Any] | DatasetConfig | TaskConfig
    EnvironmentLike: TypeAlias = str | Mapping[str, Any] | EnvironmentConfig

_NAME = "harbor"  # of the provider
_LINE_SECONDS = 30.0
# Errors of Python and of HTTP clients that Harbor's table does not know, and takes for the agent's.
_NETWORK = re.compile("Connect|BrokenPipe|gaierror|RemoteProtocol|ReadError|ReadTimeout|APITimeout")
# Settings of a trial that a race makes itself.
_OWN = {"agent", "task", "trial_name", "trials_dir", "install_only", "job_id", "source_trial"}


class HarborRace:
    """Runs the trials of K agents as a selection rule asks for them.

    Args:
        selector: a selection rule.
        budget: trials to run in all, or caps in other units; None: until the best is established.
        metric: the reward to go by, needed where a verifier gives several and none is "reward".
        confidence: of the verdict, in (0, 1).
        seed: of the rule.
        resume: a run of ``store`` to go on with: its id, its name or "latest". It keeps the rule,
            the seed and the tasks that it began with; ``budget`` counts from its beginning.
        store: path or URL of the store of runs.
        usd_per_trial: the most that a trial costs, also by model or by label of a candidate. A cap
            in dollars reserves it for each trial, and it is booked where an agent reports no cost.
        seconds_per_trial: time after which a trial is ended and counts as void, besides the
            time-outs of the tasks; None: these alone.
        params: the rule's own parameters.

    Attributes:
        report: path of the report, once ``select`` has returned.

    Raises:
        ConfigError: harbor is not installed, or an argument is wrong.
    """

    report: Path

    def __init__(
        self,
        selector: str = "auto",
        budget: int | Budget | None = None,
        *,
        metric: str | None = None,
        confidence: float = 0.95,
        seed: int = 0,
        resume: str | None = None,
        store: StorePlace = STORE_FILE,
        usd_per_trial: float | Mapping[str, float] | None = None,
        seconds_per_trial: float | None = None,
        **params: Any,  # noqa: ANN401
    ) -> None:
        with _refusing("a race needs Harbor and Python 3.12: pip install 'bestarm-agent[harbor]'"):
            import_module("harbor.trial.trial")
        self._caps = Budget(answers=budget) if isinstance(budget, int) else budget or Budget()
        if self._caps.usd_nanos is not None and usd_per_trial is None:
            raise ConfigError(
                "the budget caps dollars, and nothing bounds what a trial costs; say the most: "
                "usd_per_trial=2.0"
            )
        self._rule: dict[str, Json] = {"name": selector, "params": params}
        self._rule |= {"confidence": confidence, "seed": seed}
        self._metric, self._resume, self._store = metric, resume, store
        self._usd, self._seconds = usd_per_trial, seconds_per_trial
        self._study: Study | None = None

    def select(
        self,
        agents: Sequence[AgentLike],
        tasks: TaskSource | Sequence[TaskSource],
        models: Sequence[str] | None = None,
        *,
        environment: EnvironmentLike = "docker",
        attempts: int = 1,
        in_flight: int = 4,
        agent_timeout: Literal["fails", "reward", "void"] = "fails",
        jobs_dir: str | Path = "jobs",
        overrides: Mapping[str, Json] | None = None,
        show: bool = True,
        **trial: Any,  # noqa: ANN401 - of Harbor's TrialConfig
    ) -> Standing:
        """Race every agent with every model, write the report, and return the standing.

        Ctrl-C ends it once the trials under way are done. It works in a notebook, too.

        Args:
            agents: names of Harbor's, import paths ("module:Class"), or what Harbor's
                ``AgentConfig`` holds, with a "label" if there is to be one; one with a
                ``model_name`` of its own is not combined with ``models``.
            tasks: a dataset ("terminal-bench@2.0"), a folder of tasks, a task's folder, or what
                Harbor's ``DatasetConfig`` holds; or a list of these.
            models: by Harbor's names, such as "anthropic/claude-opus-4-5".
            environment: type of environment, an import path, or what Harbor's
                ``EnvironmentConfig`` holds.
            attempts: draws of every task; more tasks say more than more attempts.
            in_flight: trials at once.
            agent_timeout: what the time-out of an agent means: its failure, with score 0, the
                reward that the verifier gives all the same, as Harbor counts, or nothing.
            jobs_dir: folder of the trials' folders; those of a run are in one that bears its id.
            overrides: further settings of a study, by dotted key ("stop.within").
            show: whether a line on stderr says twice a minute where the race stands.
            trial: further settings of Harbor's ``TrialConfig``, such as ``timeout_multiplier``.

        Raises:
            ConfigError: an agent, a task or a setting is wrong; no trial has begun.
            StoreError: the store cannot be used.
        """
        if agent_timeout not in ("fails", "reward", "void"):
            raise ConfigError(f"agent_timeout must be fails, reward or void, got {agent_timeout!r}")
        candidates, settings = self._candidates(agents, models), _settings(environment, trial)
        own = (self._seconds, self._metric, agent_timeout, self._usd is not None)
        provider = _Trials(candidates, settings, in_flight, Path(jobs_dir), *own)
        study: dict[str, Json] = {
            "name": "harbor",
            "candidates": [
                {"model": f"{_NAME}/{model}", "prompt": "task"}
                | {"params": {"agent": agent}, "label": entry.label}
                for (model, agent), entry in candidates.items()
            ],
            "prompts": [{"task": "{{ instruction }}"}],
            "scorer": "recorded",
            "selector": self._rule,
            "repeats": attempts,
            "limits": {"in_flight": in_flight, "max_attempts": 3},
        }
        opening = self._opened(study, provider, tasks, overrides)
        return run_in_thread(opening, _followed if show else Study.run)

    def standing(self) -> Standing:
        """Return the standing, as of a study; raises ConfigError before the first trial."""
        if self._study is None:
            raise ConfigError("the race has not begun: call select first")
        return self._study.standing()

    def verdict(self) -> str:
        """Say in words who leads and how sure that is; raises ConfigError as ``standing`` does."""
        return self.standing().decision.text

    @asynccontextmanager
    async def _opened(
        self,
        study: dict[str, Json],
        provider: _Trials,
        tasks: TaskSource | Sequence[TaskSource],
        overrides: Mapping[str, Json] | None,
    ) -> AsyncIterator[Study]:
        """Open the run, or go on with it; at the end, write its report."""
        provider.tasks, rows = await _tasks_and_rows(tasks)
        # a file, so that whoever reads the run later sees what was asked
        path = provider.folder / f"tasks-{digest(rows)}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{canonical(row)}\n" for row in rows), encoding="utf-8")
        study["dataset"] = {"path": shown_path(path), "id": "id"}
        options = Options(store=self._store, providers={_NAME: provider})
        if self._resume is None:
            opening = Study.open(study, overrides=overrides, options=options)
        else:
            examples = read_examples(DatasetSpec.model_validate(study["dataset"]), Path())
            opening = Study.resume(self._resume, examples=examples, options=options)
        async with opening as run:
            self._study, provider.folder = run, provider.folder / run.run_id
            if self._caps != Budget():
                run.budget = self._caps
            yield run
            self.report = await run.write_report()
            for remark in run.remarks():
                warn(remark, RuntimeWarning, stacklevel=2)

    def _candidates(
        self, agents: Sequence[AgentLike], models: Sequence[str] | None
    ) -> dict[tuple[str, str], _Agent]:
        """Return the candidates by model and agent, as they are in the study."""
        from harbor.agents.factory import AgentFactory
        from harbor.models.trial.config import AgentConfig

        for argument, names in (("agents", agents), ("models", models)):
            if isinstance(names, str):
                raise ConfigError(f"{argument} must be a list, got the text {names!r}")
        candidates: dict[tuple[str, str], _Agent] = {}
        for agent in agents:
            given: dict[str, Any] = {"name": agent} if isinstance(agent, str) else dict(agent)
            label = given.pop("label", None)
            subject = f"agent {label or given.get('name') or given.get('import_path')!r}"
            _check_names(given, AgentConfig, subject)
            own = [given["model_name"]] if given.get("model_name") else models
            for model in own or [None]:
                with _refusing(subject):
                    config = AgentConfig(**{**given, "model_name": model})
                    AgentFactory.run_preflight(config)
                who, name = _named(config, label)
                if (key := (model or "default", who)) in candidates:
                    raise ConfigError(f"{subject} is there twice, as {name!r}; leave one out")
                bound = self._usd
                if isinstance(bound, Mapping):
                    bound = bound.get(name, bound.get(str(model)))
                if bound is None and self._usd is not None:
                    raise ConfigError(f"usd_per_trial says nothing of {name!r}; name it")
                candidates[key] = _Agent(name, config, bound)
        if not candidates:
            raise ConfigError("there are no agents; name at least one, such as 'claude-code'")
        return candidates


class _Agent(NamedTuple):
    """A candidate."""

    label: str
    config: AgentConfig
    usd: float | None  # the most that a trial costs; None: nobody said it


@dataclass(eq=False)
class _Trials(Provider[ProviderOptions]):
    """Answers by a trial of Harbor's; the model and its parameter name the candidate."""

    agents: Mapping[tuple[str, str], _Agent]
    settings: TrialConfig
    in_flight: int
    folder: Path  # of the folders of all runs; of that of the run, once it is open
    seconds: float | None
    metric: str | None
    agent_timeout: str
    is_priced: bool
    name: str = _NAME
    tasks: Mapping[str, TaskConfig] = field(default_factory=dict)  # by id, once they are read

    def capabilities(self, model: str) -> Capabilities:
        """Return that a reply depends on agent and task; prices only if the user gave a bound."""
        return Capabilities(
            params=frozenset({"agent"}),
            price_source="usd_per_trial" if self.is_priced else None,
            in_flight=self.in_flight,
            queued=True,
            by_example=True,
            by_inputs=True,  # they hold a digest of the task's files
            counted=False,
        )

    def fingerprint(self, model: str) -> str:
        """Return a digest of all that decides a score, besides the agent and the task."""
        settings = self.settings.model_dump(mode="json", exclude=_OWN)
        return digest([settings, self.seconds, self.metric, self.agent_timeout])

    def bound(self, request: Request) -> Spend:
        """Return one trial, at the most dollars that the user gave."""
        return Spend(calls=1, usd_nanos=nanos(self._agent(request).usd or 0))

    def _agent(self, request: Request) -> _Agent:
        key = request.model, str(request.params["agent"])
        if key not in self.agents:
            raise ConfigError(f"the run has {request.candidate!r}; give all that it began with")
        return self.agents[key]

    async def generate(self, request: Request) -> Reply:
        """Run a trial; raise ProviderError where it gave no reward that counts."""
        from harbor.models.trial.result import TrialResult

        config = self.settings.model_copy(deep=True)  # Harbor writes into it
        config.agent = self._agent(request).config.model_copy(deep=True)
        config.task = self.tasks[request.example].model_copy(deep=True)
        config.trials_dir = self.folder
        # The trial's folder carries a digest of the pair in its name. A process that was killed
        # leaves the folder of a trial that ended and was never recorded; the same pair then finds
        # it again, and its reward counts instead of a second trial being paid for.
        pair = digest([request.as_json(), request.example], length=8)
        name = f"{config.generate_trial_name().rpartition('__')[0]}__{pair}"
        before = sorted(self.folder.glob(f"{escape(name)}-*"))
        config.trial_name = f"{name}-{len(before) + 1}"
        for path in before:  # one may have ended as an earlier process was killed
            with suppress(OSError, ValueError):  # cut off
                result = TrialResult.model_validate_json((path / "result.json").read_bytes())
                outcome = self._outcome_of(result, self._agent(request))
                if isinstance(outcome, Reply) or outcome.blame is Blame.CANDIDATE:
                    break
        else:
            result = await self._run(config, self.bound(request))
            outcome = self._outcome_of(result, self._agent(request))
        if isinstance(outcome, ProviderError):
            raise outcome
        return outcome

    async def _run(self, config: TrialConfig, bound: Spend) -> TrialResult:
        """Run a trial; raise ProviderError, which books ``bound``, if it has no result."""
        from harbor.trial.trial import Trial

        trial, timer = None, asyncio.timeout(self.seconds)
        try:
            async with timer:
                trial = await Trial.create(config)
                return await trial.run()
        except Exception as error:
            kind, message = FailureKind.INTERNAL, f"{type(error).__name__}: {error}"
            if timer.expired():
                kind, message = FailureKind.TIMEOUT, f"it took more than {self.seconds:g} s"
            why = f"{self._clean(message)} (trial {self.folder.name}/{config.trial_name})"
            # A trial that began may have cost anything up to its bound, and no result says how
            # much. So the bound is booked; where not even the trial could be made, nothing was
            # bought.
            raise BilledError(failure(kind, why), bound if trial else Spend(calls=1)) from error

    def _outcome_of(self, result: TrialResult, agent: _Agent) -> Reply | ProviderError:
        """Return the reward of a trial; where none counts the error that says why."""
        bound, notice = agent.usd, ""
        tokens_in, cached, tokens_out, cost = result.compute_token_cost_totals()
        usage = Usage(tokens_in or 0, min(cached or 0, tokens_in or 0), output=tokens_out or 0)
        steps = [step.agent_execution for step in result.step_results or ()]
        if not any([result.agent_execution, *steps]):
            cost = 0.0  # no agent ran
        elif cost is None:
            booked = "none" if bound is None else f"${bound:g} (usd_per_trial)"
            cost, notice = bound, f"({agent.label}) reports no cost; {booked} is booked for a trial"
        elif bound is not None and cost > bound:
            notice = f"({agent.label}) cost more than usd_per_trial = ${bound:g}; raise it"
        amount = None if cost is None else nanos(cost)
        errors = result.recorded_exceptions()
        rewards = (result.verifier_result and result.verifier_result.rewards) or {}
        values = ", ".join(f"{name} = {value:g}" for name, value in rewards.items())
        texts = self._clean("; ".join(f"{e.exception_type}: {e.exception_message}" for e in errors))
        place = f"(trial {self.folder.name}/{result.trial_name})"
        try:
            score = self._score(errors, rewards)
        except ProviderError as error:
            why = "; ".join(filter(None, (texts, f"{values or 'no reward'}: {error} {place}")))
            spend = Spend(calls=1, tokens=usage.total, usd_nanos=amount or 0)
            return BilledError(failure(error.kind, why), spend)
        return Reply(
            "\n".join(filter(None, (values, texts, place))),
            usage=usage,
            usd_nanos=amount,
            seconds=(result.finished_at - result.started_at).total_seconds(),
            score=score,
            notices=(notice,) if notice else (),
            recorded=True,
        )

    def _score(self, errors: Sequence[ExceptionInfo], rewards: Mapping[str, float]) -> float:
        """Return the reward that a trial has by Harbor's table; raise ProviderError for none."""
        from harbor.models.trial.error_policy import ERROR_POLICIES

        for kind in map(self._kind, errors):
            if kind is not None:
                raise failure(kind, "not counted")
        if not rewards:  # with an error that Harbor does not know, it may be the environment's
            # No reward at all: if Harbor knows every error of the trial, they are the agent's and
            # it gave up. One that it does not know may come from the environment, and the trial is
            # tried again.
            known = all(error.exception_type in ERROR_POLICIES for error in errors)
            agents = FailureKind.GAVE_UP if known else FailureKind.SERVER
            raise failure(agents if errors else FailureKind.INTERNAL, "the verifier gave none")
        only = next(iter(rewards)) if len(rewards) == 1 else "reward"
        score = rewards.get(self.metric or only)
        if score is None or not 0 <= (score := clip_rounding(score)) <= 1:
            way_out = "name a reward in [0, 1]: HarborRace(metric=...)"
            raise failure(FailureKind.BAD_REQUEST, way_out)
        return float(score)

    def _kind(self, error: ExceptionInfo) -> FailureKind | None:
        """Return what an error makes of its trial; None if a reward is valid all the same."""
        policy, name = error.policy, error.exception_type
        if name == "AgentTimeoutError" and self.agent_timeout != "reward":
            return FailureKind.GAVE_UP if self.agent_timeout == "fails" else FailureKind.INTERNAL
        # Harbor takes errors that it does not know for the agent's own. Those of the network are
        # not.
        if policy.has_valid_reward and not _NETWORK.search(name):
            return None
        if policy.should_retry:
            return FailureKind.SERVER
        # a verifier's, or one that all trials of the candidate will have, such as a wrong key
        return FailureKind.INTERNAL if policy.should_grade else FailureKind.BAD_REQUEST

    def _clean(self, text: str) -> str:
        """Return a message of Harbor's without secrets and paths of this machine."""
        jobs = f"{self.folder.resolve().parent}/"
        return masked(text.strip(), {jobs: "", str(Path.cwd()): ".", str(Path.home()): "~"})


async def _followed(study: Study) -> Standing:
    running = asyncio.ensure_future(study.run())
    while not (await asyncio.wait([running], timeout=_LINE_SECONDS))[0]:
        now = study.standing()
        line = f"{now.told:,} trials, {now.in_flight} in flight, ${usd(now.spent.usd_nanos):.2f}"
        sys.stderr.write(f"{line}: {now.decision.text}\n")
    return await running


def _named(agent: AgentConfig, label: str | None) -> tuple[str, str]:
    """Return the name of an agent with all its settings, and the label of its candidate."""
    who = agent.name or agent.import_path or ""
    own = {"name", "model_name", "n_concurrent", "concurrency_group"}
    rest = agent.model_dump(mode="json", exclude=own, exclude_defaults=True)
    kwargs: Any = redacted(agent.kwargs)
    settings = [f"{name}={value!s:.40}" for name, value in kwargs.items()]
    short = label or " ".join([who.rpartition(":")[2], *settings])
    full = short if who == short and not rest else f"{short}+{digest([who, rest], length=6)}"
    return full, " ".join([short, *(agent.model_name or "").split("/")[-1:]]).strip()


def _settings(environment: EnvironmentLike, trial: Mapping[str, Any]) -> TrialConfig:
    """Return a trial's configuration, without agent and task; raises ConfigError."""
    from harbor.environments.factory import EnvironmentFactory
    from harbor.models.trial.config import EnvironmentConfig, TaskConfig, TrialConfig

    _check_names(trial, TrialConfig, "select")
    if isinstance(environment, str):
        environment = {"import_path" if ":" in environment else "type": environment}
    if isinstance(environment, Mapping):
        _check_names(environment, EnvironmentConfig, "the environment")
    with _refusing("the environment"):
        config = EnvironmentConfig.model_validate(environment)
        EnvironmentFactory.run_preflight(config.type, config.import_path, config.kwargs)
    with _refusing("the settings of trials"):
        whole = TrialConfig(**trial, task=TaskConfig(path=Path()), environment=config)
    if whole.verifier.disable:
        raise ConfigError("without the verifier there are no rewards; leave verifier.disable out")
    return whole


async def _tasks_and_rows(
    tasks: TaskSource | Sequence[TaskSource],
) -> tuple[dict[str, TaskConfig], list[dict[str, str]]]:
    """Return the tasks by id, and the rows of the dataset for them; raises ConfigError."""
    from harbor.models.job.config import DatasetConfig
    from harbor.models.task.task import Task
    from harbor.publisher.packager import Packager
    from harbor.tasks.client import TaskClient

    listed: list[TaskConfig] = []
    for source in tasks if isinstance(tasks, list | tuple) else [tasks]:
        with _refusing(f"tasks {source!r}"):
            config = _source(source)
            if isinstance(config, DatasetConfig):  # True: else some are passed over in silence
                listed += await config.get_task_configs(True)
            else:
                listed.append(config)
    by_id: dict[str, TaskConfig] = {}
    rows: list[dict[str, str]] = []
    with _refusing("the tasks"):
        got = await TaskClient().download_tasks([task.get_task_id() for task in listed])
    for member, path in zip(listed, got.paths, strict=True):
        name = member.get_task_id().get_name()
        if name in by_id:
            raise ConfigError(f"there are two tasks {name!r}; leave one out")
        with _refusing(f"task {name!r}"):
            task = Task(path)  # says what is missing
            steps = [task.step_instruction(step.name) for step in task.config.steps or ()]
            files = Packager.compute_content_hash(path)[0]
        by_id[name] = member
        text = "\n\n".join(steps) or task.instruction
        rows.append({"id": name, "instruction": text, "files": files})
    if not rows:
        raise ConfigError(f"there are no tasks in {tasks!r}; a task is a folder with a task.toml")
    return by_id, rows


def _source(source: TaskSource) -> DatasetConfig | TaskConfig:
    """Return what names a dataset or a task as Harbor's configuration; raises ConfigError."""
    from harbor.models.job.config import DatasetConfig
    from harbor.models.trial.config import TaskConfig

    if isinstance(source, Mapping):
        _check_names(source, DatasetConfig, "tasks")
        return DatasetConfig(**source)
    if not isinstance(source, str | Path):
        return source
    path = Path(source).expanduser()
    if path.is_dir():
        is_task = (path / "task.toml").exists()
        return TaskConfig(path=path) if is_task else DatasetConfig(path=path)
    if isinstance(source, Path) or source.startswith((".", "/", "~")):
        raise ConfigError("there is no such folder")
    name, _, version = source.partition("@")
    wanted = {"ref" if "/" in name else "version": version} if version else {}
    return DatasetConfig(name=name, **wanted)


def _check_names(given: Mapping[str, Any], model: Any, subject: str) -> None:  # noqa: ANN401
    """Refuse names that Harbor's models pass over in silence, or a race sets; raise ConfigError."""
    known = model.model_fields.keys() - _OWN
    for name in given.keys() - known:
        raise ConfigError(f"{subject} cannot set {name!r}; {nearest(name, known)}")


@contextmanager
def _refusing(subject: str) -> Iterator[None]:
    """Turn what Harbor raises into a ConfigError; its pre-flight checks also raise SystemExit."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{subject}: {masked(str(error)) or type(error).__name__}") from error
