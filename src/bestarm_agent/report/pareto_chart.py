"""Scores against prices as an inline drawing, for the report: no script, no outside address."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10

from bestarm_agent.engine.results.standing import ObjectiveResult, Row

_WIDTH, _HEIGHT = 640.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, 12.0, 10.0, 34.0
_STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  # between the ticks of the score axis
_MOST_SPREAD = 6.0  # decades of price shown; cheaper ones stand at the edge


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate in the drawing; coordinates are those of the SVG, as text."""

    label: str  # what users call it
    price: float  # dollars for 1,000 calls
    x: str  # place of its price
    y: str  # place of its mean
    low: str  # place of the lower end of its interval
    high: str  # place of the upper end
    chosen: bool  # whether it is one of those asked for
    state: str  # its state, for the colour
    anchor: str  # how its name is placed next to it ("start" or "end")
    shift: int  # how far its name stands to the right


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark at an axis: its place and what is written there."""

    at: str
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """The drawing."""

    points: tuple[Point, ...]  # the candidates, the chosen ones last so that they lie on top
    steps: str  # path of the best mean so far, from cheap to expensive, through the chosen ones
    prices: tuple[Tick, ...]  # ticks of the price axis
    means: tuple[Tick, ...]  # ticks of the score axis
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    bottom: float = _HEIGHT - _BOTTOM
    right: float = _WIDTH - _RIGHT


def plot_of(rows: Sequence[Row], objective: ObjectiveResult) -> Plot | None:
    """Draw the candidates that have a price and a score; None if there are none."""
    shown = [row for row in rows if row.estimate is not None and _price(row) is not None]
    if not shown:
        return None
    scale = _Scale(shown)
    chosen = {row.index for row in objective.chosen}
    points = [_point(row, scale, chosen=row.index in chosen) for row in shown]
    return Plot(
        points=tuple(sorted(points, key=lambda point: point.chosen)),
        steps=_steps([row for row in objective.chosen if row in shown], scale),
        prices=scale.price_ticks(),
        means=scale.mean_ticks(),
    )


def _price(row: Row) -> float | None:
    return None if row.price is None else row.price.mean


class _Scale:
    """Prices on a logarithmic axis, means on a linear one, both just wide enough."""

    def __init__(self, rows: Sequence[Row]) -> None:
        prices = [price for row in rows if (price := _price(row)) is not None and price > 0]
        high = log10(max(prices, default=1.0))
        low = max(log10(min(prices, default=1.0)), high - _MOST_SPREAD)
        self._low, self._high = low - 0.1, high + 0.1
        self._bottom = max(0.0, min(row.lower for row in rows))
        self._top = min(1.0, max(row.upper for row in rows))
        if self._top - self._bottom < 0.02:
            self._bottom, self._top = self._bottom - 0.01, self._top + 0.01

    def x(self, price: float) -> str:
        place = self._low if price <= 0 else max(self._low, log10(price))
        share = (place - self._low) / (self._high - self._low)
        return f"{_LEFT + share * (_WIDTH - _LEFT - _RIGHT):.1f}"

    def y(self, mean: float) -> str:
        share = (mean - self._bottom) / (self._top - self._bottom)
        return f"{_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM):.1f}"

    def price_ticks(self) -> tuple[Tick, ...]:
        """Return 1, 2 and 5 of every decade; only 1 where there are many."""
        leading = (1.0, 2.0, 5.0) if self._high - self._low < 2 else (1.0,)
        decades = range(floor(self._low), floor(self._high) + 1)
        values = [first * 10.0**decade for decade in decades for first in leading]
        inside = [value for value in values if self._low <= log10(value) <= self._high]
        return tuple(Tick(self.x(value), f"${value:g}") for value in inside)

    def mean_ticks(self) -> tuple[Tick, ...]:
        span = self._top - self._bottom
        step = next(step for step in _STEPS if span / step <= 6)
        first, last = ceil(self._bottom / step), floor(self._top / step)
        return tuple(Tick(self.y(i * step), f"{i * step:.4g}") for i in range(first, last + 1))


def _point(row: Row, scale: _Scale, *, chosen: bool) -> Point:
    price, mean = _price(row) or 0.0, row.estimate or 0.0
    is_right = float(scale.x(price)) > _WIDTH / 2
    return Point(
        label=row.candidate.label,
        price=price,
        x=scale.x(price),
        y=scale.y(mean),
        low=scale.y(row.lower),
        high=scale.y(row.upper),
        chosen=chosen,
        state=row.status.name.lower(),
        anchor="end" if is_right else "start",
        shift=-8 if is_right else 8,
    )


def _steps(rows: Sequence[Row], scale: _Scale) -> str:
    path, height, highest = "", "", -inf
    for row in sorted(rows, key=lambda row: _price(row) or 0.0):
        mean = row.estimate or 0.0
        if mean <= highest:
            continue
        x, highest = scale.x(_price(row) or 0.0), mean
        path += f"H{x}V{scale.y(mean)}" if path else f"M{x} {scale.y(mean)}"
        height = scale.y(mean)
    return f"{path}H{_WIDTH - _RIGHT:.1f}" if height else ""
