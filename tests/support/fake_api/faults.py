"""What can go wrong with a request, and the scripts that decide when it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeAlias

from tests.support.fake_api.calls import Call, chance


class Fault(StrEnum):
    """One way in which a server fails a client."""

    # an error with a status of its own
    RATE_LIMITED = "429"
    RATE_LIMITED_SECONDS = "429-retry-after-seconds"
    RATE_LIMITED_MILLISECONDS = "429-retry-after-ms"
    RATE_LIMITED_DATE = "429-retry-after-date"
    RATE_LIMITED_NONSENSE = "429-retry-after-nonsense"
    RATE_LIMITED_LONG = "429-retry-after-long"
    NO_RETRY = "429-x-should-retry-false"
    REQUEST_TIMEOUT = "408"
    CONFLICT = "409"
    SERVER_ERROR = "500"
    BAD_GATEWAY = "502-html"
    UNAVAILABLE = "503"
    GATEWAY_TIMEOUT = "504"
    OVERLOADED = "529"
    QUOTA = "429-insufficient-quota"
    PAYMENT = "402"
    LOW_CREDIT = "400-low-credit"
    BAD_KEY = "401"
    FORBIDDEN = "403"
    UNKNOWN_MODEL = "404"
    TOO_LONG = "400-context-length"
    TOO_LONG_TEXT = "400-context-length-without-code"
    TOO_LARGE = "413"
    FILTERED = "400-content-filter"
    BAD_REQUEST = "400"
    UNPROCESSABLE = "422"
    # nothing whole comes back
    SILENT = "no-answer"
    SLOW_DRIP = "slow-drip"
    RESET = "reset"
    DROPPED = "dropped-mid-body"
    STALLED = "stalled-mid-body"
    ENDED_EARLY = "ended-mid-body"
    # 200, but not what it should be
    MALFORMED = "malformed-json"
    EMPTY_BODY = "empty-body"
    BARE_TEXT = "json-text"
    WRONG_SHAPE = "wrong-shape"
    # sent whole, but not to be read by a client
    DEEP_JSON = "deeply-nested-json"
    LONG_HEADER = "header-of-100-kB"
    MANY_HEADERS = "2000-headers"
    BAD_STATUS_LINE = "malformed-status-line"
    NEGATIVE_LENGTH = "negative-content-length"
    ENDLESS = "endless-body"
    GZIP_BOMB = "gzip-bomb"
    REDIRECT = "redirect-elsewhere"
    REDIRECT_LOOP = "redirect-loop"
    # 200, and the model's own doing
    EMPTY_CONTENT = "empty-content"
    REFUSAL = "refusal"
    FILTERED_OUTPUT = "finish-content-filter"
    TRUNCATED = "truncated"
    # 200 and a good answer, with something wrong about it
    NO_USAGE = "no-usage"
    ZERO_USAGE = "zero-usage"
    WRONG_USAGE = "wrong-usage"
    LYING_HEADERS = "lying-headers"


Script: TypeAlias = Callable[[Call], Fault | None]

# After any of these the same request may yet be answered, and the answer is a good one.
PASSING = (
    Fault.RATE_LIMITED,
    Fault.RATE_LIMITED_SECONDS,
    Fault.RATE_LIMITED_MILLISECONDS,
    Fault.RATE_LIMITED_DATE,
    Fault.RATE_LIMITED_NONSENSE,
    Fault.REQUEST_TIMEOUT,
    Fault.CONFLICT,
    Fault.SERVER_ERROR,
    Fault.BAD_GATEWAY,
    Fault.UNAVAILABLE,
    Fault.GATEWAY_TIMEOUT,
    Fault.OVERLOADED,
    Fault.RESET,
    Fault.DROPPED,
    Fault.ENDED_EARLY,
    Fault.MALFORMED,
    Fault.EMPTY_BODY,
    Fault.BARE_TEXT,
    Fault.WRONG_SHAPE,
    Fault.DEEP_JSON,
    Fault.LONG_HEADER,
    Fault.MANY_HEADERS,
    Fault.BAD_STATUS_LINE,
    Fault.NEGATIVE_LENGTH,
    Fault.LYING_HEADERS,
    Fault.NO_USAGE,
)


def storm(
    share: float, faults: Sequence[Fault] = PASSING, *, seed: int = 0, most: int = 3
) -> Script:
    """Let a share of all attempts fail, the same ones in every run.

    Which attempt meets which fault depends on (seed, body, number of the attempt) alone, not on
    the order of arrival.

    Args:
        share: of the attempts, in [0, 1].
        faults: drawn from with equal chances.
        seed: draws another storm.
        most: attempts at the same body from this number on are spared.
    """

    def script(call: Call) -> Fault | None:
        if call.attempt >= most or chance(seed, "hit", call.digest, call.attempt) >= share:
            return None
        return faults[int(chance(seed, "which", call.digest, call.attempt) * len(faults))]

    return script


def once(*faults: Fault) -> Script:
    """Let the first attempts at every body meet these faults, in this order."""
    return lambda call: faults[call.attempt] if call.attempt < len(faults) else None


def calm(_: Call) -> Fault | None:
    """Let everything succeed."""
    return None
