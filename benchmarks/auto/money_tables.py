"""What the study of money found, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import TypeAlias

import numpy as np
from benchmarks.auto.money_markets import DEARER_IS_BETTER, HUNDREDFOLD, Market
from benchmarks.papers.stored_studies import markdown

from bestarm_agent.simulation.score_matrices import FloatArray
from bestarm_agent.stats.ranking import isotonic_crossing

FoundMoney: TypeAlias = Mapping[tuple[Market, str], FloatArray]

LEVELS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)  # of what the whole grid costs
GAPS = (0.0, 0.01)
_CLOSE = 1e-9


def _precision(regrets: FloatArray, gap: float) -> FloatArray:
    return np.asarray((regrets <= gap + _CLOSE).mean(axis=0), dtype=np.float64)


def _crossing(regrets: FloatArray, gap: float) -> float | None:
    return isotonic_crossing(LEVELS, _precision(regrets, gap))


def _cell(regrets: FloatArray) -> str:
    shares = (_crossing(regrets, gap) for gap in GAPS)
    text = "/".join("n.r." if share is None else f"{100 * share:.3g}" for share in shares)
    return f"{text} ({100 * _precision(regrets, 0.0).mean():.0f})"


def _ratio(pairs: Sequence[tuple[float | None, float | None]]) -> str:
    """Geometric mean of the ratios; what is not reached counts as reached at the largest share."""
    ratios = [
        (one or LEVELS[-1]) / (other or LEVELS[-1])
        for one, other in pairs
        if not (one is None and other is None) and not (one == other == LEVELS[0])
    ]
    if not ratios:
        return ""
    return f"**{exp(sum(map(log, ratios)) / len(ratios)):.2f}** ({len(ratios)})"


def rivals_table(found: FoundMoney, markets: Sequence[Market], rules: Sequence[str]) -> str:
    """Shares of the money at 95 % and mean precision; how the first rule compares with the rest."""
    rows = []
    for market in markets:
        cells = [_cell(found[market, rule]) for rule in rules]
        rows.append([market.title, market.note or market.prices, str(market.seeds), *cells])
    for gap in GAPS:
        own = [_crossing(found[m, rules[0]], gap) for m in markets]
        theirs = {r: [_crossing(found[m, r], gap) for m in markets] for r in rules[1:]}
        best = [
            min((share for share in column if share is not None), default=None)
            for column in zip(*theirs.values(), strict=True)
        ]
        cells = [_ratio(list(zip(own, theirs[r], strict=True))) for r in rules[1:]]
        beside = _ratio(list(zip(own, best, strict=True)))
        rows.append([f"`auto` relative to it, ε = {gap:g}", "", "", f"the best: {beside}", *cells])
    for gap in GAPS:
        means = [np.mean([_precision(found[m, r], gap) for m in markets]) for r in rules]
        cells = [f"{100 * mean:.1f}" for mean in means]
        rows.append([f"mean precision, ε = {gap:g}", "", "", *cells])
    return markdown(["matrix", "prices", "seeds", "auto", *rules[1:]], rows)


def ablation_table(
    found: FoundMoney, markets: Sequence[Market], variants: Sequence[str], base: str
) -> str:
    """Mean precision by kind of prices, and how much more it is than that of ``base``."""
    rows = []
    for rule in variants:
        cells = []
        for prices in (HUNDREDFOLD, DEARER_IS_BETTER):
            chosen = [m for m in markets if m.prices == prices]
            cells += [_gain(found, chosen, rule, base, gap) for gap in GAPS]
            shares = [
                (_crossing(found[m, rule], 0.0), _crossing(found[m, base], 0.0)) for m in chosen
            ]
            cells.append(_ratio(shares))
        rows.append([rule, *cells])
    headers = [
        f"{prices}: {what}"
        for prices in (HUNDREDFOLD, DEARER_IS_BETTER)
        for what in ("precision, ε = 0", "ε = 0.01", "dollars to 95 %")
    ]
    return markdown(["", *headers], rows)


def check_table(found: FoundMoney, markets: Sequence[Market], rules: Sequence[str]) -> str:
    """Precision at each share of the money, of two writings of one rule."""
    rows = [
        [
            f"{market.title}, {market.prices}",
            rule,
            *(f"{100 * hit:.0f}" for hit in _precision(found[market, rule], 0.0)),
        ]
        for market in markets
        for rule in rules
    ]
    return markdown(["", "", *(f"{100 * share:g} %" for share in LEVELS)], rows)


def _gain(
    found: FoundMoney,
    markets: Sequence[Market],
    rule: str,
    base: str,
    gap: float,
) -> str:
    """Mean precision of a rule, and what it has more than another, with its standard error."""
    hits = {
        each: [(found[m, each] <= gap + _CLOSE).mean(axis=1) for m in markets]
        for each in (rule, base)
    }
    more = [one - other for one, other in zip(hits[rule], hits[base], strict=True)]
    mean = np.mean([one.mean() for one in hits[rule]])
    if rule == base:
        return f"{100 * mean:.1f}"
    error = np.sqrt(sum(d.var(ddof=1) / len(d) for d in more)) / len(more)
    return f"{100 * mean:.1f} ({100 * np.mean([d.mean() for d in more]):+.1f} ± {100 * error:.1f})"
