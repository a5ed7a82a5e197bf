"""``compare``: candidates on the same examples, of one run or of two, or of files."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from rich.text import Text

from bestarm_agent.cli.answers import SHOWN, said
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
from bestarm_agent.cli.stores import find_run
from bestarm_agent.domain.text import safe
from bestarm_agent.engine.mode import ModeResult, ModeRow
from bestarm_agent.engine.results.compare import Flip, PairedComparison, Verdict
from bestarm_agent.errors import ConfigError, counted
from bestarm_agent.gate import summary
from bestarm_agent.gate.pairs import worst
from bestarm_agent.interop.formats import is_log_file
from bestarm_agent.report.words import comparison_line, marked, question_of, seen_line
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
    files = [is_log_file(one) or is_score_file(one) or Path(one).is_file() for one in sources]
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
    where, one = find_run(sources[0] if sources else None, given.store)
    other = sources[1] if len(sources) > 1 else None
    archive = Archive(where)
    found = asyncio.run(archive.compared(one, other, between, _CONFIDENCE))
    if given.as_json:
        print_json(_as_json(found))
        return 0
    _print(found)
    flips = found.flips if everything else found.flips[:SHOWN]
    pairs_a = asyncio.run(_pairs(archive, one, [flip.seq_a for flip in flips]))
    pairs_b = asyncio.run(_pairs(archive, other or one, [flip.seq_b for flip in flips]))
    answers = zip(pairs_a, pairs_b, strict=True)
    _print_flips(found, flips, [(question_of(a), a.target, said(a), said(b)) for a, b in answers])
    return 0


def _show_files(
    found: FileComparisons, given: Given, everything: bool, markdown: Path | None
) -> int:
    one, *more = found.comparisons
    result = _result(found)
    if markdown is not None:
        write_file(markdown, summary.markdown(result, f"with {one.a}"))
    if given.as_json or more:
        print_mode_result(result, as_json=given.as_json)
    else:
        _print(one, found.notes)
        flips = one.flips if everything else one.flips[:SHOWN]
        both = [(found.result(one.a, f.seq_a), found.result(one.b, f.seq_b)) for f in flips]
        _print_flips(one, flips, [(a.question, None, a.said, b.said) for a, b in both])
    return verdict_code(result.verdict)


def _result(found: FileComparisons) -> ModeResult:
    """Return comparisons in the form of a gate's verdicts on all candidates but the first."""
    rows = []
    for one in found.comparisons:
        gap, a, b = one.difference, safe(one.a), safe(one.b)
        word, verdict = _VERDICTS[one.verdict]
        numbers = f"{one.n:,}", f"{one.mean_b:.3f}", f"{0.0 - one.seen.value:+.3f}"
        interval = f"[{0.0 - gap.upper:+.3f}, {0.0 - gap.lower:+.3f}]"
        line = f"{one.metric}: {seen_line(one, a, b)}; {comparison_line(one, a, b)}"
        rows.append(ModeRow((f"{b}, {one.metric}", word, *numbers, interval), verdict, line))
    left_out = (safe(line) for one in found.comparisons for line in _paired_lines(one))
    verdict = worst(row.verdict for row in rows)
    return ModeResult(
        title="Comparison",
        note="Differences are a candidate minus the first, on the same examples.",
        ranking="",
        columns=("Candidate", "Verdict", "Examples", "Mean", "Difference", "On new examples"),
        rows=tuple(rows),
        lines=(*(row.said for row in rows), *dict.fromkeys(left_out), *found.notes),
        verdict=verdict,
        marks={},
        as_json={
            "verdict": verdict.value,
            "comparisons": [*map(_as_json, found.comparisons)],
            "notes": found.notes,
        },
    )


def _as_json(found: PairedComparison) -> dict[str, object]:
    return {"n": found.n, **asdict(found)}


async def _pairs(archive: Archive, run: str, seqs: Sequence[int]) -> list[PairOutcome]:
    async with archive.texts(run) as texts:
        return [pair async for page in texts.pages(seqs) for pair in page]


def _print_flips(found: PairedComparison, flips: Sequence[Flip], texts: Sequence[_Texts]) -> None:
    """Print of each the question, the target and both answers, what differs marked."""
    for flip, (question, target, a, b) in zip(flips, texts, strict=True):
        _print_flip(flip, {"question": question, "target": target}, a, b)
    if (more := len(found.flips) - len(flips)) > 0:
        click.echo(f"... and {more:,} more: --all shows them")


def _print_flip(flip: Flip, known: Mapping[str, str | None], a: str, b: str) -> None:
    console = stdout_console()
    width = console.width - _INDENT
    scores = f"A {score_text(flip.score_a)}, B {score_text(flip.score_b)}"
    console.print(Text(safe(f"{flip.example}: {scores}"), style="bold"), soft_wrap=True)
    shown = [(k, Text(fitted(_line(text), width, "end"))) for k, text in known.items() if text]
    answers = marked(_line(a), _line(b))
    shown += zip("AB", (_marked(*parts, width) for parts in answers), strict=True)
    for name, text in shown:
        console.print(Text(f"  {name}".ljust(_INDENT)).append_text(text), soft_wrap=True)


def _line(text: str) -> str:
    return safe(" ".join(text.split()))


def _marked(before: str, differs: str, after: str, width: int) -> Text:
    before, after = fitted(before, _AROUND, "end"), fitted(after, _AROUND, "start")
    room = max(_AROUND, width - len(before) - len(after) - len("«»"))
    return Text.assemble(before, (f"«{fitted(differs, room, 'end')}»", "bold"), after)


def _print(found: PairedComparison, notes: Sequence[str] = ()) -> None:
    metric = [] if found.metric is None else [f"score: {found.metric}"]
    say(f"A = {found.a}", f"B = {found.b}", *metric, "", *_paired_lines(found), *notes)
    click.echo()
    print_table(
        ["", *numbers("B right", "B wrong")],
        [
            ["A right", f"{found.both:,}", f"{found.only_a:,}"],
            ["A wrong", f"{found.only_b:,}", f"{found.neither:,}"],
        ],
    )
    say("", f"mean of A {found.mean_a:.3f}, of B {found.mean_b:.3f}", seen_line(found))
    say(comparison_line(found), "")
    if found.flips:
        say(f"They differ on {counted(len(found.flips), 'example')}:")
    else:
        say("They score alike on all of these.")


def _paired_lines(found: PairedComparison) -> list[str]:
    """Say which examples count, and which do not."""
    common = f"{found.n:,} of {found.n_examples:,} examples were scored for both"
    lines = [f"{common}; only they count here"]
    for name, label in (("a", found.a), ("b", found.b)):
        if rest := getattr(found, f"scored_{name}") - found.n:
            lines.append(f"  {rest:,} scored for {name.upper()} ({label}) alone, and left out")
        if unpaired := getattr(found, f"unpaired_{name}"):
            lines.append(f"  {counted(unpaired, 'example')} only in {name.upper()}'s ({label})")
    return lines
