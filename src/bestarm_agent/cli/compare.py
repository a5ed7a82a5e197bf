"""``compare``: candidates on the same examples, of one run or of two, or of files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from rich.text import Text

from bestarm_agent.cli.given import Given
from bestarm_agent.cli.output import (
    fitted,
    numbers,
    print_json,
    print_table,
    say,
    score_text,
    stdout_console,
)
from bestarm_agent.cli.result_output import print_mode_result
from bestarm_agent.cli.run import check_targets, verdict_code, write_file
from bestarm_agent.cli.stored import SHOWN, answer_text
from bestarm_agent.cli.stores import find_run
from bestarm_agent.domain.text import percent, safe, signed, signed_range
from bestarm_agent.engine.mode import ModeResult, ModeRow
from bestarm_agent.engine.results.compare import Flip, PairedComparison, Verdict
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.gate import summary
from bestarm_agent.gate.pairs import worst
from bestarm_agent.interop.formats import is_log_file
from bestarm_agent.report import words
from bestarm_agent.simulation.score_matrices import is_score_file
from bestarm_agent.stats.non_inferiority import Conclusion
from bestarm_agent.store.export import PairOutcome
from bestarm_agent.study import Archive

if TYPE_CHECKING:
    from bestarm_agent.interop.paired import FileComparisons

_CONFIDENCE = 0.95  # of all intervals together
# of B, by who is proved to be better: in words, and what follows for CI
_VERDICTS: Mapping[Verdict, tuple[str, Conclusion]] = {
    "a": ("worse", Conclusion.FAILED),
    "b": ("better", Conclusion.PASSED),
    "about equal": ("about equal", Conclusion.PASSED),
    "undecided": ("undecided", Conclusion.UNDECIDED),
}
# question, target, and both answers
_Texts: TypeAlias = tuple[str | None, str | None, str, str]
_INDENT = len("  question  ")
_AROUND = 24  # characters shown before and after what differs


def compare(
    given: Given,
    sources: Sequence[str],
    between: tuple[str, str] | None,
    everything: bool,
    metrics: Sequence[str],
    cluster: str | None,
    markdown: Path | None,
) -> int:
    """Compare candidates; show the examples on which two differ, with both answers."""
    # A name may be a run's or a file's. All of one kind, or none: a run has candidates, examples
    # and clusters by its study, a file by its columns, and the two cannot be matched.
    files = [is_log_file(name) or is_score_file(name) or Path(name).is_file() for name in sources]
    if all(files) and files:
        from bestarm_agent.interop.paired import compare_files

        check_targets(markdown)
        compared = compare_files(
            sources, between=between, confidence=_CONFIDENCE, metrics=metrics, cluster=cluster
        )
        return _show_files(compared, given, everything, markdown)
    if any(files):
        raise ConfigError(
            f"{sources[files.index(False)]!r} is no file, and is to be compared with one; "
            "`bestarm-agent export RUN --out FILE.csv` writes the scores of a run"
        )
    if markdown or metrics or cluster:
        raise ConfigError(
            "--metric, --cluster and --markdown are for files; the study of a run says how it "
            "scores and what belongs together, and `report --format md` writes about it"
        )
    if len(sources) > 2 or (len(sources) < 2 and between is None):
        raise ConfigError("name two candidates (--between A B), or a second run; or files")
    where, run = find_run(sources[0] if sources else None, given.store)
    other = sources[1] if len(sources) > 1 else None
    archive = Archive(where)
    comparison = asyncio.run(archive.compared(run, other, between, _CONFIDENCE))
    if given.as_json:
        print_json(_as_json(comparison))
        return 0
    _print(comparison)
    flips = comparison.flips if everything else comparison.flips[:SHOWN]
    pairs_a = asyncio.run(_pairs(archive, run, [flip.seq_a for flip in flips]))
    pairs_b = asyncio.run(_pairs(archive, other or run, [flip.seq_b for flip in flips]))
    answers = zip(pairs_a, pairs_b, strict=True)
    texts = [(words.question_of(a), a.target, answer_text(a), answer_text(b)) for a, b in answers]
    _print_flips(comparison, flips, texts)
    return 0


def _show_files(
    compared: FileComparisons, given: Given, everything: bool, markdown: Path | None
) -> int:
    first, *others = compared.comparisons
    result = _result(compared)
    if markdown is not None:
        write_file(markdown, summary.markdown(result, f"with {first.a}"))
    if given.as_json or others:
        print_mode_result(result, as_json=given.as_json)
    else:
        _print(first, compared.notes)
        flips = first.flips if everything else first.flips[:SHOWN]
        of = compared.result
        results = [(of(first.a, f.seq_a), of(first.b, f.seq_b)) for f in flips]
        _print_flips(first, flips, [(a.question, None, a.said, b.said) for a, b in results])
    return verdict_code(result.verdict)


def _result(compared: FileComparisons) -> ModeResult:
    """Return comparisons in the form of a gate's verdicts on all candidates but the first."""
    rows = []
    for c in compared.comparisons:
        gap, a, b = c.difference, safe(c.a), safe(c.b)
        word, verdict = _VERDICTS[c.verdict]
        # comparisons say a minus b, a gate challenger minus baseline
        numbers = f"{c.n:,}", percent(c.mean_b), signed(-c.seen.value)
        interval = signed_range(-gap.upper, -gap.lower)
        line = f"{c.metric}: {words.seen_line(c, a, b)}; {words.comparison_line(c, a, b)}"
        rows.append(ModeRow((f"{b}, {c.metric}", word, *numbers, interval), verdict, line))
    left_out = (safe(line) for c in compared.comparisons for line in words.paired_lines(c))
    verdict = worst(row.verdict for row in rows)
    return ModeResult(
        title="Comparison",
        note="Differences are a candidate minus the first, in points, on the same examples.",
        ranking="",
        columns=("Candidate", "Verdict", "Examples", "Mean", "Difference", "On new examples"),
        rows=tuple(rows),
        lines=(*(row.said for row in rows), *dict.fromkeys(left_out), *compared.notes),
        verdict=verdict,
        marks={},
        as_json={
            "verdict": verdict.value,
            "comparisons": [*map(_as_json, compared.comparisons)],
            "notes": compared.notes,
        },
    )


