"""What every way of failing means, seen through the real SDKs and real sockets."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from types import ModuleType

import anthropic
import openai
import pytest

from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Finish, Json, Request
from bestarm_agent.errors import Blame, FailureKind, ProviderError
from bestarm_agent.providers.api.endpoints import Endpoint
from bestarm_agent.providers.api.errors import body_failure, call_failure, kind_of, status_failure
from bestarm_agent.providers.failures import failed_spend
from tests.support.api_cases import VENDORS, asked, provider_of
from tests.support.fake_api import Call, FakeApi, Fault, in_thread
from tests.support.provider_calls import answers, error, reply

ENDPOINT = Endpoint("https://x")
K = FailureKind
KINDS: dict[FailureKind, tuple[Fault, ...]] = {
    K.RATE_LIMITED: (
        *(Fault.RATE_LIMITED, Fault.RATE_LIMITED_SECONDS, Fault.RATE_LIMITED_MILLISECONDS),
        *(Fault.RATE_LIMITED_DATE, Fault.RATE_LIMITED_NONSENSE, Fault.RATE_LIMITED_LONG),
        Fault.NO_RETRY,
    ),
    K.TIMEOUT: (Fault.REQUEST_TIMEOUT, Fault.GATEWAY_TIMEOUT),
    K.SERVER: (Fault.CONFLICT, Fault.SERVER_ERROR, Fault.BAD_GATEWAY),
    K.OVERLOADED: (Fault.UNAVAILABLE, Fault.OVERLOADED),
    K.QUOTA_EXHAUSTED: (Fault.QUOTA, Fault.PAYMENT, Fault.LOW_CREDIT),
    K.AUTHENTICATION: (Fault.BAD_KEY, Fault.FORBIDDEN),
    K.MODEL_NOT_FOUND: (Fault.UNKNOWN_MODEL, Fault.REDIRECT, Fault.REDIRECT_LOOP),
    K.TOO_LONG: (Fault.TOO_LONG, Fault.TOO_LONG_TEXT, Fault.TOO_LARGE),
    K.CONTENT_FILTERED: (Fault.FILTERED,),
    K.BAD_REQUEST: (Fault.BAD_REQUEST, Fault.UNPROCESSABLE),
    K.CONNECTION: (Fault.RESET, Fault.DROPPED),
    K.MALFORMED_REPLY: (
        *(Fault.ENDED_EARLY, Fault.MALFORMED, Fault.EMPTY_BODY, Fault.BARE_TEXT, Fault.WRONG_SHAPE),
        *(Fault.DEEP_JSON, Fault.LONG_HEADER, Fault.MANY_HEADERS, Fault.BAD_STATUS_LINE),
        Fault.NEGATIVE_LENGTH,
    ),
}
KIND_OF = {fault: kind for kind, faults in KINDS.items() for fault in faults}
UNREADABLE = KINDS[K.MALFORMED_REPLY][-5:]
FLOODS = {Fault.ENDLESS, Fault.GZIP_BOMB}
FINISHES = {
    Fault.EMPTY_CONTENT: (Finish.STOP, ""),
    Fault.REFUSAL: (Finish.REFUSAL, "I cannot help with that."),
    Fault.TRUNCATED: (Finish.LENGTH, "s"),
    Fault.ZERO_USAGE: (Finish.STOP, "say zero-usage"),
    Fault.NO_USAGE: (Finish.STOP, "say no-usage"),
    Fault.WRONG_USAGE: (Finish.STOP, "say wrong-usage"),
    Fault.LYING_HEADERS: (Finish.STOP, "say lying-headers"),
}
HANGING = {Fault.SILENT, Fault.SLOW_DRIP, Fault.STALLED}


def script(call: Call) -> Fault | None:
    """The question names the fault."""
    name = call.question.removeprefix("say ")
    return Fault(name) if name in set(Fault) else None


@pytest.fixture(scope="module")
def api() -> Iterator[FakeApi]:
    with in_thread(FakeApi(script=script)) as server:
        yield server


def test_every_fault_has_a_test() -> None:
    assert set(Fault) == {*KIND_OF, *FINISHES, *HANGING, *FLOODS, Fault.FILTERED_OUTPUT}


def said(fault: Fault) -> Request:
    return asked(f"say {fault}")


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_error_is_what_it_is_and_holds_no_key(api: FakeApi, vendor: str) -> None:
    """Although the server's own messages do."""
    found = answers(provider_of(vendor, api), *map(said, KIND_OF))
    errors = {
        fault: one
        for fault, one in zip(KIND_OF, found, strict=True)
        if isinstance(one, ProviderError)
    }
    assert {fault: one.kind for fault, one in errors.items()} == KIND_OF
    for one in errors.values():
        assert str(api.key) not in f"{one} {one!r} {one.args}"
        assert f"{vendor}/good" in str(one)
    assert not errors[Fault.NO_RETRY].transient
    assert errors[Fault.RATE_LIMITED].transient
    waits = {fault: errors[fault].retry_after for fault in KINDS[K.RATE_LIMITED]}
    assert 0 <= (waits.pop(Fault.RATE_LIMITED_DATE) or -1) <= 2
    assert {fault: wait for fault, wait in waits.items() if wait is not None} == {
        Fault.RATE_LIMITED_SECONDS: 0.05,
        Fault.RATE_LIMITED_MILLISECONDS: 0.05,
        Fault.RATE_LIMITED_LONG: 3600,
    }


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(("fault", "expected"), FINISHES.items())
def test_answers_with_something_about_them_are_answers(
    api: FakeApi, vendor: str, fault: Fault, expected: tuple[Finish, str]
) -> None:
    found = reply(provider_of(vendor, api), said(fault))
    assert (found.finish, found.text) == expected


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("fault", UNREADABLE)
def test_an_answer_that_cannot_be_read_may_be_billed(
    api: FakeApi, vendor: str, fault: Fault
) -> None:
    """It was sent: the attempt is charged at its bound, repeated, and the provider's fault."""
    provider = provider_of(vendor, api)
    found = error(provider, said(fault))
    bound = provider.bound(said(fault))
    assert (found.transient, found.blame) == (True, Blame.PROVIDER)
    assert failed_spend(found, bound) == bound
    assert bound.usd_nanos > 0


