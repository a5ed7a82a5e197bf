"""Replays of rules on a score matrix, with their answers at several budgets.

1. ``SimulatedCalls`` shuffles the matrix's rows and columns: rules break ties by index, and files
   are often sorted by score.
2. ``replay`` makes the rule, asks it for pairs, and tells it their scores.
3. Whenever as many pairs as a budget allows are evaluated, the rule's answer is noted.

Several rules over many seeds are replayed in parallel; users write them as
``ucb-e,ucb-e[eta=0.3,batch=16]``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from bestarm_agent.errors import ConfigError
from bestarm_agent.selectors.pairs import Pairs
from bestarm_agent.selectors.registry import make_selector
from bestarm_agent.selectors.types import Ask, Problem, State, Tell
from bestarm_agent.stats.keyed_random import KeyedRandom

_DONE, _VOID = State.DONE, State.VOID  # looking a member up costs more than a score (Python 3.11)


class SimulatedCalls:
    """The calls of one seed >= 0, answered from (K, N) scores; a NaN comes back void.

    Attributes:
        rows: the matrix's row of each candidate, and ``columns`` the column of each example.
        shape: (K, N).
    """

    def __init__(self, scores: NDArray[Any], seed: int) -> None:
        self._scores = scores
        self.shape: tuple[int, int] = scores.shape
        # Permutations of their own for rows and columns, keyed by the seed: the same seed shuffles
        # alike for all rules, so that rules are compared on the same draws.
        self.rows, self.columns = (
            KeyedRandom(seed, f"simulation {side}").at(0).permutation(n).tolist()
            for side, n in zip(("rows", "columns"), self.shape, strict=True)
        )

    def outcome(self, ask: Ask) -> Tell:
        """Evaluate a pair."""
        score = self._scores.item(self.rows[ask.pair.candidate], self.columns[ask.pair.example])
        if score != score:  # NaN differs from itself
            return Tell(ask.seq, _VOID)
        return Tell(ask.seq, _DONE, score)


@dataclass(frozen=True, slots=True)
class ReplayAnswer:
    """A rule's answer at a budget. Candidates are rows of the unshuffled matrix."""

    budget: int  # pairs that might be evaluated
    evaluated: int  # pairs that were; fewer if the rule had nothing more to ask
    best: int  # the rule's own verdict
    ranking: tuple[int, ...]  # the rule's order of the candidates, the first ``depth`` of them


@dataclass(frozen=True, slots=True)
class Replay:
    """One rule, replayed."""

    answers: tuple[ReplayAnswer, ...]  # one per budget, in their order
    pulls: int  # pairs evaluated, all reruns together
    cpu_seconds: float  # processor time of asking and telling; 1 to 2 us a pull are simulation


def replay(
    make: Callable[[Problem], Pairs],
    calls: SimulatedCalls,
    budgets: Sequence[int],
    *,
    seed: int = 0,
    batch: int = 1,
    depth: int = 10,
) -> Replay:
    """Run a rule on simulated calls.

    An anytime rule runs once and answers at each budget. A rule that plans for its budget runs
    again for each one. Intervals are not computed.

    Args:
        make: builds the rule for a problem.
        calls: answers what it asks.
        budgets: rising numbers of pairs, from 1.
        seed: the rule's own seed, >= 0.
        batch: pairs asked together, and all told before the next are asked, >= 1.
        depth: places that ``ReplayAnswer.ranking`` keeps.
    """
    if not budgets or list(budgets) != sorted(set(budgets)) or budgets[0] < 1:
        raise ValueError(f"budgets must be rising numbers of at least 1, got {list(budgets)}")

    def start(budget: int) -> Pairs:
        return make(Problem(*calls.shape, seed=seed, budget=budget, track_intervals=False))

    begun = time.process_time()
    pairs = start(budgets[-1])
    # Such a rule asks the same pairs whatever its budget is, so its answer at a smaller budget is
    # the one that it would have given then.
    if pairs.rule.anytime:
        answers = _answers(pairs, calls, budgets, batch, depth)
        pulls = answers[-1].evaluated
    else:
        answers = [_answers(start(limit), calls, [limit], batch, depth)[0] for limit in budgets]
        pulls = sum(answer.evaluated for answer in answers)
    return Replay(tuple(answers), pulls, time.process_time() - begun)


def _answers(
    pairs: Pairs, calls: SimulatedCalls, budgets: Sequence[int], batch: int, depth: int
) -> list[ReplayAnswer]:
    """Ask up to each budget in turn; a rule that stops early says the same at all later ones."""
    answers, evaluated = [], 0
    for budget in budgets:
        # The last batch is cut, so that a budget is met exactly.
        while asks := pairs.ask(min(batch, budget - evaluated)):
            pairs.tell([calls.outcome(ask) for ask in asks])
            evaluated += len(asks)
        # Back to the rows of the file: a rule knows the shuffled ones only.
        best, ranking = calls.rows[pairs.answer.best().best], pairs.answer.leading(depth)
        answers.append(ReplayAnswer(budget, evaluated, best, tuple(calls.rows[i] for i in ranking)))
    return answers


Option: TypeAlias = bool | int | float | str

