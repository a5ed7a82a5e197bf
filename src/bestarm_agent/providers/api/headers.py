"""Reads the headers of API responses: rate limits, time to wait, advice to retry."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from bestarm_agent.domain.spend import MOST, Allowance, Resource, nanos, usd
from bestarm_agent.domain.values import Json

_DAY = 86_400.0
_MAX_WAIT = 31 * _DAY  # monthly quotas; more is a time stamp or a mistake
_UNITS = {"ns": 1e-9, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_UNITS |= dict.fromkeys(("us", "µs", "μs"), 1e-6)
# Go's durations: "1m30s", "6m0s", "120ms". "ms" comes before "m" and "s": otherwise "120ms" would
# be found as 120 minutes.
_STEP = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|μs|ms|s|m|h)")
_DURATION = re.compile(f"(?:{_STEP.pattern})+")
_SPOKEN_UNITS = {
    "ms": r"ms|msecs?|milliseconds?",
    "s": r"s|secs?|seconds?",
    "m": r"m|mins?|minutes?",
    "h": r"h|hrs?|hours?",
}
_SPOKEN_UNIT = "|".join(f"(?P<{unit}>{forms})" for unit, forms in _SPOKEN_UNITS.items())
# One amount with its unit: "1 minute", "62.5s" or "5 s", but not the "5 s" of "5 samples".
_SPOKEN_STEP = re.compile(rf"(?P<n>\d+(?:\.\d+)?)\s*(?:{_SPOKEN_UNIT})(?![a-z])", re.IGNORECASE)
# A pattern cannot hold a named group twice, so the copies in a sentence have none.
_STEPS = re.sub(r"\?P<\w+>", "?:", _SPOKEN_STEP.pattern)
# "try again in 1m2.5s", "retry after 26 seconds", "wait 1 minute and 5 s", "retry in 7." A verb of
# waiting, at most 40 characters without digits, and then amounts with units, or a bare number of
# seconds that ends the clause: not "retry 3 times".
_SPOKEN = re.compile(
    r"\b(?:try(?:ing)?\s+(?:it\s+)?again|retry(?:ing)?|wait|come back|available|resets?)\b\D{0,40}?"
    rf"(?P<steps>(?:{_STEPS})(?:[\s,]*(?:and\s+)?(?:{_STEPS}))*|\d+(?:\.\d+)?(?=\W*(?:$|[.,;]\s)))",
    re.IGNORECASE,
)
# Keys of bodies: "retryDelay" (Google), "retry_after", "retry_after_ms", "retryAfterMs".
_WAITS = re.compile(r"retry[_-]?(?:delay|after|in)(?:[_-]?s\w*|([_-]?m(?:illi)?s\w*))?", re.I)
# names of the headers of OpenAI and compatible servers, and of Anthropic
_FORMS = ("x-ratelimit-{field}-{resource}", "anthropic-ratelimit-{resource}-{field}")


def allowances(
    headers: Mapping[str, str], *, ignore: Sequence[Resource] = ()
) -> tuple[Allowance, ...]:
    """Read rate-limit headers in the form of OpenAI or Anthropic; invalid ones are left out.

    Example:
        >>> allowances({
        ...     "x-ratelimit-limit-requests": "500",
        ...     "x-ratelimit-remaining-requests": "499",
        ...     "x-ratelimit-limit-tokens": "-1",
        ... })[0].remaining
        499.0
    """
    limits = {name.lower(): text for name, text in headers.items() if "ratelimit" in name.lower()}
    if not limits:
        return ()
    stated = (
        next(filter(None, (_allowance(resource, limits, form) for form in _FORMS)), None)
        for resource in Resource
        if resource not in ignore
    )
    return tuple(filter(None, stated))


def _allowance(resource: Resource, headers: Mapping[str, str], form: str) -> Allowance | None:
    limit_text, remaining_text = (
        headers.get(form.format(resource=resource, field=field)) for field in ("limit", "remaining")
    )
    limit, remaining = _number(limit_text), _number(remaining_text)
    if limit_text is not None and not limit:  # some servers write -1 or 0 for "none": ignore all
        return None
    if remaining is not None and limit is not None and remaining > limit:
        remaining = None
    if limit is None and remaining is None:
        return None
    return Allowance(resource, limit, remaining)


def duration(text: str) -> float | None:
    """Parse a duration in Go's form, or a bare number, into seconds; None for anything else.

    Example:
        >>> [duration(t) for t in ("6m0s", "120ms", "1h2m3.5s", "7", "soon", "-1s")]
        [360.0, 0.12, 3723.5, 7.0, None, None]
    """
    text = text.strip()
    if _DURATION.fullmatch(text):
        return _plausible(sum(float(n) * _UNITS[unit] for n, unit in _STEP.findall(text)))
    return _plausible(_number(text))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait, in [0, 31 days], or None.

    ``retry-after-ms`` overrides ``retry-after``, which holds seconds, a date, or a duration in
    Go's form; invalid values are left out.

    Example:
        >>> retry_after({"Retry-After-Ms": "-1", "Retry-After": "1m30s"})
        90.0
    """
    waits = {name.lower(): text for name, text in headers.items() if "retry" in name.lower()}
    milliseconds = _largest(waits.get("retry-after-ms"))
    wait_text = waits.get("retry-after")
    # A wait that is too long to be one (a time stamp) is passed over in favour of the other header.
    if milliseconds is not None and milliseconds / 1000 <= _MAX_WAIT:
        return milliseconds / 1000
    if wait_text is None:
        return None
    # A bare number is read first: ``duration`` refuses those of more than a day, which a monthly
    # quota may ask for.
    seconds = _largest(wait_text)
    seconds = duration(wait_text) if seconds is None else seconds
    date = _http_date(wait_text) if seconds is None else None
    if date is not None:
        # the time that the server sends, if it does: a wrong local clock does no harm then
        now = _http_date(headers.get("date", "")) or datetime.now(UTC)
        seconds = max(0.0, (date - now).total_seconds())
    return seconds if seconds is not None and seconds <= _MAX_WAIT else None