@pytest.mark.slow
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("fault", sorted(FLOODS))
def test_a_response_is_read_up_to_a_limit(api: FakeApi, vendor: str, fault: Fault) -> None:
    """Whatever comes, and however small it is packed."""
    provider = provider_of(vendor, api, max_response_bytes=2_000_000)
    found = error(provider, said(fault))
    assert (found.kind, found.transient) == (K.MALFORMED_REPLY, True)
    assert "longer than 2,000,000 bytes" in str(found)
    assert "max_response_bytes" in str(found)


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("fault", [Fault.REDIRECT, Fault.REDIRECT_LOOP])
def test_a_redirect_is_one_request_and_takes_no_secret_along(
    api: FakeApi, vendor: str, fault: Fault
) -> None:
    provider = provider_of(vendor, api, headers={"x-password": "top-secret-header"})
    before = len(api.received)
    found = error(provider, said(fault))
    assert len(api.received) == before + 1
    assert found.blame is Blame.PROVIDER
    assert "set base_url to the address that answers" in str(found)
    assert failed_spend(found, Spend(calls=1, tokens=500)) == Spend(calls=1)


def test_a_filtered_output_is_no_answer(api: FakeApi) -> None:
    chat, responses = provider_of("openai", api), provider_of("openai", api, api="responses")
    for provider, finish in (
        (chat, Finish.CONTENT_FILTER),
        (responses, Finish.CONTENT_FILTER),
        (provider_of("anthropic", api), Finish.REFUSAL),
    ):
        found = reply(provider, said(Fault.FILTERED_OUTPUT))
        assert (found.finish, found.text) == (finish, "")


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("fault", sorted(HANGING))
def test_a_call_without_an_end_can_be_given_up(api: FakeApi, vendor: str, fault: Fault) -> None:
    """The SDKs' own time-outs are off: the caller decides how long to wait."""

    async def main() -> None:
        async with provider_of(vendor, api) as provider:
            before = len(api.received)
            call = asyncio.create_task(provider.generate(said(fault)))
            while fault not in [one.fault for one in api.received[before:]]:  # noqa: ASYNC110 - in a thread
                await asyncio.sleep(0.01)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await provider.generate(asked("go on"))).text == "go on"

    asyncio.run(main())


