"""Reads the headers of API responses: rate limits, time to wait, advice to retry."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from bestarm_agent.domain.rate_limits import Allowance, Resource
from bestarm_agent.domain.spend import nanos

_DAY = 86_400.0
_MAX_WAIT = 31 * _DAY  # monthly quotas; more is a time stamp or a mistake
_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_DURATION = re.compile(r"(?:\d+(?:\.\d*)?(?:ns|us|µs|μs|ms|s|m|h))+")
_STEP = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|μs|ms|s|m|h)")


def allowances(
    headers: Mapping[str, str], *, ignore: Iterable[Resource] = ()
) -> tuple[Allowance, ...]:
    """Read rate-limit headers in the form of OpenAI or Anthropic; invalid ones are left out.

    Example:
        >>> allowances({
        ...     "x-ratelimit-limit-requests": "500",
        ...     "x-ratelimit-remaining-requests": "499",
        ...     "x-ratelimit-reset-requests": "120ms",
        ...     "x-ratelimit-limit-tokens": "-1",
        ... })[0].remaining
        499.0
    """
    limits = {name.lower(): text for name, text in headers.items() if "ratelimit" in name.lower()}
    return tuple(_allowances(limits, _now(headers), frozenset(ignore))) if limits else ()


def _allowances(
    headers: Mapping[str, str], now: datetime, ignore: frozenset[Resource]
) -> Iterator[Allowance]:
    for resource in Resource:
        if resource in ignore:
            continue
        found = _allowance(
            resource,
            lambda field, r=resource: headers.get(f"x-ratelimit-{field}-{r}"),  # type: ignore[misc]
            duration,
        ) or _allowance(
            resource,
            lambda field, r=resource: headers.get(f"anthropic-ratelimit-{r}-{field}"),  # type: ignore[misc]
            lambda text: _until(text, now),
        )
        if found is not None:
            yield found


def _allowance(
    resource: Resource,
    header: Callable[[str], str | None],
    read_reset: Callable[[str], float | None],
) -> Allowance | None:
    stated = header("limit")
    limit = _number(stated)
    if stated is not None and not limit:  # some servers write -1 or 0 for "none": ignore all
        return None
    remaining = _number(header("remaining"))
    if remaining is not None and limit is not None and remaining > limit:
        remaining = None
    reset = header("reset")
    seconds = None if reset is None else read_reset(reset)
    if limit is None and remaining is None:
        return None
    return Allowance(resource, limit, remaining, seconds)


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
    milliseconds = _number(waits.get("retry-after-ms"))
    asked = waits.get("retry-after")
    if milliseconds is not None and milliseconds / 1000 <= _MAX_WAIT:
        return milliseconds / 1000
    if asked is None:
        return None
    seconds = duration(asked) if _number(asked) is None else _number(asked)
    date = _http_date(asked) if seconds is None else None
    if date is not None:
        seconds = max(0.0, (date - _now(headers)).total_seconds())
    return seconds if seconds is not None and seconds <= _MAX_WAIT else None


def header_cost(headers: Mapping[str, str], name: str | None) -> int | None:
    """Return the nano-dollars that a gateway reports in the header ``name``, or None.

    Example:
        >>> header_cost({"x-litellm-response-cost": "0.000415"}, "x-litellm-response-cost")
        415000
    """
    dollars = None if name is None else _number(headers.get(name))
    return None if dollars is None else nanos(dollars)


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """Return the server's advice on sending the same request again; None if there is none."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def _until(text: str, now: datetime) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return _plausible(max(0.0, (moment - now).total_seconds()))


def _now(headers: Mapping[str, str]) -> datetime:
    """Return the server's own time if it is sent, so that a wrong local clock does no harm."""
    return _http_date(headers.get("date", "")) or datetime.now(UTC)


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


def _plausible(seconds: float | None) -> float | None:
    return None if seconds is None or seconds > _DAY else seconds
