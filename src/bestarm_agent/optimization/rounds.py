"""Run a study in rounds: after each, a function proposes prompts, which join as candidates."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, cast

from bestarm_agent.config.file_errors import parse_row
from bestarm_agent.config.functions import Program, is_async, load_program
from bestarm_agent.config.goal_specs import GEPA
from bestarm_agent.config.input_specs import PromptSpec
from bestarm_agent.domain.redaction import raised
from bestarm_agent.domain.spend import Budget
from bestarm_agent.domain.threads import DaemonThreads
from bestarm_agent.domain.values import Candidate, CandidateDict, Json, PromptTemplate
from bestarm_agent.engine.call import BudgetEndedError
from bestarm_agent.engine.confirm import kept_for_confirming, less
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.pairs import PairFilter
from bestarm_agent.engine.results.standing import Row, Standing
from bestarm_agent.errors import BestarmError, ConfigError
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.study import Study, check_budget

_WRONG = 8  # wrong answers that a proposer sees
_FEW = 40  # answers of a single candidate that show what it gets wrong
_GEPA = "bestarm_agent.optimization.gepa:propose"
_CUT_OFF = (End.INTERRUPTED, End.FAILURES, End.ERROR)


async def _unasked(prompt: str) -> str:
    raise ConfigError("there is no run whose model could be asked")


@dataclass(frozen=True, slots=True)
class Feedback:
    """The state of a study after a round, for a function that proposes prompts.

    Attributes:
        round: the round's number, from 1.
        leader: the leading candidate; ``leader.candidate.prompt`` holds its ``text`` or
            ``messages``.
        wrong: the leader's latest answers that scored below one half, at most 8: ``inputs``,
            ``reply``, ``target``, ``votes`` (a judge's reasoning). None is on an example that is
            kept back.
        standing: all candidates so far, best first, with what they reached.
        refused: proposals of the last round that could not join, with the reasons.
        ask: coroutine function that asks a model, with a prompt, and returns its answer: that of
            ``optimize.model``, else the leader's. Within the run's budget, limits and retries; the
            same prompt is asked once in a round, also where a killed run goes on.
    """

    round: int
    leader: Row
    wrong: tuple[PairOutcome, ...]
    standing: Standing
    refused: tuple[tuple[Proposal, str], ...] = ()
    ask: Callable[[str], Coroutine[Any, Any, str]] = field(
        default=_unasked, repr=False, compare=False
    )


# A text or a prompt, also as a study's `prompts` hold it ({"name": ..., "text": ...}), joins with
# the model and the parameters of the leader; a candidate names its own.
Proposal: TypeAlias = str | PromptTemplate | Candidate | Mapping[str, Json]
Proposals: TypeAlias = Iterable[Proposal] | None
Proposer: TypeAlias = Callable[[Feedback], Proposals | Awaitable[Proposals]]


async def optimize(study: Study, proposer: Proposer | Program, *, rounds: int = 4) -> Standing:
    """Run a study, let a function propose prompts by what went wrong, and run on.

    What is left of the budget is divided evenly among the rounds and a last run, which compares
    the last proposals and confirms the winner where examples are kept back for it. The rule decides
    which candidate sees which example. Proposals that cannot join, such as one that names a field
    that is not there, are left out; ``study.notices`` says why. A run that was killed goes on in
    the round in which it was, with what had joined.

    Args:
        study: an open study.
        proposer: called with a ``Feedback`` after each round; returns proposals, or nothing to end.
            Each is the text of a prompt, a ``PromptTemplate``, a prompt as in a study file, or a
            candidate as ``Study.add_candidates`` takes it. A coroutine function is awaited,
            another one runs in a thread.
        rounds: how often it is asked at most, at least 1.

    Returns:
        The standing at the end.

    Raises:
        ConfigError: the study certifies or is a gate; or the proposer failed, returned something
            else, or nothing that could join. The run is kept.
        StoreError: the store could not be written.
        ValueError: ``rounds`` is below 1.
    """
    _check(study, rounds)
    program = proposer if isinstance(proposer, Program) else _program(proposer)
    refused: tuple[tuple[Proposal, str], ...] = ()
    joined = study.proposer.rounds > 0  # or is to be counted as such, in a run that goes on
    for number in range(study.proposer.rounds + 1, rounds + 1):
        asked = study.standing().asked
        standing = await _run(study, _part(study, rounds + 2 - number))
        if standing.end in _CUT_OFF:
            return standing
        # A part that bought no answer cannot buy one later either: a proposer would be asked again
        # about the same answers, for every round that is left.
        is_spent = standing.end == End.BUDGET and standing.asked == asked
        if is_spent or standing.best is None:
            break
        feedback = await _feedback(study, standing, standing.best, number, refused)
        try:
            proposals = await _proposals(program, feedback)
        except BudgetEndedError:
            break
        # Proposals join before the round is logged as over. A run killed in between asks again for
        # the round, whose replies it finds in the cache, and what joined already stays; the other
        # order would lose the proposals.
        refused = _join(study, proposals, feedback)
        joined |= len(refused) < len(proposals)
        await study.proposer.end_rounds(number if proposals else rounds)
        if not proposals:
            break
    if refused and not joined:
        raise ConfigError(
            f"no proposal could join, in the last round since {refused[-1][1]}; the run "
            f"{study.run_id} is kept, and `bestarm-agent resume` goes on without proposals"
        )
    return await study.run()


async def run_as_configured(study: Study, budget: Budget | None = None) -> Standing:
    """Run a study in the rounds of its section ``optimize``; at once without one.

    ``budget`` is the most to spend, as that of ``Study.run``.

    Raises:
        ConfigError: as ``optimize``; or there is no such proposer.
        StoreError: the store could not be written.
    """
    spec = study.parts.config.optimize
    if spec is None:
        return await study.run(budget)
    if budget is not None:
        check_budget(budget)
        study.budget = budget.within(study.budget)
    proposer = load_proposer(spec.proposer, study.parts.study.base_dir)
    return await optimize(study, proposer, rounds=spec.rounds)


def load_proposer(name: str, base_dir: Path) -> Program:
    """Import a proposer, ``module:function`` or ``gepa``; raises ConfigError."""
    if name != GEPA:
        program = load_program(name, base_dir)
        try:
            inspect.signature(program.function).bind("feedback")
        except TypeError as error:  # no call is paid for a function that cannot be called
            raise ConfigError(f"proposer {name} is to take one argument; {error}") from None
        return program
    if find_spec("gepa") is None:
        raise ConfigError("gepa is not installed: pip install 'bestarm-agent[gepa]'")
    return load_program(_GEPA, base_dir)


def _model(study: Study, leader: Row) -> str:
    """Return the model that a proposer asks."""
    spec = study.parts.config.optimize
    if spec is not None and spec.model is not None:
        return spec.model
    return f"{leader.candidate.provider}/{leader.candidate.model}"


def _check(study: Study, rounds: int) -> None:
    """Check that rounds of a study show what its candidates get wrong; raise ConfigError.

    Raises ValueError if ``rounds`` is below 1.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    config = study.parts.config
    if config.certify is not None or config.gate is not None:
        raise ConfigError(
            "prompts are proposed in studies that look for the best candidate, and this one has a "
            "section `certify` or `gate`; leave it out"
        )
    if config.optimize is not None and config.optimize.model is not None:
        study.proposer.check(config.optimize.model)


async def _run(study: Study, budget: Budget) -> Standing:
    """Run a part of a study.

    A single candidate, which is the best without a call, answers a few examples, so that a proposer
    sees what it gets wrong.
    """
    rows = study.standing().rows
    if len(rows) > 1 or not study.parts.config.selector.stop_when_separated:
        return await study.run(budget, confirm=False)
    few = _FEW if budget.answers is None else min(_FEW, budget.answers)
    return await study.complete([rows[0].candidate.label], replace(budget, answers=few))


def _part(study: Study, parts: int) -> Budget:
    """Return one of ``parts`` equal parts of what is left beyond what confirming will cost."""
    standing, n_kept = study.standing(), len(study.parts.kept_back)
    remaining = less(study.budget, kept_for_confirming(n_kept, standing, study.budget))
    caps = {}
    # ``Study.run`` takes caps on what it uses itself, so what was spent is taken off each cap, and
    # then divided: what a round leaves over is shared by those that follow.
    for cap in fields(Budget):
        limit = getattr(remaining, cap.name)
        if limit is not None:
            source = standing if cap.name == "seconds" else standing.spent
            caps[cap.name] = type(limit)(max(0, (limit - getattr(source, cap.name)) / parts))
    return Budget(**caps)


async def _feedback(
    study: Study,
    standing: Standing,
    leader: Row,
    number: int,
    refused: tuple[tuple[Proposal, str], ...],
) -> Feedback:
    """Return what the proposer sees after round ``number``, with the leader's wrong answers."""
    only = PairFilter(candidate=leader.candidate.id, wrong=True)
    wrong = tuple([pair async for pair in study.outcomes(only=only)][-_WRONG:])
    ask = partial(study.proposer.ask, _model(study, leader), attempt=number)
    return Feedback(number, leader, wrong, standing, refused, ask)


def _program(function: Proposer) -> Program:
    name = getattr(function, "__qualname__", repr(function))
    return Program(name, function, is_async(function), digest="")


async def _proposals(program: Program, feedback: Feedback) -> list[Proposal]:
    """Ask the proposer; raise ConfigError if it fails."""
    try:
        result = await program.called(DaemonThreads(1), feedback)
    except BestarmError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{raised(f'proposer {program.name}', error, program.hidden)}; the run is kept, and "
            f"`bestarm-agent resume {feedback.standing.run_id}` goes on with it"
        ) from error
    proposals = list(result) if isinstance(result, list | tuple) else [result] if result else []
    for proposal in proposals:
        if not isinstance(proposal, str | PromptTemplate | Candidate | Mapping):
            raise ConfigError(
                f"proposer {program.name} returned {proposal!r:.80}; a proposal is a text, a "
                "PromptTemplate, or a prompt or candidate as a study file holds it"
            )
    return proposals