def test_a_wrong_key_names_the_variable_to_set(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "wrong-key-1234567")
    provider = provider_of("openai", api, api_key=None, key="MY_KEY")
    found = error(provider, asked("1+1"))
    assert found.kind is K.AUTHENTICATION
    assert found.fatal
    assert "set MY_KEY to a key" in str(found)
    assert "wrong-key" not in str(found)


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_server_that_is_not_there_took_nothing(vendor: str) -> None:
    gone = FakeApi(port=9)  # the discard service, which nobody runs
    found = error(provider_of(vendor, gone), asked("1+1"))
    assert (found.kind, found.transient) == (K.UNREACHABLE, True)
    assert "nothing was sent" in str(found)
    assert failed_spend(found, Spend(calls=1, tokens=500, usd_nanos=70)) == Spend(calls=1)


def test_an_error_in_a_good_response_is_an_error() -> None:
    """As OpenRouter reports what happened behind it."""
    body: dict[str, Json] = {"error": {"code": 429, "message": "Provider returned error"}}
    found = body_failure(body, "openrouter/m", ENDPOINT)
    assert found is not None
    assert found.kind is K.RATE_LIMITED
    assert body_failure({"choices": [], "error": None}, "openrouter/m", ENDPOINT) is None
    empty: dict[str, Json] = {"choices": [], "base_resp": {"status_msg": "rate limit"}}
    found = body_failure(empty, "minimax/m", ENDPOINT)
    assert found is not None
    assert found.kind is K.RATE_LIMITED
    assert body_failure({"content": [], "message": "fine"}, "anthropic/m", ENDPOINT) is None


TOO_HOT: Json = {"message": "too hot"}


@pytest.mark.parametrize(
    "body",
    [
        *({"error": TOO_HOT}, TOO_HOT, {"error": "too hot"}, {"detail": "too hot"}, "too hot"),
        *([{"error": TOO_HOT}], {"object": "error", "message": "too hot"}, [TOO_HOT], ["too hot"]),
        {"detail": [{"loc": ["body", "temperature"], "msg": "too hot"}]},  # FastAPI
        {"object": "error", "message": {"detail": [{"msg": "too hot"}]}},  # Mistral
        {"success": False, "errors": [{"code": 7003, "message": "too hot"}]},  # Cloudflare
        {"error": ["too hot"]},
        {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "too hot"}},  # MiniMax
    ],
)
def test_the_words_of_an_error_are_found_wherever_they_are(body: object) -> None:
    found = status_failure(400, body, {}, "mine/m", ENDPOINT)
    assert str(found) == "mine/m: HTTP 400: too hot"


@pytest.mark.parametrize(
    "body",
    [
        *({"error": "too hot"}, {"object": "error", "message": "too hot", "code": None}),
        *({"error": [{"message": "too hot"}]}, {"message": "too hot", "success": False}),
        {"choices": None, "base_resp": {"status_code": 1000, "status_msg": "too hot"}},
        {"error_code": 500, "error_message": "too hot"},  # SambaNova
    ],
)
def test_an_error_in_a_good_response_may_have_any_shape(body: dict[str, Json]) -> None:
    found = body_failure(body, "mine/m", ENDPOINT)
    assert found is not None
    assert (found.kind, found.transient) == (K.SERVER, True)
    assert str(found) == "mine/m: HTTP 200: too hot", "no status is made up"
    assert failed_spend(found, Spend(calls=1, tokens=500)) == Spend(calls=1)


