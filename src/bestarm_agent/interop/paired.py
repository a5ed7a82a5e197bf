"""Results in files of any known format, compared on the examples that they share.

The first candidate is the baseline; every other is compared with it, in each metric. An example is
known by its id, and by its input where two files number it differently. Several results of an
example, such as epochs, are one draw: their mean; so are the examples of a cluster.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from bestarm_agent.domain.values import clip_rounding, digest
from bestarm_agent.engine.results.compare import Compared, Flip, PairedComparison, compare_scores
from bestarm_agent.errors import ConfigError, counted, nearest
from bestarm_agent.interop.formats import Result, label_candidates, read_results
from bestarm_agent.interop.logs import check_range, metric_choices


@dataclass(slots=True)
class Side:
    """The results of a candidate."""

    label: str
    files: list[str]
    examples: dict[str, list[Result]]  # by task and id
    inputs: set[str | None] = field(default_factory=set)

    @property
    def metrics(self) -> list[str]:
        """Return the names of its scores."""
        return [*dict.fromkeys(n for rs in self.examples.values() for r in rs for n in r.scores)]

    def scores(self, example: str, metric: str) -> float:
        """Return the mean score of an example's results; NaN if none has a score."""
        scored = [r for r in self.examples[example] if metric in r.scores]
        of = metric, ", ".join(self.files)
        by_repeat = {r.repeat: check_range(r.scores[metric], *of) for r in scored}
        return fmean(by_repeat.values()) if by_repeat else math.nan


@dataclass(frozen=True, slots=True)
class FileComparisons:
    """Comparisons of the first candidate with the others, and the results that they rest on."""

    comparisons: tuple[PairedComparison, ...]
    sides: Mapping[str, Side]  # by label
    notes: tuple[str, ...]

    def result(self, label: str, seq: int) -> Result:
        """Return a result of the example that a ``Flip`` numbers."""
        return [*self.sides[label].examples.values()][seq][0]


def compare_files(
    paths: Sequence[str],
    metrics: Sequence[str] = (),
    cluster: str | None = None,
    between: Sequence[str] | None = None,
    confidence: float = 0.95,
) -> FileComparisons:
    """Compare the candidates in files on the examples that they share.

    Args:
        paths: one or more files with two or more candidates in all.
        metrics: scores to compare; () takes ``score``, or else all that both have.
        cluster: field or column of the examples whose equal values make them one draw.
        between: labels of two candidates; None compares all others with the first.
        confidence: of all intervals together, in (0, 1).

    Raises:
        ConfigError: a file is missing, damaged, of an unknown format or given twice; there are not
            two candidates, or they have no example or no metric in common; a score is not in
            [0, 1]; an example has no field ``cluster``.
    """
    sides, chosen, notes = _sides(paths, metrics)
    named = {side.label: side for side in sides}
    for label in between or ():
        if label not in named:
            raise ConfigError(f"no file has a candidate {label!r}; {nearest(label, [*named])}")
    first, *others = [named[label] for label in between] if between else sides
    if not others or first in others:
        wide = " and ".join(first.metrics) if len(first.metrics) > 1 else ""
        hint = f"; if {wide} are candidates, write a row for each, with columns candidate and score"
        raise ConfigError(
            f"{', '.join(paths)}: there is one candidate, {first.label}, and two are compared; "
            f"give a file with the results of another on the same examples{hint if wide else ''}"
        )
    arguments = []
    for other in others:
        pairs, unlike = _pairs(first, other)
        if unlike:
            notes.append(
                f"{counted(unlike, 'example')} of {other.label} with the id of another input of "
                f"{first.label}: taken for the same by their ids"
            )
        ours, theirs = first.metrics, other.metrics
        both = [name for name in ours if name in theirs and name in chosen]
        if not both or not {*metrics} <= {*both}:
            known = (", ".join(names) or "none" for names in (ours, theirs))
            raise ConfigError(
                f"{first.label} and {other.label} have different metrics, {' and '.join(known)}; "
                "score one as the other was, or name one of both: --metric"
            )
        arguments += [_common(first, other, pairs, name, cluster) for name in both]
    compared = (compare_scores(*each, confidence, len(arguments)) for each in arguments)
    return FileComparisons(tuple(compared), named, tuple(notes))


