"""The draws of a pair: their requests, when no more of them matter, and the pair's outcome."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, mode

from bestarm_agent.config.study.repeats import RepeatsSpec
from bestarm_agent.domain.outcome import RIGHT, Draw, Failed, Outcome, Scored
from bestarm_agent.domain.request_reply import Request
from bestarm_agent.engine.calls.retrying import Call
from bestarm_agent.errors import Blame
from bestarm_agent.providers.base import Capabilities

_SEEDS = 1_000_000  # between two draws: candidates that differ in their seeds share no draw


def request_of_draw(first: Request, number: int, able: Capabilities) -> Request:
    """Return the request of a draw, numbered from 0; only its seed differs from the first one's."""
    params = first.params
    if number and ("seed" in params or (able.seed and "seed" in able.params)):
        seed = params.get("seed", 0)
        params = {**params, "seed": (seed if isinstance(seed, int) else 0) + number * _SEEDS}
    return replace(first, params=params, draw=number)


async def begin_draw(call: Call, first: Request, number: int) -> None:
    """Get a pair's call ready for another draw: its request, its reservation, its places."""
    able = call.client.provider.capabilities(first.model)
    call.request = request_of_draw(first, number, able)
    call.forget_attempts()
    if call.later is not None:
        call.reservation = call.later.draw(call.bound())
    await call.slot.begin_again()


@dataclass(frozen=True, slots=True)
class Draws:
    """Number of a pair's draws, and the outcome that they amount to.

    The outcome of a draw holds what the pair has cost up to then. A draw that says nothing about
    quality ends its pair, which is void.

    Attributes:
        failed_score: score in [0, 1] of a draw on which the candidate itself failed.
        stops_early: whether a pair ends once no further draw can change its score.
    """

    spec: RepeatsSpec = field(default_factory=RepeatsSpec)
    failed_score: float = 0.0
    stops_early: bool = True

    @property
    def number(self) -> int:
        """The most draws of a pair, >= 1."""
        return 1 if self.spec.reduce == "each" else self.spec.draws

    def is_over(self, made: Sequence[Outcome]) -> bool:
        """Return whether a pair has the draws that it needs, given those ``made`` so far."""
        left = self.number - len(made)
        if not made or left <= 0 or _is_void(made[-1]):
            return bool(made)
        return self.stops_early and self._is_decided(made, left)

    def outcome(self, made: Sequence[Outcome]) -> Outcome:
        """Return the outcome of a pair that is over."""
        first, last = made[0], made[-1]
        if self.number == 1:
            return first
        return replace(
            self._reduced(made),
            spend=last.spend,
            judge_spend=last.judge_spend,
            lost_spend=last.lost_spend,
            seconds=first.seconds,
            usd_nanos=first.usd_nanos,
            draws=tuple(self._draw(one) for one in made if not _is_void(one)),
        )

    def _reduced(self, made: Sequence[Outcome]) -> Outcome:
        """Return the draw that shows the pair's score best, with that score."""
        scored = [one for one in made if isinstance(one, Scored)]
        if not scored or _is_void(made[-1]):
            return made[-1]
        value, shown = self._value_of(made, scored)
        return replace(
            shown,
            value=value,
            usage=scored[0].usage,
            cached=all(one.cached for one in scored),
            measures=_mean_measures(made),
        )

    def _value_of(self, made: Sequence[Outcome], scored: Sequence[Scored]) -> tuple[float, Scored]:
        values = [self._value(one) for one in made]
        match self.spec.reduce:
            case "pass@k":
                best = max(scored, key=lambda one: one.value >= RIGHT)
                return float(max(values) >= RIGHT), best
            case "worst":
                return min(values), min(scored, key=lambda one: one.value)
            case "majority":
                leader = mode(_votes(made))
                shown = next(one for one in scored if _vote(one) == leader)
                return shown.value if shown.answer is not None else float(leader is True), shown
            case _:
                return min(1.0, fmean(values)), scored[0]

    def _is_decided(self, made: Sequence[Outcome], left: int) -> bool:
        match self.spec.reduce:
            case "pass@k":
                return self._value(made[-1]) >= RIGHT
            case "worst":
                return self._value(made[-1]) == 0.0
            case "majority":
                return _is_elected(_votes(made), left)
            case _:
                return False

    def _value(self, one: Outcome) -> float:
        return one.value if isinstance(one, Scored) else self.failed_score

    def _draw(self, one: Outcome) -> Draw:
        if isinstance(one, Failed):
            return Draw(self.failed_score, None, one.reply_key, one.kind)
        return Draw(one.value, one.answer, one.reply_key)


def _is_void(one: Outcome) -> bool:
    return isinstance(one, Failed) and one.blame is not Blame.CANDIDATE


def _vote(one: Scored) -> str | bool:
    """Return the answer of a draw; where the scorer reads none, whether the draw is right."""
    return one.answer if one.answer is not None else one.value >= RIGHT


def _votes(made: Sequence[Outcome]) -> list[Hashable]:
    """Return the votes of the draws; one on which the candidate failed has none.

    Their ``mode`` is the leader, of equally frequent ones the first: draws are exchangeable, so
    that is one of them at random.
    """
    return [_vote(one) for one in made if isinstance(one, Scored)]


def _is_elected(votes: Sequence[Hashable], left: int) -> bool:
    """Return whether the leader stays, even if all draws ``left`` vote for the same rival."""
    rivals = {*votes, object()}
    return bool(votes) and all(mode([*votes, *[rival] * left]) == mode(votes) for rival in rivals)


def _mean_measures(made: Sequence[Outcome]) -> tuple[float | None, ...]:
    """Return the means of the further scorers; None of one that did not score every draw."""
    every = [one.measures for one in made if isinstance(one, Scored)]
    complete = len(every) == len(made)
    return tuple(
        fmean(value for value in values if value is not None)
        if complete and None not in values
        else None
        for values in zip(*every, strict=True)
    )