@pytest.mark.parametrize(
    ("code", "words", "kind"),
    [
        (1002, "rate limit", K.RATE_LIMITED),
        (1039, "token limit", K.RATE_LIMITED),
        (1004, "login fail", K.AUTHENTICATION),
        (2049, "invalid api key", K.AUTHENTICATION),
        (1008, "insufficient balance", K.QUOTA_EXHAUSTED),
        (2056, "usage limit exceeded", K.QUOTA_EXHAUSTED),
        (1026, "input new_sensitive", K.CONTENT_FILTERED),
        (1027, "output new_sensitive", K.CONTENT_FILTERED),
        (2013, "invalid params", K.BAD_REQUEST),
        (1033, "system error", K.SERVER),
    ],
)
def test_codes_of_minimax_are_errors_also_beside_an_answer(
    code: int, words: str, kind: FailureKind
) -> None:
    said: dict[str, Json] = {"choices": [{"message": {"content": "Half an"}}]}
    for body in ({"choices": None}, said):
        told: Json = {"status_code": code, "status_msg": words}
        found = body_failure({**body, "base_resp": told}, "minimax/m", ENDPOINT)
        assert found is not None
        assert found.kind is kind
    fine: Json = {"status_code": 0, "status_msg": ""}
    assert body_failure({**said, "base_resp": fine}, "minimax/m", ENDPOINT) is None


GOOGLE_QUOTA: Json = [
    {
        "error": {
            "code": 429,
            "message": "You exceeded your current quota, please check your plan.",
            "status": "RESOURCE_EXHAUSTED",
            "details": [
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"},
            ],
        }
    }
]


def limit_of(message: str) -> Json:
    return {"error": {"message": message, "code": None}}


@pytest.mark.parametrize(
    ("status", "body", "seconds"),
    [
        (429, GOOGLE_QUOTA, 2.0),
        (429, limit_of("You exceeded your current quota. Please retry in 36.4s."), 36.4),
        (429, limit_of("Rate limit reached; try again in 1m2.5s"), 62.5),
        (429, limit_of("Please wait 2 minutes and 5 seconds before retrying."), 125.0),
        (429, limit_of("Requests are limited. Please retry after 26 seconds."), 26.0),
        (429, limit_of("Limit reached. Please try again in 6ms. Visit the docs"), 0.006),
        (429, {"error": "slow down", "retry_after": 3}, 3.0),
        (429, {"error": {"message": "slow down", "metadata": {"retry_after_ms": 1500}}}, 1.5),
        (403, limit_of("You have exceeded a secondary rate limit; retry after 30s"), 30.0),
    ],
)
def test_a_wait_that_is_named_means_a_rate_limit(status: int, body: Json, seconds: float) -> None:
    found = status_failure(status, body, {}, "mine/m", ENDPOINT)
    assert (found.kind, found.transient, found.fatal) == (K.RATE_LIMITED, True, False)
    assert found.retry_after == pytest.approx(seconds)


