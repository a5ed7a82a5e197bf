"""What the headers of API responses say: rate limits, how long to wait, whether to repeat."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from bestarm_agent.domain.allowance import Allowance, Resource

_DAY = 86_400.0
_LONGEST_WAIT = 31 * _DAY  # quotas of a month; more is an instant of time, or a mistake
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
    """Read rate-limit headers of OpenAI's and of Anthropic's form; what makes no sense is left out.

    Args:
        headers: of the response.
        ignore: resources that are not to be read.

    Example:
        >>> allowances({
        ...     "x-ratelimit-limit-requests": "500",
        ...     "x-ratelimit-remaining-requests": "499",
        ...     "x-ratelimit-reset-requests": "120ms",
        ...     "x-ratelimit-limit-tokens": "-1",
        ... })[0].remaining
        499.0
    """
    told = {name.lower(): text for name, text in headers.items() if "ratelimit" in name.lower()}
    if not told:
        return ()
    return tuple(_allowances(told, _now(headers), frozenset(ignore)))


def _allowances(
    headers: Mapping[str, str], now: datetime, ignore: frozenset[Resource]
) -> Iterator[Allowance]:
    for resource in Resource:
        if resource in ignore:
            continue
        found = _allowance(
            resource,
            lambda what, r=resource: headers.get(f"x-ratelimit-{what}-{r}"),  # type: ignore[misc]
            duration,
        ) or _allowance(
            resource,
            lambda what, r=resource: headers.get(f"anthropic-ratelimit-{r}-{what}"),  # type: ignore[misc]
            lambda text: _until(text, now),
        )
        if found is not None:
            yield found


def _allowance(
    resource: Resource,
    header: Callable[[str], str | None],
    read_reset: Callable[[str], float | None],
) -> Allowance | None:
    told = header("limit")
    limit = _number(told)
    if told is not None and not limit:  # some servers say -1 or 0 for "none": believe nothing
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
    """Seconds of a duration as Go writes it, or of a bare number; None for anything else.

    Example:
        >>> [duration(t) for t in ("6m0s", "120ms", "1h2m3.5s", "7", "soon", "-1s")]
        [360.0, 0.12, 3723.5, 7.0, None, None]
    """
    text = text.strip()
    if _DURATION.fullmatch(text):
        return _sane(sum(float(n) * _UNITS[unit] for n, unit in _STEP.findall(text)))
    return _sane(_number(text))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait, in [0, 31 days], or None.

    ``retry-after-ms`` comes before ``retry-after``, which holds seconds, a date, or a duration as
    Go writes it; what makes no sense is left out.

    Example:
        >>> retry_after({"Retry-After-Ms": "-1", "Retry-After": "1m30s"})
        90.0
    """
    told = {name.lower(): text for name, text in headers.items() if "retry" in name.lower()}
    milliseconds = _number(told.get("retry-after-ms"))
    asked = told.get("retry-after")
    if milliseconds is not None and milliseconds / 1000 <= _LONGEST_WAIT:
        return milliseconds / 1000
    if asked is None:
        return None
    seconds = duration(asked) if _number(asked) is None else _number(asked)
    date = _http_date(asked) if seconds is None else None
    if date is not None:
        seconds = max(0.0, (date - _now(headers)).total_seconds())
    return seconds if seconds is not None and seconds <= _LONGEST_WAIT else None


def should_retry(headers: Mapping[str, str]) -> bool | None:
    """What the server says about sending the same request again; None if nothing."""
    return {"true": True, "false": False}.get(headers.get("x-should-retry", "").lower())


def _until(text: str, now: datetime) -> float | None:
    """Seconds until a moment as RFC 3339 writes it."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return _sane(max(0.0, (moment - now).total_seconds()))


def _now(headers: Mapping[str, str]) -> datetime:
    """The server's own time if it tells, so that a wrong clock here changes nothing."""
    return _http_date(headers.get("date", "")) or datetime.now(UTC)


def _http_date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def _number(text: str | None) -> float | None:
    """A finite number >= 0, or None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _sane(seconds: float | None) -> float | None:
    return None if seconds is None or seconds > _DAY else seconds