def _join(
    study: Study, proposals: Iterable[Proposal], feedback: Feedback
) -> tuple[tuple[Proposal, str], ...]:
    """Let proposals join; return those that cannot, with the reasons."""
    refused = []
    for number, proposal in enumerate(proposals, start=1):
        name = f"round{feedback.round}-{number}"
        try:
            study.add_candidates([_candidate(proposal, name, feedback.leader.candidate)])
        except ConfigError as error:
            refused.append((proposal, str(error)))
            study.notices += (f"proposal {name} was left out: {error}",)
    return tuple(refused)


def _candidate(proposal: Proposal, name: str, leader: Candidate) -> Candidate | CandidateDict:
    """Return what joins for a proposal; raise ConfigError if a prompt is malformed."""
    if isinstance(proposal, Candidate):
        return proposal
    if isinstance(proposal, Mapping) and "model" in proposal:
        return cast("CandidateDict", proposal)
    if isinstance(proposal, str):
        prompt = PromptTemplate(name, proposal)
    elif isinstance(proposal, PromptTemplate):
        prompt = proposal
    else:
        spec = parse_row(PromptSpec, {"name": name, **proposal}, "the prompt")
        prompt = spec.template(spec.name or name)
    # what a proposer does not write stays as the leader has it: worked examples and tools
    before = leader.prompt
    prompt = replace(prompt, n_shots=before.n_shots, shots=before.shots)
    if not prompt.tools:
        prompt = replace(prompt, tools=before.tools, tool_choice=before.tool_choice)
    return replace(leader, prompt=prompt, label=prompt.name)