def test_a_quota_without_a_wait_is_used_up() -> None:
    found = status_failure(429, limit_of("You exceeded your current quota"), {}, "m", ENDPOINT)
    assert (found.kind, found.fatal) == (K.QUOTA_EXHAUSTED, True)


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (400, "This model's maximum context length is 128 tokens", K.TOO_LONG),
        (400, "The response was filtered due to the content management policy", K.CONTENT_FILTERED),
        (400, "Your credit balance is too low", K.QUOTA_EXHAUSTED),
        (400, "API key not valid. Please pass a valid API key.", K.AUTHENTICATION),
        (400, "The model `x` does not exist", K.MODEL_NOT_FOUND),
        (400, "temperature must be at most 2", K.BAD_REQUEST),
        (403, "Input was flagged by moderation", K.CONTENT_FILTERED),
        (400, "This model's maximum prompt length is 10 but the request contains 14", K.TOO_LONG),
        (400, "The decoder prompt (length 9) is longer than the maximum model length", K.TOO_LONG),
        (400, "the request exceeds the available context size", K.TOO_LONG),
        (400, "Input is too long for requested model.", K.TOO_LONG),
        (400, "Invalid request: Your request exceeded model token limit: 10", K.TOO_LONG),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000", K.TOO_LONG),
        (400, "max_tokens is too large: 9. This model supports at most 8", K.BAD_REQUEST),
        (429, "Request too large for m on tokens per min: Limit 10, Requested 20", K.BAD_REQUEST),
        (400, "Your request was rejected by the safety system.", K.CONTENT_FILTERED),
        (400, "Input data may contain inappropriate content.", K.CONTENT_FILTERED),
        (400, "Content Exists Risk", K.CONTENT_FILTERED),
        (403, "Your account has been flagged for abuse", K.AUTHENTICATION),
        (429, "Your team has used all available credits or reached its limit", K.QUOTA_EXHAUSTED),
        (403, "Sorry, your account balance is insufficient", K.QUOTA_EXHAUSTED),
        (400, "You have reached your specified API usage limits.", K.QUOTA_EXHAUSTED),
        (429, "ExceededBudget: User over budget", K.QUOTA_EXHAUSTED),
        (500, "insufficient balance", K.QUOTA_EXHAUSTED),  # 500: no status was given
        (429, "Too many requests, buy more credits to raise your limits", K.RATE_LIMITED),
        (403, "API rate limit exceeded for user 1.", K.RATE_LIMITED),
        (400, "API key expired. Please renew the API key.", K.AUTHENTICATION),
        (400, "Incorrect API key provided: no***ne.", K.AUTHENTICATION),
        (400, "gpt-zz is not a valid model ID", K.MODEL_NOT_FOUND),
        (400, "Model Not Exist", K.MODEL_NOT_FOUND),
        (400, "Invalid model: x", K.MODEL_NOT_FOUND),
        (400, "The model `x` has been decommissioned", K.MODEL_NOT_FOUND),
        (405, "Method Not Allowed", K.MODEL_NOT_FOUND),
        (498, "flex tier capacity exceeded", K.RATE_LIMITED),
        (429, "You exceeded your current token quota: <org> 1, check your plan", K.QUOTA_EXHAUSTED),
        (429, "您的账户已欠费，请充值后重试", K.QUOTA_EXHAUSTED),  # Zhipu's 1113
        (400, "Prompt 超长", K.TOO_LONG),  # its 1261
        (400, "too many tokens: 9", K.TOO_LONG),
        (400, "litellm.ContextWindowExceededError: no", K.TOO_LONG),
        (400, "litellm.ContentPolicyViolationError: no", K.CONTENT_FILTERED),
        (400, "InvalidParameter: Range of input length should be [1, 30720]", K.TOO_LONG),  # Qwen
        (500, "Too many tokens, please wait before trying again.", K.SERVER),  # Bedrock's limit
        (500, "Unexpected endpoint or method. (POST /x)", K.MODEL_NOT_FOUND),  # LM Studio's 200
        (
            412,
            "Account x is suspended, possibly due to reaching the monthly spending limit or "
            "failure to pay past invoices",
            K.QUOTA_EXHAUSTED,
        ),  # Fireworks
        (520, "", K.SERVER),
        (524, "error code: 524", K.TIMEOUT),  # Cloudflare's: it may have been answered
        (413, "Request too large for model m on tokens per minute", K.BAD_REQUEST),  # Groq
        (413, "Request exceeds the maximum size", K.TOO_LONG),
        (403, "Content violates usage guidelines. Failed check: X", K.CONTENT_FILTERED),  # xAI
        (403, "not enough balance", K.QUOTA_EXHAUSTED),  # Novita
        (403, "该令牌额度已用尽", K.QUOTA_EXHAUSTED),  # one-api
        (403, "This API has exceeded its monthly token quota", K.QUOTA_EXHAUSTED),  # watsonx
        (400, "The provided model identifier is invalid.", K.MODEL_NOT_FOUND),  # Bedrock
        (400, "Invalid model 'x'. Permitted models are", K.MODEL_NOT_FOUND),  # Perplexity
        (400, "Unknown model: x", K.MODEL_NOT_FOUND),  # GitHub
        (400, "Invalid model parameters: x", K.BAD_REQUEST),
        (418, "", K.BAD_REQUEST),
        (200, "input too long", K.TOO_LONG),  # 200: no status was given
        (200, "The response was filtered due to the content policy", K.CONTENT_FILTERED),
        (500, "input length exceeds the context length", K.TOO_LONG),
        (500, "the request exceeds the available context size", K.TOO_LONG),
        (500, "model 'x' not found, try pulling it first", K.MODEL_NOT_FOUND),
        # a 500 that may pass
        (500, "Failed to process the input: deadline exceeded", K.SERVER),
        (500, "Prompt processing timeout exceeded", K.SERVER),
        (500, "Error processing input: maximum retries exceeded", K.SERVER),
        (500, "messages queue limit exceeded", K.SERVER),
        (500, "The input took too long", K.SERVER),
        (500, "content filtering service timed out", K.SERVER),
        (500, "Error in model execution: file /dev/shm/req_12 not found", K.SERVER),
    ],
)
def test_compatible_servers_are_understood(status: int, words: str, kind: FailureKind) -> None:
    assert kind_of(status, [], words) is kind


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (
            24,
            "This model's maximum context length is 4096 tokens. However, you requested 9 tokens "
            "(PROMPT in the messages, 4096 in the completion). Please reduce the length of either.",
        ),
        (
            24,
            "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's maximum "
            "context length is 4096 tokens and your request has PROMPT input tokens (4096 > 9 - 9)",
        ),
        (3000, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: PROMPT `inputs` tokens"),
        (
            3000,
            "input length and `max_tokens` exceed context limit: PROMPT + 2000 > 4096, decrease",
        ),
        (
            24,
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You "
            "requested a total of 9 tokens: PROMPT tokens from the input messages and 4096 tokens",
        ),
    ],
)
def test_a_prompt_that_fits_alone_is_not_too_long(prompt: int, words: str) -> None:
    """It is the study that asks for too long an answer, and the message says so."""
    body = {"error": {"message": words.replace("PROMPT", str(prompt))}}
    found = status_failure(400, body, {}, "vllm/m", ENDPOINT)
    assert (found.kind, found.blame) == (K.BAD_REQUEST, Blame.HARNESS)
    assert "the prompt alone fits, so give a lower `max_tokens` under `params`" in str(found)
    assert kind_of(400, [], words.replace("PROMPT", "5000")) is K.TOO_LONG