# "ucb-e" or "ucb-e[eta=0.3,batch=16]": a name, and options in brackets, whose commas are no
# separators.
_CONTENDER = re.compile(r"([^\[\],]+)(?:\[([^\[\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Contender:
    """A rule with its parameters."""

    label: str  # name in tables and figures
    name: str  # name in the registry
    options: tuple[tuple[str, Option], ...] = ()  # its parameters

    def make(self, problem: Problem) -> Pairs:
        """Make the selector; raises ValueError if the rule refuses name, options or problem."""
        return make_selector(self.name, problem, **dict(self.options))


_Task: TypeAlias = tuple[Contender, int]  # a rule and a seed


def parse_contenders(text: str) -> tuple[Contender, ...]:
    """Read a comma-separated list of rules, each with parameters in brackets or without.

    Example:
        >>> [c.options for c in parse_contenders("uniform,ucb-e[eta=0.3]")]
        [(), (('eta', 0.3),)]
    """
    contenders, position = [], 0
    while position < len(text):
        match = _CONTENDER.match(text, position)
        end = match.end() if match else position
        if match is None or not match[1].strip() or text[end : end + 1] not in ("", ","):
            raise ConfigError(
                f"cannot read the selectors {text!r} from {text[position:]!r} on;"
                " write them as NAME or NAME[OPTION=VALUE,...], separated by commas"
            )
        label, parts = match[0].strip(), (match[2] or "").split(",")
        options = tuple(_option(label, part) for part in parts if part.strip())
        contenders.append(Contender(label, match[1].strip(), options))
        position = end + 1
    labels = [contender.label for contender in contenders]
    if repeated := {label for label in labels if labels.count(label) > 1}:
        raise ConfigError(f"selector {min(repeated)!r} is named twice; leave one out")
    if not contenders:
        raise ConfigError("name at least one selector, for example --selectors ucb-e")
    return tuple(contenders)


def _option(label: str, pair: str) -> tuple[str, Option]:
    key, equals, value = (part.strip() for part in pair.partition("="))
    if not (key and equals and value):
        raise ConfigError(f"option {pair!r} of selector {label!r} must be written OPTION=VALUE")
    if value in ("true", "false"):
        return key, value == "true"
    # An int first, so that "16" stays a whole number.
    for number in (int, float):
        try:
            return key, number(value)
        except ValueError:
            continue
    return key, value


def budget_shares(low: float, high: float, points: int) -> tuple[float, ...]:
    """Return geometrically spaced shares from ``low`` to ``high``, both included.

    Example:
        >>> budget_shares(0.01, 0.04, 3)
        (0.01, 0.02, 0.04)
    """
    shares = np.geomspace(low, high, points) if points > 1 else np.array([high])
    return tuple(float(f"{share:.6g}") for share in shares)


def replay_all(
    scores: NDArray[Any],
    contenders: Sequence[Contender],
    shares: Sequence[float],
    n_seeds: int,
    *,
    jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[Replay]]:
    """Replay every contender on every seed; return by label its replays, one per seed in order.

    Args:
        scores: (K, N) in [0, 1], NaN where it cannot be measured.
        contenders: rules with different labels.
        shares: rising shares of the K x N cells to answer at, in (0, 1].
        n_seeds: repetitions, >= 1; each shuffles the matrix.
        jobs: processes, >= 1; with 1 all runs in this process. The result does not depend on it.
        progress: called with (runs done, runs in all).

    Raises:
        ValueError: a number is out of range, or a rule refuses its name, options or the problem.
    """
    rising = list(shares) == sorted(set(shares))
    if not (shares and rising and shares[0] > 0 and shares[-1] <= 1):
        raise ValueError(f"budgets must be rising shares of all calls in (0, 1], got {shares}")
    for name, number in (("seeds", n_seeds), ("jobs", jobs)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    budgets = sorted({max(1, round(share * scores.size)) for share in shares})
    n_candidates, n_examples = scores.shape
    for contender in contenders:  # a wrong name or option fails before any work is done
        contender.make(Problem(n_candidates, n_examples, budget=budgets[-1]))
    # Seed by seed, so that all rules have as many seeds when a run is watched, or stopped, in the
    # middle.
    tasks = [(contender, seed) for seed in range(n_seeds) for contender in contenders]
    done: dict[tuple[str, int], Replay] = {}
    here = ((task, _run(scores, task, budgets)) for task in tasks)
    results = here if jobs == 1 else _run_in_processes(scores, tasks, budgets, jobs)
    for (contender, seed), result in results:
        done[contender.label, seed] = result
        if progress is not None:
            progress(len(done), len(tasks))
    return {c.label: [done[c.label, seed] for seed in range(n_seeds)] for c in contenders}


def _run(scores: NDArray[Any], task: _Task, budgets: Sequence[int]) -> Replay:
    contender, seed = task
    return replay(contender.make, SimulatedCalls(scores, seed), budgets, seed=seed)


def _run_in_processes(
    scores: NDArray[Any], tasks: Sequence[_Task], budgets: Sequence[int], jobs: int
) -> Iterator[tuple[_Task, Replay]]:
    """Run tasks in spawned processes that map the scores from one file."""
    with TemporaryDirectory(prefix="bestarm-") as folder:
        shared = Path(folder) / "scores.npy"
        # A file that every process maps: the scores are in memory once, however many processes
        # there are.
        np.save(shared, scores)
        # A forked process would inherit the locks of threads that it does not have.
        context = get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker) as pool:
            futures = {pool.submit(_run_in_worker, shared, task, budgets): task for task in tasks}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(cancel_futures=True)


def _run_in_worker(shared: Path, task: _Task, budgets: Sequence[int]) -> Replay:
    scores = np.asarray(np.load(shared, mmap_mode="r", allow_pickle=False))
    return _run(scores, task, budgets)


def _begin_worker() -> None:
    """Keep linear algebra to one thread, and end this process when its parent is killed."""
    # The processes themselves share the cores; threads of each would only compete for these.
    threadpool_limits(1, "blas")
    # A parent that is killed cannot end its workers. The sentinel becomes ready when it has died.
    parent = parent_process()
    if parent is not None:
        Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)  # the main thread may be deep in a replay, or wait for a task that never comes