def _sides(paths: Sequence[str], metrics: Sequence[str]) -> tuple[list[Side], set[str], list[str]]:
    """Return the candidates in files, the metrics that may be meant, and notes."""
    files: dict[Path, str] = {}
    labelled: list[tuple[str, Result]] = []
    for path in paths:
        labelled += ((path, result) for result in read_results(Path(path), metrics))
        place = Path(path).resolve()
        if place in files:
            raise ConfigError(
                f"{path} is the same file as {files[place]}; give each file once, and the file "
                "of another candidate beside it"
            )
        files[place] = path
    results, source = [result for _, result in labelled], ", ".join(paths)
    chosen = {
        name
        for asked in metrics or (None,)
        for names in metric_choices(results, asked, source).values()
        for name in names
    }
    # A column such as a latency is a number, too. Of several metrics that nobody named it is left
    # out with a note; a metric that was named, or the only one, is refused later.
    odd = {
        n for r in results for n, score in r.scores.items() if not 0 <= clip_rounding(score) <= 1
    } & chosen
    left_out = sorted(odd) if not metrics and odd < chosen else []
    notes = [f"left out, since it is not in [0, 1]: {name}" for name in left_out]
    several = len({result.task for result in results}) > 1
    grouped: dict[tuple[str, str], Side] = {}
    for (path, result), label in zip(labelled, label_candidates(results), strict=True):
        example = f"{result.task}: {result.example}" if several and result.task else result.example
        side = grouped.setdefault((label, path), Side(label, [path], {}))
        side.examples.setdefault(example, []).append(result)
        side.inputs |= {result.question} - {None}
    sides: list[Side] = []
    for new in grouped.values():
        # One label in two files is one candidate in two parts if they share no example. If they do,
        # they are two runs of it, which are compared like any other two.
        same = [side for side in sides if side.label == new.label]
        # another task of the same candidate; or it again, on the same examples
        apart = (s for s in same if not (s.examples.keys() & new.examples or s.inputs & new.inputs))
        if (known := next(apart, None)) is None:
            sides.append(new)
        else:
            known.files += new.files
            known.examples |= new.examples
            known.inputs |= new.inputs
    n = Counter(side.label for side in sides)
    for side in sides:
        side.label += f" ({side.files[0]})" if n[side.label] > 1 else ""
    return sides, chosen - {*left_out}, notes


def _pairs(base: Side, rival: Side) -> tuple[dict[str, str], int]:
    """Return the rival's example for each of the base's, and how many are paired by id alone."""
    inputs, theirs = (
        {key: group[0].question for key, group in side.examples.items()} for side in (base, rival)
    )
    # Three ways to pair examples, the surest first: the same id with the same input (or an unknown
    # one); the same input, unique on both sides, under different ids; the same id with different
    # inputs. The last counts only if no input moved to another id, for then ids are numbers of
    # rows.
    shared = [key for key in inputs if key in theirs]
    alike = {k: k for k in shared if inputs[k] == theirs[k] or None in (inputs[k], theirs[k])}
    free, their_free = (
        {asked: key for key, asked in side.items() if key not in alike and asked and n[asked] == 1}
        for side, n in ((inputs, Counter(inputs.values())), (theirs, Counter(theirs.values())))
    )
    moved = {key: their_free[asked] for asked, key in free.items() if asked in their_free}
    # where an input has another id elsewhere, ids are mere numbers
    unlike = {} if moved else {key: key for key in shared if key not in alike}
    if not (alike or moved or unlike):
        raise ConfigError(
            f"{', '.join(base.files)} and {', '.join(rival.files)} have no example in common: no "
            f"id is in both (here {next(iter(inputs))!r}, there {next(iter(theirs))!r}), and no "
            "input; give results on the same examples"
        )
    return {**alike, **moved, **unlike}, len(unlike)


def _common(
    base: Side, rival: Side, pairs: Mapping[str, str], metric: str, cluster: str | None
) -> tuple[Compared, list[Flip], list[list[int]]]:
    """Put the scores of two candidates side by side."""
    keys = sorted(pairs, key=digest)  # an order that no score has a say in
    places, theirs = ({key: i for i, key in enumerate(side.examples)} for side in (base, rival))
    examples, draws = [], defaultdict[str, list[int]](list)
    for i, key in enumerate(keys):
        fields = {**rival.examples[pairs[key]][0].fields, **base.examples[key][0].fields}
        if cluster is not None and fields.get(cluster) in (None, ""):
            raise ConfigError(
                f"{base.files[0]}: example {key!r} has no field {cluster!r}, by which examples "
                f"belong together; {nearest(cluster, map(str, fields))}"
            )
        draws[key if cluster is None else str(fields[cluster])].append(i)
        scores = base.scores(key, metric), rival.scores(pairs[key], metric)
        examples.append(Flip(key, *scores, places[key], theirs[pairs[key]]))
    unit = "example" if cluster is None else "cluster"
    unpaired = len(places) - len(keys), len(theirs) - len(keys)
    n_a, n_b = (
        sum(not math.isnan(side.scores(key, metric)) for key in side.examples)
        for side in (base, rival)
    )
    labels = base.label, rival.label
    on = Compared(*labels, metric, len(keys), unit, len(draws), *unpaired, n_a, n_b)
    return on, examples, [draws[name] for name in sorted(draws, key=digest)]