def test_codes_of_other_vendors_are_understood() -> None:
    assert kind_of(400, ["Arrearage"], "Access denied") is K.QUOTA_EXHAUSTED
    assert kind_of(400, ["budget_exceeded"], "") is K.QUOTA_EXHAUSTED
    assert kind_of(400, ["cyber_policy_violation"], "flagged") is K.CONTENT_FILTERED  # OpenAI
    assert kind_of(451, ["censorship_blocked"], "blocked") is K.CONTENT_FILTERED  # StepFun
    assert kind_of(400, ["model_not_supported"], "by no provider") is K.MODEL_NOT_FOUND  # HF
    assert kind_of(413, ["rate_limit_exceeded"], "Request too large for m") is K.BAD_REQUEST
    assert kind_of(400, ["tool_use_failed"], "Failed to call a function.") is K.UNPARSABLE
    assert kind_of(429, ["rate_limit_exceeded"], "Request too large for m") is K.BAD_REQUEST


def test_what_forbids_a_call_is_told_and_not_only_the_key_suspected() -> None:
    endpoint = Endpoint("https://x", key="my-own-key")
    words = "Country, region, or territory not supported; my-own-key"
    text = str(status_failure(403, {"error": {"message": words}}, {}, "openai/m", endpoint))
    assert "HTTP 403: Country, region" in text
    assert "my-own-key" not in text
    assert "Incorrect" not in str(status_failure(401, "Incorrect key m", {}, "m", endpoint))


