"""A selection in one call: of candidates that a function evaluates, or of a study file.

Both functions run in an event loop of their own, in a thread of its own: so the same line works in
a script and in a notebook, whose own loop is running already.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from itertools import count
from math import nan
from pathlib import Path
from typing import Any, TypeVar

from bestarm_agent.cli.output import stderr_console
from bestarm_agent.cli.progress import LiveTable, Progress
from bestarm_agent.cli.run import frames, print_notices
from bestarm_agent.config.datasets import FileRow, examples_of, input_of
from bestarm_agent.config.functions import Program, is_async, place_of
from bestarm_agent.config.input_specs import DatasetSpec
from bestarm_agent.domain.redaction import own_error
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.domain.text import safe, shortened
from bestarm_agent.domain.threads import DaemonThreads
from bestarm_agent.domain.values import Example, Json, Reply, Request, canonical, clip_rounding
from bestarm_agent.engine.call import MOST_CHARS
from bestarm_agent.engine.loop import End
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.engine.setup.options import Options
from bestarm_agent.errors import Blame, ConfigError, FailureKind, ProviderError, counted
from bestarm_agent.optimization.rounds import run_as_configured
from bestarm_agent.providers.base import Capabilities, Provider, ProviderOptions
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.programs import as_candidate_error, meant_by
from bestarm_agent.selectors.registry import SelectorName
from bestarm_agent.store.store import Store
from bestarm_agent.study import Source, Study, run_in_thread

_NAME = "evaluate"  # of the provider that calls the function
_GIVEN = "as-given"  # the path of a dataset that is handed over, and not read
_CLOSE_SECONDS = 5.0
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of an object, which says nothing to people
_MOST_LABEL = 60  # characters of a candidate's name in tables

C = TypeVar("C")  # of candidates
E = TypeVar("E")  # of examples


def find_best(
    evaluate: Callable[[C, E], object],
    candidates: Iterable[C] | Mapping[str, C],
    examples: Iterable[E],
    *,
    scorer: str | Mapping[str, object] | None = None,
    budget: Budget | None = None,
    confidence: float = 0.95,
    selector: SelectorName = "auto",
    seed: int = 0,
    in_flight: int = 8,
    usd_per_call: float | None = None,
    overrides: Mapping[str, object] | None = None,
    show: bool = True,
) -> Standing:
    """Find the best candidate by a function that evaluates one of them on one example.

    Which pairs are evaluated is chosen while the scores come in, and it ends when no further call
    would change the choice. A call that raises is left out (the intervals get wider), and a warning
    says how many did. Ctrl-C ends it once the calls under way are done; what is known then is
    returned.

    Args:
        evaluate: called with a candidate and an example, as they were given. It returns a score in
            [0, 1] or a bool, None where there is no score, or, with a ``scorer``, a text. Coroutine
            functions run in a loop of their own, others in threads.
        candidates: what is compared, of any kind, such as texts or ``CandidateDict``. Tables name
            each by its entry or attribute ``label``, else by what it is; a mapping gives names.
        examples: of any kind, in anything that can be iterated over; of a DataFrame (pandas,
            polars), a table of Arrow or a data set of Hugging Face the rows, as mappings. With a
            scorer each is a mapping, with the right answer under "target".
        scorer: scores texts; what a study has under ``scorer``.
        budget: the most to spend; None: until nothing is left to learn.
        confidence: of all that is said to be shown, in (0, 1).
        selector: the rule that chooses the pairs.
        seed: of all randomness.
        in_flight: calls at once.
        usd_per_call: the most that a call costs; a budget in dollars needs it.
        overrides: further settings of a study, by dotted key ("stop.within").
        show: whether to show progress on a terminal, or in a notebook's cell.

    Returns:
        The standing. Its ``decision.take`` is the candidate to use, as it was given, its
        ``answers`` are all that were scored, with their texts where the function returned some.

    Raises:
        ConfigError: an argument is wrong, or every call failed.

    Example:
        >>> def evaluate(candidate: int, example: int) -> bool:
        ...     return example % candidate == 0
        >>> standing = find_best(evaluate, [2, 3, 5], range(1000))
        >>> print(standing.decision.take, standing.decision.proved, standing.share < 0.2)
        2 True True
    """
    try:  # before any call is paid for
        with suppress(ValueError):  # some functions written in C do not tell their parameters
            inspect.signature(evaluate).bind("a candidate", "an example")
    except TypeError as error:
        want = f"`evaluate` must be a function of a candidate and an example, got {evaluate!r:.60}"
        raise ConfigError(f"{want}: {error}") from None
    if callable(scorer):
        raise ConfigError("`scorer` names one; a function's score is what `evaluate` returns")
    if not isinstance(in_flight, int):
        raise ConfigError(f"`in_flight` must be a whole number of calls, got {in_flight!r:.60}")
    try:
        usd_nanos = Budget(usd=usd_per_call).usd_nanos
    except ValueError:
        got = f"got {usd_per_call!r:.60}"
        raise ConfigError(f"`usd_per_call` must be dollars, 0 or more, {got}") from None
    if usd_nanos is None and isinstance(budget, Budget) and budget.usd_nanos is not None:
        raise ConfigError("`budget` caps dollars: say what a call costs at most as `usd_per_call`")
    named, rows = _named(candidates), _rows(examples, "examples")
    if not named or (len(named) == 1 and not overrides):  # one may be scored, if that is asked for
        few = "is only one candidate" if named else "are no candidates"
        raise ConfigError(f"there {few}; give at least two")
    with_text = scorer is not None
    rule = {"name": selector, "confidence": confidence, "seed": seed}
    study = _study([label for label, _ in named], scorer, rule, in_flight)
    whole = overrides.get("dataset") if isinstance(overrides, Mapping) else None
    if overrides and isinstance(whole, Mapping):
        overrides = {**overrides, "dataset": {"path": _GIVEN, **whole}}
    loaded = Options().load(study, overrides)
    given = _examples(rows, loaded.config.dataset, with_text=with_text)
    # The function gets what the caller gave, not what the study made of it: ids lead back to the
    # rows, of which `dataset.limit` may have left some out.
    by_id = dict(zip((row.id for row in given), rows, strict=False))
    values = [item for _, item in named]
    limits = loaded.config.limits
    seconds = limits.timeout_seconds if "timeout_seconds" in limits.model_fields_set else None
    provider = _Function(
        evaluate, values, by_id, in_flight, usd_nanos, with_text=with_text, seconds=seconds
    )
    opening = Study.open(
        loaded,
        examples=given,
        # Nothing is written: the candidates are objects of this process, which no later one could
        # call.
        store=Store.in_memory(),
        providers={_NAME: provider},
    )
    standing = _run(opening, budget, show=show, objects=values)
    _report_failures(provider, standing)
    return standing


def _study(
    labels: Sequence[str], scorer: str | Mapping[str, object] | None, rule: object, in_flight: int
) -> dict[str, object]:
    """Return the study that compares what the caller gave, a candidate for each label."""
    return {
        "name": "find-best",
        "candidates": [
            {"model": f"{_NAME}/{i}", "prompt": "as-given", "label": label}
            for i, label in enumerate(labels)
        ],
        "prompts": [{"as-given": "as given"}],
        # A study needs both keys; the examples are handed over, and the prompt is never rendered.
        "dataset": _GIVEN,
        "scorer": "recorded" if scorer is None else scorer,
        "selector": rule,
        "limits": {"in_flight": in_flight},
    }


def select(
    source: Source,
    *,
    budget: Budget | None = None,
    overrides: Mapping[str, object] | None = None,
    show: bool = True,
) -> Standing:
    """Run a study as the command ``select`` does, without its report.

    In a script and in a notebook. Ctrl-C ends it once the calls under way are done.

    Args:
        source: path of a study file, or what one holds.
        budget: the most to spend, within the study's own budget.
        overrides: values that replace the study's, by dotted key ("selector.seed").
        show: whether to show progress on a terminal, or in a notebook's cell.

    Raises:
        ConfigError: the study is wrong; nothing was written.
        StoreError: the store cannot be used.
    """
    return _run(Study.open(source, overrides=overrides), budget, show=show)


class _Function(Provider[ProviderOptions]):
    """Answers by calling ``evaluate``; the model is a candidate's number, the id an example's."""

    def __init__(
        self,
        evaluate: Callable[[Any, Any], Any],
        candidates: Sequence[Any],
        examples: Mapping[str, Any],
        in_flight: int,
        usd_nanos: int | None,  # of a call
        *,
        with_text: bool,  # whether it returns texts for a scorer
        seconds: float | None,  # that a call may take; None: any time
    ) -> None:
        super().__init__(_NAME, ProviderOptions(), Path())
        self.empty = self.cut_off = 0  # calls that returned None, or had not returned at the end
        # by candidate and example: why a call has no score that was to have one
        self.failed: dict[tuple[str, str], ProviderError] = {}
        self._program = Program("the function", evaluate, is_async(evaluate), digest="")
        self._candidates, self._examples = candidates, examples
        self._in_flight = in_flight
        self._usd_nanos, self._with_text, self._seconds = usd_nanos, with_text, seconds

    async def start(self) -> None:
        """Get threads ready."""
        self._threads = DaemonThreads(self._in_flight)

    async def close(self) -> None:
        """Wait some seconds for calls that hang."""
        await self._threads.close(_CLOSE_SECONDS)

    def capabilities(self, model: str) -> Capabilities:
        """Return that a reply depends on the example; prices only if the user gave one."""
        return Capabilities(
            params=frozenset(),
            price_source=None if self._usd_nanos is None else "usd_per_call",
            in_flight=self._in_flight,
            unpriced="say what a call costs at most as `usd_per_call`",
            # Our own time-out applies, where one is asked for: functions may take hours.
            queued=True,
            by_example=True,
            counted=False,
        )

    def bound(self, request: Request) -> Spend:
        """Return one call, at the price that the user gave."""
        return Spend(calls=1, usd_nanos=self._usd_nanos or 0)

    async def generate(self, request: Request) -> Reply:
        """Call the function; raise ProviderError where it returned nothing that can be scored."""
        began = time.monotonic()
        candidate, example = self._candidates[int(request.model)], self._examples[request.example]
        key = request.model, request.example
        try:
            async with asyncio.timeout(self._seconds) as timer:
                # A plain function may block, so it runs in a thread; daemon threads, since one that
                # hangs cannot be ended and must not keep the interpreter alive.
                result = await self._program.called(self._threads, candidate, example)
            text, score = (result, None) if self._with_text else ("", _score(result))
            if self._with_text and not isinstance(text, str | None):
                raise ConfigError(f"with a scorer it must return a text, got {result!r:.60}")
            if len(text or "") > MOST_CHARS:
                raise ConfigError(f"it returned {len(text):,} characters; most: {MOST_CHARS:,}")
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            # The end of the run, unless the function let a cancellation of its own get out; a
            # thread goes on by itself, its result is lost.
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                self.cut_off += 1
                raise
            failed = self._failure(own_error(error), is_late=timer.expired())
            if failed.blame is not Blame.CANDIDATE:
                self.failed[key] = failed
            raise failed from error
        self.failed.pop(key, None)  # it was repeated
        if text is None or result is None:
            self.empty += 1
            raise failure(FailureKind.INTERNAL, "the function returned None: there is no score")
        seconds, usd = time.monotonic() - began, self._usd_nanos
        return Reply(text, score=score, seconds=seconds, usd_nanos=usd, recorded=score is not None)

    def _failure(self, error: BaseException, *, is_late: bool) -> ProviderError:
        """Return what an error means: of a model that the function called, or of the function."""
        late = f"the function did not return within {self._seconds} s; raise "
        late += "`limits.timeout_seconds` if it is slow"
        if meant := meant_by(error, self._program, late if is_late else ""):
            return as_candidate_error(meant, "the function", {})
        said = f"{type(error).__name__}: {error}{place_of(error, self._program)}"
        return failure(FailureKind.INTERNAL, said)


def _run(
    opening: AbstractAsyncContextManager[Study],
    budget: Budget | None,
    *,
    show: bool,
    objects: Sequence[object] = (),  # the caller's candidates, of a study whose store goes with it
) -> Standing:
    """Run a study in a thread, with progress."""

    async def run(study: Study) -> Standing:
        study.objects = tuple(objects)
        if objects and study.parts.config.optimize is not None:
            raise ConfigError("`optimize` proposes prompts, and a function's candidates have none")
        console, known = stderr_console(), study.notices
        progress = LiveTable(console) if show and console.is_terminal else Progress()
        if show:
            print_notices(console, known)
        with progress:
            async with frames(study, progress):
                standing = await run_as_configured(study, budget)
        if show:
            print_notices(console, study.notices[len(known) :])
        if objects:
            # The store in memory is gone once the study closes.
            answers = [pair async for pair in study.outcomes() if pair.score is not None]
            standing = replace(standing, answers=tuple(answers))
        return standing

    return run_in_thread(opening, run)


def _report_failures(provider: _Function, standing: Standing) -> None:
    """Warn of calls that failed or hung; raise ConfigError if no call has a score."""
    n_failed, first = len(provider.failed), next(iter(provider.failed.values()), None)
    the_first = f"; the first: {first}" if first is not None else ""
    # Some failures are a warning: the intervals count them at their worst. Without any score there
    # is nothing to return.
    if standing.end == End.FAILURES and not any(row.n for row in standing.rows):
        hung = f", {provider.cut_off:,} had not returned at the end" if provider.cut_off else ""
        raise ConfigError(
            f"no call of the function could be scored: {n_failed:,} failed, "
            f"{provider.empty:,} returned None{hung}{the_first}"
        ) from first
    failed = f"failed and are left out{the_first}"
    for n, what in (n_failed, failed), (provider.cut_off, "had not returned at the end"):
        if n:
            calls = f"{counted(n, 'call')} of {standing.asked:,}"
            warnings.warn(f"{calls} {what}", RuntimeWarning, stacklevel=3)


def _score(result: object) -> float | None:
    """Return a score, None where there is none; raise ConfigError for anything else."""
    if result is None:
        return None
    if isinstance(result, str):
        raise ConfigError(f"it returned the text {result!r:.60}; name a scorer: scorer='exact'")
    score = nan
    if not isinstance(result, bytes):  # which ``float`` reads as a text
        with suppress(TypeError, ValueError, OverflowError):
            score = clip_rounding(float(result))  # type: ignore[arg-type]
    if not 0.0 <= score <= 1.0:  # NaN is none either
        rule = "a score must be a number in [0, 1], or None where there is none"
        raise ConfigError(f"{rule}, got {result!r:.60}")
    return score


def _named(candidates: Iterable[Any]) -> list[tuple[str, Any]]:
    """Name candidates, each in a line: those of different names by different labels."""
    if isinstance(candidates, Mapping):
        given = [(str(name), item) for name, item in candidates.items()]
    else:
        given = [(_name(item), item) for item in _rows(candidates, "candidates")]
    labelled, taken = list[tuple[str, Any]](), dict[str, str]()  # names by label
    for name, candidate in given:
        # An address (0x7f...) in a repr differs from run to run, and says nothing.
        line = " ".join(safe(_ADDRESS.sub("", name)).split()) or "(empty)"
        line = shortened(line, _MOST_LABEL)
        # Two texts can share their beginning, which is all that a label shows of them.
        labels = (line if n == 1 else f"{line} #{n}" for n in count(1))
        label = next(text for text in labels if taken.get(text, name) == name)
        if label in taken:
            second = f"`candidates[{len(labelled)}]` is the second candidate called {label!r}"
            raise ConfigError(f"{second}; leave it out, or give a mapping, with names of your own")
        taken[label] = name
        labelled.append((label, candidate))
    return labelled


def _name(item: Any) -> str:  # noqa: ANN401
    """Return what a candidate is called, or all that it is."""
    if isinstance(item, Mapping):
        return str(item.get("label") or " ".join(f"{key}={value}" for key, value in item.items()))
    if isinstance(item, list | tuple):
        return " ".join(map(str, item))
    label, name = (getattr(item, attribute, None) for attribute in ("label", "__name__"))
    if isinstance(label, str) and label:
        return label
    # two functions may have one name, as lambdas do: their addresses tell them apart
    return f"{name} at {id(item):#x}" if isinstance(name, str) and name else str(item)


def _rows(given: Any, what: str) -> list[Any]:  # noqa: ANN401
    """Return the rows of a table as mappings, or what an iterable holds."""
    if isinstance(given, str | bytes | Mapping):
        kind = "a mapping" if isinstance(given, Mapping) else "one text"
        way_out = "one of its values, or the list of them" if kind == "a mapping" else "a list"
        raise ConfigError(f"`{what}` is {kind}; give {way_out}")
    # Recognised by what they can do, so that none of these libraries has to be installed.
    if hasattr(given, "collect") and hasattr(given, "lazy"):  # polars has yet to compute it
        given = given.collect()
    for rows in ("to_dicts", "to_pylist"):  # a DataFrame of polars, a table of Arrow
        if hasattr(given, rows):
            return list(getattr(given, rows)())
    if hasattr(given, "to_dict") and hasattr(given, "columns"):  # one of pandas
        return list(given.to_dict("records"))
    try:
        return list(given)
    except TypeError:
        raise ConfigError(f"`{what}` is {given!r:.60}, which holds none; give a list") from None


def _content(row: object, raw: Collection[str] = ()) -> dict[str, Json]:
    """Return the fields of an example, as JSON; none where nothing tells it from a copy.

    The function gets the row itself, so a field that is no JSON stands as its text here; not so
    those of the target, ``raw``: what cannot be one is refused.
    """
    named = isinstance(row, Mapping) and all(isinstance(key, str) for key in row)
    content: Any = row if named else {"example": row}
    try:
        canonical([*content]).encode()
        fields = {k: v if k in raw else _as_json(input_of(v)) for k, v in content.items()}
    except Exception:  # of an object that cannot be written
        return {}
    return {} if row is None else fields  # None stands for draws of nothing in particular


def _as_json(value: Any) -> Any:  # noqa: ANN401
    """Return a value as JSON: numbers and lists of numpy as Python's, what is none as its text."""
    with suppress(TypeError, ValueError, RecursionError):
        canonical(value).encode()
        return value
    with suppress(AttributeError, TypeError, ValueError):
        # half of a surrogate pair becomes a question mark; NaN, which tables have for what is
        # missing, and infinity become None
        written = json.dumps(value, default=lambda held: held.tolist(), ensure_ascii=False)
        return json.loads(written.encode(errors="replace"), parse_constant=lambda _: None)
    return str(value).encode(errors="replace").decode()


def _examples(rows: Sequence[Any], spec: DatasetSpec, *, with_text: bool) -> tuple[Example, ...]:
    """Turn rows into examples; where the function returns texts, they carry the target."""
    if (spec.path, spec.format) != (_GIVEN, "auto"):
        raise ConfigError("the examples are given, so none are read; leave out `path` and `format`")
    if not rows:
        raise ConfigError("there are no examples; give at least one")
    if not with_text and not {"id", "target", "fields", "drop"} & spec.model_fields_set:
        return tuple(Example(str(i), _content(row)) for i, row in enumerate(rows[: spec.limit]))
    if with_text and not all(isinstance(row, Mapping) for row in rows):
        raise ConfigError("with a scorer, an example is a mapping; its answer is under 'target'")
    if with_text and spec.target is None and any("target" in row for row in rows):
        spec = spec.model_copy(update={"target": "target"})
    target = spec.target or ""
    raw = (target, target.partition(".")[0])
    file_rows = (FileRow(f"examples[{i}]", _content(row, raw)) for i, row in enumerate(rows))
    return examples_of(file_rows, spec, "`examples`")