def wait_in(body: object, depth: int = 8) -> float | None:
    """Return the longest wait that an error's body names, in a field or in words; None if none.

    Example:
        >>> wait_in({"message": "Please try again in 1m2.5s."})
        62.5
        >>> wait_in([{"error": {"details": [{"@type": ".../RetryInfo", "retryDelay": "2s"}]}}])
        2.0
    """
    waits: list[float | None] = []
    if isinstance(body, str):
        waits = [_spoken_wait(match["steps"]) for match in _SPOKEN.finditer(body)]
    elif depth and isinstance(body, list):
        waits = [wait_in(item, depth - 1) for item in body]
    elif depth and isinstance(body, dict):
        for name, value in body.items():
            field = _WAITS.fullmatch(str(name))
            if field and isinstance(value, int | float | str) and not isinstance(value, bool):
                seconds = duration(str(value))
                waits.append(seconds / 1000 if seconds and field[1] else seconds)
            else:
                waits.append(wait_in(value, depth - 1))
    # The longest, since a body may name the waits of several limits, and all of them must have
    # passed.
    return max((wait for wait in waits if wait is not None), default=None)


def _spoken_wait(steps: str) -> float | None:
    parts = list(_SPOKEN_STEP.finditer(steps))
    if not parts:
        return _plausible(_number(steps))
    # ``lastgroup`` is the unit's name: the group of the unit is the last that matches.
    return _plausible(sum(float(part["n"]) * _UNITS[part.lastgroup or "s"] for part in parts))


def bill(dollars: Json) -> int | None:
    """Return the nano-dollars of a bill of as many dollars; None if no call can cost that.

    Example:
        >>> bill("0.000415"), bill(None)
        (415000, None)
    """
    amount = _largest(str(dollars))
    return None if amount is None or amount > usd(int(MOST)) else nanos(amount)


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """Return the server's advice on sending the same request again; None if there is none."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def shutdown_notice(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield a remark if the server says when it will stop serving a model (RFC 8594).

    Example:
        >>> list(shutdown_notice({"sunset": "Wed, 11 Nov 2026 23:59:59 GMT"}))
        ['is to be shut down on 2026-11-11, as its server says']
    """
    if (date := _http_date(headers.get("sunset", ""))) is not None:
        yield f"is to be shut down on {date.date()}, as its server says"


def _http_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _number(text: str | None) -> float | None:
    """Parse a finite number >= 0; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _largest(text: str | None) -> float | None:
    """Parse a finite number >= 0, or the largest of a header that came more than once."""
    numbers = [_number(part) for part in (text or "").split(",")]
    known = [number for number in numbers if number is not None]
    return max(known) if len(known) == len(numbers) else None


def _plausible(seconds: float | None) -> float | None:
    return None if seconds is None or seconds > _DAY else seconds