def test_a_model_of_another_api_is_no_wrong_name() -> None:
    words = "This model is only supported in v1/responses and not in v1/chat/completions."
    text = str(status_failure(404, {"error": {"message": words}}, {}, "openai/m", ENDPOINT))
    assert "api: responses" in text
    assert "correct the model" not in text


def test_messages_are_short_lines_without_anything_like_a_key() -> None:
    words = f"Bad header\n  Bearer abc.def.ghi and sk-proj-{'x' * 40}; again my-own-key {'y' * 900}"
    endpoint = Endpoint("https://x", key="my-own-key")
    text = str(status_failure(500, {"error": {"message": words}}, {}, "openai/m", endpoint))
    assert not any(hidden in text for hidden in ("abc.def", "sk-proj", "my-own", "\n"))
    assert len(text) < 400


# Classes of both SDKs by the HTTP status that they carry. A class that is in neither list is new:
# decide what it means before it is added here.
STATUS_OF = {
    "APIStatusError": (418, K.BAD_REQUEST),
    "BadRequestError": (400, K.BAD_REQUEST),
    "AuthenticationError": (401, K.AUTHENTICATION),
    "OAuthError": (401, K.AUTHENTICATION),
    "PaymentRequiredError": (402, K.QUOTA_EXHAUSTED),
    "PermissionDeniedError": (403, K.AUTHENTICATION),
    "NotFoundError": (404, K.MODEL_NOT_FOUND),
    "RequestTimeoutError": (408, K.TIMEOUT),
    "ConflictError": (409, K.SERVER),
    "PreconditionFailedError": (412, K.BAD_REQUEST),
    "ContentTooLargeError": (413, K.TOO_LONG),
    "UnprocessableEntityError": (422, K.BAD_REQUEST),
    "RateLimitError": (429, K.RATE_LIMITED),
    "RequestHeaderFieldsTooLargeError": (431, K.BAD_REQUEST),
    "ClientClosedRequestError": (499, K.CONNECTION),
    "InternalServerError": (500, K.SERVER),
    "HTTPNotImplementedError": (501, K.BAD_REQUEST),
    "ServiceUnavailableError": (503, K.OVERLOADED),
    "GatewayTimeoutError": (504, K.TIMEOUT),
    "OverloadedError": (529, K.OVERLOADED),
}
# Base classes; those of time-outs and connections, which the transport raises in another way; and
# what only helpers raise that are not used here (parse, logins, webhooks, WebSockets).
NEVER_RAISED = {
    *("APITimeoutError", "APIConnectionError", "APIResponseValidationError"),
    *("CredentialsError", "IdentityTokenFileError", "SubjectTokenProviderError"),
    *("OpenAIError", "AnthropicError", "APIError", "APIWebhookValidationError", "RetryableError"),
    *("LengthFinishReasonError", "ContentFilterFinishReasonError", "InvalidWebhookSignatureError"),
    *("WebSocketConnectionClosedError", "WebSocketQueueFullError"),
}


def exception_classes(module: ModuleType) -> dict[str, type[Exception]]:
    return {
        found.__name__: found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, Exception) and found.__module__ == module.__name__
    }


@pytest.mark.parametrize("sdk", [openai, anthropic], ids=lambda sdk: sdk.__name__)
def test_every_exception_class_of_the_sdk_is_understood(sdk: ModuleType) -> None:
    classes = exception_classes(sdk._exceptions)
    unknown = set(classes) - set(STATUS_OF) - NEVER_RAISED
    assert not unknown, f"{sdk.__name__} has new exceptions; say what they mean: {unknown}"
    for name in classes.keys() & STATUS_OF.keys():
        status, kind = STATUS_OF[name]
        raised = classes[name].__new__(classes[name])
        raised.__dict__.update(status_code=status, body=None)
        assert call_failure(raised, "m", ENDPOINT).kind is kind, name
