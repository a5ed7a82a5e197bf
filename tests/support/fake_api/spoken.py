"""An answer as it leaves the model: cut where the request says, counted, with a reason to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tests.support.fake_api.calls import Answer, Call, Said, arguments_text, pieces, tokens_of

_CERTAIN = 0.0
_HIDDEN = -9999.0  # what OpenAI reports for a token that is not among the most likely


@dataclass(frozen=True)
class Spoken:
    """One answer.

    Attributes:
        said: what the model said, its text cut to the limit.
        finish: "stop", "length", "refusal" or "filter".
        tokens: generated, reasoning included.
    """

    said: Said
    finish: str
    tokens: int

    @property
    def text(self) -> str:
        return self.said.text


def speak(call: Call, answer: Answer, *, limited: bool = True) -> Spoken:
    """Answer a request, ``limited`` to its max_tokens."""
    told = answer(call)
    said = Said(told) if isinstance(told, str) else told
    called = "".join(name + arguments_text(arguments) for name, arguments in said.calls)
    tokens, most = said.reasoning + tokens_of(said.text + called), call.max_tokens
    if not limited or most is None or tokens <= most:
        return Spoken(said, "refusal" if said.refused else "stop", tokens)
    left = max(0, most - said.reasoning)
    text = said.text.encode()[: 4 * left].decode(errors="ignore")
    return Spoken(replace(said, text=text, reasoning=min(said.reasoning, most)), "length", most)


def token_logprobs(call: Call, said: Said) -> list[dict[str, Any]]:
    """Log-probabilities of the tokens of an answer, as chat completions and responses tell them."""
    asked = call.body.get("top_logprobs") or 0
    tokens = []
    for i, token in enumerate(pieces(said.text)):
        chances = dict(said.alternatives) if i == 0 else {}
        chances.setdefault(token, 1.0)
        ranked = sorted(chances.items(), key=lambda pair: -pair[1])
        top = [_logprob(text, share) for text, share in ranked[:asked]]
        tokens.append({**_logprob(token, chances[token]), "top_logprobs": top})
    return tokens


def _logprob(token: str, share: float) -> dict[str, Any]:
    value = math.log(share) if share > 0 else _HIDDEN
    return {"token": token, "logprob": value or _CERTAIN, "bytes": list(token.encode())}