def _as_json(comparison: PairedComparison) -> dict[str, object]:
    return {"n": comparison.n, **asdict(comparison)}


async def _pairs(archive: Archive, run: str, seqs: Sequence[int]) -> list[PairOutcome]:
    async with archive.texts(run) as texts:
        return [pair async for page in texts.pages(seqs) for pair in page]


def _print_flips(c: PairedComparison, flips: Sequence[Flip], texts: Sequence[_Texts]) -> None:
    """Print of each the question, the target and both answers, what differs marked."""
    for flip, (question, target, a, b) in zip(flips, texts, strict=True):
        _print_flip(flip, {"question": question, "target": target}, a, b)
    if (n_more := len(c.flips) - len(flips)) > 0:
        click.echo(f"... and {n_more:,} more: --all shows them")


def _print_flip(flip: Flip, known: Mapping[str, str | None], a: str, b: str) -> None:
    console = stdout_console()
    width = console.width - _INDENT
    scores = f"A {score_text(flip.score_a)}, B {score_text(flip.score_b)}"
    console.print(Text(safe(f"{flip.example}: {scores}"), style="bold"), soft_wrap=True)
    lines = [(k, Text(fitted(_line(text), width, "end"))) for k, text in known.items() if text]
    if a or b:  # tables of scores hold no answers
        answers = words.marked(_line(a), _line(b))
        lines += zip("AB", (_marked(*parts, width) for parts in answers), strict=True)
    for name, text in lines:
        console.print(Text(f"  {name}".ljust(_INDENT)).append_text(text), soft_wrap=True)


def _line(text: str) -> str:
    return safe(" ".join(text.split()))


def _marked(before: str, differs: str, after: str, width: int) -> Text:
    before, after = fitted(before, _AROUND, "end"), fitted(after, _AROUND, "start")
    room = max(_AROUND, width - len(before) - len(after) - len("«»"))
    return Text.assemble(before, (f"«{fitted(differs, room, 'end')}»", "bold"), after)


def _print(c: PairedComparison, notes: Sequence[str] = ()) -> None:
    metric = [] if c.metric is None else [f"score: {c.metric}"]
    a, b = words.compared_names(c)
    say(f"A = {a}", f"B = {b}", *metric, "", *words.paired_lines(c), *notes)
    click.echo()
    print_table(
        ["", *numbers("B right", "B wrong")],
        [
            ["A right", f"{c.both:,}", f"{c.only_a:,}"],
            ["A wrong", f"{c.only_b:,}", f"{c.neither:,}"],
        ],
    )
    say("", f"mean of A {percent(c.mean_a)}, of B {percent(c.mean_b)}", words.seen_line(c))
    say(words.comparison_line(c), "")
    if c.flips:
        say(f"They differ on {counted(len(c.flips), 'example')}:")
    else:
        say("They score alike on all of these.")
