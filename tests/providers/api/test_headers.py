"""Headers of API responses: limits, waits, and nonsense."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bestarm_agent.domain.spend import Allowance, Resource
from bestarm_agent.providers.api.headers import allowances, duration, retry_after, should_retry
from tests.support.api_cases import VENDORS, asked, provider_of
from tests.support.fake_api import FakeApi, FakeModel, Fault, Rates, in_thread, once
from tests.support.provider_calls import answers

DATE = "Fri, 20 Nov 2026 12:00:00 GMT"


R = Resource


@pytest.mark.parametrize(
    ("told", "limits"),
    [
        (
            {
                "x-ratelimit-limit-requests": "500",
                "x-ratelimit-remaining-requests": "499",
                "x-ratelimit-limit-tokens": "30000",
                "x-ratelimit-remaining-tokens": "29000",
            },
            [Allowance(R.REQUESTS, 500, 499), Allowance(R.TOKENS, 30000, 29000)],
        ),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-input-tokens-limit": "30000",
                "anthropic-ratelimit-output-tokens-remaining": "8000",
            },
            [
                Allowance(R.REQUESTS, 50, 0),
                Allowance(R.INPUT_TOKENS, 30000),
                Allowance(R.OUTPUT_TOKENS, None, 8000),
            ],
        ),
        ({"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "0"}, []),
        ({"x-ratelimit-limit-requests": "0", "x-ratelimit-remaining-requests": "5"}, []),
        ({"x-ratelimit-limit-requests": "many"}, []),
        ({"x-ratelimit-remaining-requests": "nan"}, []),
        ({"x-ratelimit-remaining-requests": "-3"}, []),
        ({"anthropic-ratelimit-requests-limit": "inf"}, []),
        ({"x-ratelimit-reset-requests": "1s"}, []),
        (
            {"x-ratelimit-limit-tokens": "100", "x-ratelimit-remaining-tokens": "101"},
            [Allowance(R.TOKENS, 100)],
        ),
    ],
)
def test_limits_in_both_vendors_forms_and_nonsense(
    told: dict[str, str], limits: list[Allowance]
) -> None:
    assert allowances(told) == tuple(limits)
    of_tokens = tuple(limit for limit in limits if limit.resource is not R.REQUESTS)
    assert allowances(told, ignore=[R.REQUESTS]) == of_tokens


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7.66s", 7.66),
        ("2m59.56s", 179.56),
        ("1h", 3600),
        ("150us", 0.00015),
        ("0s", 0),
        ("12", 12),
        ("", None),
        ("1d", None),
        ("1e9", None),
        ("200h", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "5, 7"}, 7),  # of a proxy and of the server behind it
        ({"retry-after": "5, soon"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"date": DATE, "retry-after": "Fri, 20 Nov 2026 12:00:07 GMT"}, 7),
        ({"date": DATE, "retry-after": "Fri, 20 Nov 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "later"}, None),
        ({"Retry-After": "2"}, 2),
        ({"retry-after-ms": "-250", "retry-after": "9"}, 9),
        ({"retry-after-ms": "1e300", "retry-after": "9"}, 9),
        ({"retry-after": "7.66s"}, 7.66),
        ({"retry-after": "1h0m0s"}, 3600),
        ({"retry-after": "1209600"}, 1_209_600),
        ({"retry-after": "1795176000"}, None),  # an instant, in seconds since 1970
        ({"retry-after": "1e300"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": ""}, None),
        ({"date": DATE, "retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_whether_to_repeat() -> None:
    said = [should_retry({"x-should-retry": text}) for text in ("true", "False", "perhaps")]
    assert said == [True, False, None]
    assert should_retry({}) is None


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_latest_response_counts_and_failures_tell_too(vendor: str) -> None:
    rates = Rates(rpm=2, itpm=6000, otpm=600)
    models = {"good": FakeModel(rates=rates), "free": FakeModel()}
    with in_thread(FakeApi(models=models, script=once(Fault.LYING_HEADERS))) as api:
        provider = provider_of(vendor, api)
        assert provider.allowances("good") == ()
        answers(provider, asked("a"))
        assert R.REQUESTS not in {found.resource for found in provider.allowances("good")}
        answers(provider, asked("a"), asked("a"))  # the third in a minute is refused
        told = {found.resource: found for found in provider.allowances("good")}
        assert set(told) == {R.REQUESTS, R.INPUT_TOKENS, R.OUTPUT_TOKENS}
        assert (told[R.REQUESTS].limit, told[R.REQUESTS].remaining) == (2, 0)
        assert told[R.INPUT_TOKENS].limit == 6000
        answers(provider, asked("a", "free"))
        assert provider.allowances("free") == ()


MONTH = 31 * 86_400
NUMBERS = st.floats().map(str) | st.integers().map(str)
OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
DATES = st.datetimes(timezones=OFFSETS | st.just(UTC)).map(format_datetime)
NEARLY = st.from_regex(
    r"[A-Z][a-z]{2}, ?\d{1,3} [A-Z][a-z]{2} \d{1,6} [0-9:+ A-Z-]{0,20}", fullmatch=True
)
DURATIONS = st.from_regex(r"(-?\d{1,5}(\.\d{0,3})?(ms|s|m|h|d)){1,3}", fullmatch=True)
TEXTS = st.text() | NUMBERS | DATES | NEARLY | DURATIONS


@settings(max_examples=50)
@given(milliseconds=st.none() | TEXTS, asked=st.none() | TEXTS, date=st.none() | TEXTS)
@example(milliseconds=None, asked="Fri, 31 Dec 9999 23:59:59 -2359", date=None)
@example(milliseconds="9" * 400, asked="Mon, 01 Jan 0001 00:00:00 +2359", date="0")
def test_whatever_a_server_asks_for_is_a_time_or_nothing(
    milliseconds: str | None, asked: str | None, date: str | None
) -> None:
    told = {"retry-after-ms": milliseconds, "retry-after": asked, "date": date}
    headers = {name: text for name, text in told.items() if text is not None}
    seconds = retry_after(headers)
    assert seconds is None or 0 <= seconds <= MONTH


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(
            ["date"]
            + [f"x-ratelimit-{told}-requests" for told in ("limit", "remaining")]
            + [f"anthropic-ratelimit-input-tokens-{told}" for told in ("limit", "remaining")]
        ),
        TEXTS | st.datetimes().map(str),
    )
)
def test_whatever_a_server_says_is_left_is_a_number_or_nothing(headers: dict[str, str]) -> None:
    for said in allowances(headers):
        for value in (said.limit, said.remaining):
            assert value is None or 0 <= value < float("inf")


@given(st.integers(0, MONTH), st.integers(946_684_800, 4_102_444_800), OFFSETS)
def test_all_forms_of_one_time_say_the_same(seconds: int, now: int, offset: timezone) -> None:
    moment = datetime.fromtimestamp(now, UTC)
    then = (moment + timedelta(seconds=seconds)).astimezone(offset)
    forms = [
        {"retry-after": str(seconds)},
        {"retry-after-ms": str(1000 * seconds)},
        {"retry-after": format_datetime(then), "date": format_datetime(moment, usegmt=True)},
    ]
    if seconds <= 86_400:
        forms.append({"retry-after": f"{seconds // 60}m{seconds % 60}s"})
    assert {retry_after(form) for form in forms} == {seconds}
