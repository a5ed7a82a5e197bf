"""A judge: numbers that are near the expected one count in part."""

from __future__ import annotations

from pydantic import Field

from bestarm_agent.judges import Calls, Example, Judge, JudgeOptions, Reply, Score, unparsable


class NearbyOptions(JudgeOptions):
    """Options of ``nearby``.

    Attributes:
        within: the distance from which on a number is worth nothing.
    """

    within: int = Field(10, ge=1)


class Nearby(Judge[NearbyOptions]):
    """Scores a number by its distance from the reference answer."""

    options_type = NearbyOptions
    needs_reference = True

    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        """Return 1 for the expected number, less for others; raises JudgeError without one."""
        try:
            distance = abs(int(reply.text) - int(str(example.reference)))
        except ValueError:
            raise unparsable("no whole number", reply.text) from None
        return Score(max(0.0, 1 - distance / self.options.within), answer=reply.text)
