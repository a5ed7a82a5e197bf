"""The message about models whose price is not known."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_MODELS = 10


def price_unknown_message(models: Sequence[str]) -> str:
    """Say that prices of some ``provider/model`` are missing, and how to give them.

    Example:
        >>> price_unknown_message(["openai/a", "openai/b"])[:60]
        'the prices of openai/a and openai/b are not known, and an un'
    """
    more = len(models) - _MOST_MODELS
    named = [*models[:_MOST_MODELS], *([f"{more} more"] if more > 0 else [])]
    *others, last = named
    names = f"{', '.join(others)} and {last}" if others else last
    subject = f"prices of {names} are" if others else f"price of {names} is"
    return (
        f"the {subject} not known, and an unknown price is not $0; give one where the model is "
        f"listed: `options: {{price: {{input: 0.10, output: 0.50}}}}`, in dollars per million "
        f"tokens; a judge's as `model_options: {{price: ...}}`, a program's as "
        f"`options: {{usd_per_call: 0.001}}`, that of recorded answers as `usd` in their rows"
    )
