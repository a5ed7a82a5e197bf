"""Reasons why a response ended: one closed table for all protocols.

A response is an answer, was cut off, was refused or filtered, or is no answer at all. The words are
those of OpenAI, Anthropic and the servers of the catalogue (November 2026); they are compared by
their letters alone, so that "MAX_TOKENS", "maxTokens" and "FINISH_REASON_MAX_TOKENS" are one, and
what follows a colon ("content_filter: PROHIBITED_CONTENT") is left out of account. A word that is
not in the table is no answer: a failure that counts as a wrong answer could make a good model lose,
and one that is tried again costs a call. A provider's option ``finish`` adds words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from bestarm_agent.domain.value_class import value_class
from bestarm_agent.domain.values import Finish, Json

_WORDS: Mapping[Finish, str] = {
    # Anthropic: end_turn, stop_sequence, tool_use. TGI and Together: eos, eos_token. Cohere:
    # complete, tool_call. Responses: completed. SambaNova: end_of_text.
    Finish.STOP: "stop stop_sequence end_turn eos eos_token end_of_text complete completed "
    "tool_calls tool_call tool_use function_call",
    # Anthropic: max_tokens, model_context_window_exceeded. Responses: max_output_tokens. Mistral:
    # model_length. Cohere: error_limit. MiniMax: max_output. vLLM: repetition (cut by request).
    Finish.LENGTH: "length max_tokens max_output_tokens max_completion_tokens model_length "
    "model_context_window_exceeded error_limit max_output repetition",
    Finish.REFUSAL: "refusal",
    # Google's are those from safety on. Bedrock: guardrail_intervened. Zhipu: sensitive.
    Finish.CONTENT_FILTER: "content_filter content_filtered error_toxic guardrail_intervened "
    "sensitive safety recitation blocklist prohibited_content spii",
}
# Known to be no answers: nobody is asked to declare them. OpenRouter: error. vLLM, SGLang: abort.
# Ollama: load, unload. DeepSeek: insufficient_system_resource, aborted. Zhipu: network_error.
# Responses: failed, cancelled, in_progress, queued.
_FAILURES = (
    "error abort aborted load unload insufficient_system_resource network_error timeout "
    "failed cancelled canceled user_cancel in_progress queued incomplete"
)
_PREFIX = re.compile(r"(finish|stop)_?reason[._]", re.IGNORECASE)
_NO_REASON = {"", "null", "none"}
_SHOWN = 40


@lru_cache(maxsize=1000)
def letters(word: str) -> str:
    """Return what words are compared by.

    Example:
        >>> letters("FinishReason.MAX_TOKENS"), letters("content_filter: SPII")
        ('maxtokens', 'contentfilter')
    """
    return re.sub(r"[^a-z]", "", _PREFIX.sub("", word.partition(":")[0]).lower())


_TABLE = {letters(word): finish for finish, words in _WORDS.items() for word in words.split()}
_FILTERS = [word for word, finish in _TABLE.items() if finish is Finish.CONTENT_FILTER]
_FAILED = {letters(word) for word in _FAILURES.split()}


@value_class
class Ending:
    """The end of a response."""

    finish: Finish | None  # None: it is no answer
    problem: str = ""  # why it is none, or what it lacks, for people
    unknown: str = ""  # the reason to stop that is in no table, or ""
    error: Json = None  # the server's own error


def ending(
    reason: Json,
    words: Mapping[str, Finish],
    *,
    text: str | None,
    calls: bool,
    thinks: bool,
    error: Json = None,
    native: Json = None,
) -> Ending:
    """Return how a response ended.

    Args:
        reason: to stop, as the server says; one without any is finished if it says something.
        words: further reasons, by the option ``finish``.
        text: what it says, which may be empty; None if it holds none.
        calls: whether it calls a tool.
        thinks: whether it holds thoughts.
        error: what it holds beside or in place of an answer.
        native: the reason of a server behind a gateway, which may write "stop" for a failure.
    """
    # The order is that of certainty. An error overrides any reason to stop, and a failure reported
    # by the server behind a gateway overrides the "stop" that the gateway writes for it. A response
    # without a reason is judged by what it says. Only then is the word looked up, the user's own
    # words first.
    if error:
        return Ending(None, "it holds an error", error=error)
    if isinstance(native, str) and letters(native) in _FAILED:
        return Ending(None, f"it ended with {native[:_SHOWN]!r}")
    if reason is None or (isinstance(reason, str) and reason.lower() in _NO_REASON):
        return Ending(Finish.STOP) if text or calls else Ending(None, "it says nothing, nor why")
    word = letters(reason) if isinstance(reason, str) else ""
    declared = {letters(reason_declared): finish for reason_declared, finish in words.items()}
    filtered = Finish.CONTENT_FILTER if any(name in word for name in _FILTERS) else None
    finish = declared.get(word, _TABLE.get(word, filtered))  # "IMAGE_SAFETY" holds "safety"
    excerpt = f"{reason!s:.{_SHOWN}}"
    if finish is None:
        is_known = word in _FAILED
        return Ending(None, f"it ended with {excerpt!r}", unknown="" if is_known else excerpt)
    # An answer may be empty (``text`` is ""): a model may stop at once. A message that holds no
    # text at all (None), no call and no thought is no answer, whatever its reason to stop; nor is
    # one without text that ended with a call, which the server could not read, or with thoughts.
    is_call = "tool" in word or "function" in word
    is_empty = text is None or ((is_call or thinks) and not text.strip())
    if finish is Finish.STOP and is_empty and not calls:
        if thinks:
            return Ending(Finish.LENGTH, "it ended with its reasoning, and gave no answer")
        return Ending(None, f"it says nothing, and ended with {excerpt!r}")
    return Ending(finish)
