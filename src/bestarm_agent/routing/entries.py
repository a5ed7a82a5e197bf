"""What is routed among: a study's candidates, ready to be called, and the prompts they answer."""

from __future__ import annotations

from bestarm_agent.assembly import Parts
from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.opening import Options
from bestarm_agent.routing.router import Router
from bestarm_agent.routing.settings import RoutedCandidate
from bestarm_agent.schedule.ledger import Ledger
from bestarm_agent.workshop import workshop_of

_USUAL_FIELDS = ("prompt", "text", "question", "input")


class Entries:
    """A study's candidates ready to be called, and the budget that they share.

    Args:
        parts: the study.
        options: how it was opened.

    Attributes:
        by_name: the candidates by their labels.
        ledger: the budget.
        workshop: made them ready.

    Raises:
        ConfigError: a candidate cannot be called, or two have the same label.
    """

    def __init__(self, parts: Parts, options: Options) -> None:
        self.ledger = Ledger(parts.budget)
        self.workshop = workshop_of(parts, self.ledger, clock=options.clock)
        self.by_name = {e.candidate.label: e for e in self.workshop.entries(parts.candidates)}
        if len(self.by_name) < len(parts.candidates):
            labels = [candidate.label for candidate in parts.candidates]
            twice = next(label for label in labels if labels.count(label) > 1)
            raise ConfigError(f"two candidates are called {twice!r}; a router needs labels apart")

    def routed(self) -> list[RoutedCandidate]:
        """What a new router is told of them; a price is the most that a call can cost."""
        return [
            RoutedCandidate(name, entry.usd, family=entry.candidate.model)
            for name, entry in self.by_name.items()
        ]

    def check_known(self, router: Router) -> None:
        """Check that a router knows them all; raises ConfigError."""
        known = [candidate.name for candidate in router.candidates]
        for name in self.by_name:
            if name not in known:
                raise ConfigError(
                    f"router {router.name!r} does not know the study's candidate {name!r}; "
                    f"{nearest(name, known)}; `bestarm-agent preselect add` lets it join"
                )


def text_of(example: Example) -> str:
    """What a router is told of a prompt: its only input, or the one that is usually the prompt.

    Raises:
        ConfigError: there are several inputs, none of them called ``prompt``, ``text``,
            ``question`` or ``input``.

    Example:
        >>> text_of(Example("1", {"id": 7, "question": "2+2?"}))
        '2+2?'
    """
    fields = example.inputs
    usual = [name for name in _USUAL_FIELDS if name in fields]
    if len(fields) == 1 or usual:
        return str(fields[usual[0]] if usual else next(iter(fields.values())))
    raise ConfigError(
        f"example {example.id!r} has the fields {', '.join(fields)}, and a router looks at one "
        f"text: call it {' or '.join(f'`{name}`' for name in _USUAL_FIELDS)}"
    )
