"""What the models of `tests/interop/golden/promptfoo` say, to promptfoo and to the judges here."""

from __future__ import annotations

import json
import string

from tests.support.fake_api.calls import Api, Call


def say(call: Call) -> str:
    """Echo, embed by letters, or grade: an answer that holds "right" passes with 0.7."""
    if call.api is Api.EMBEDDINGS:
        text = call.question.lower()
        return json.dumps([text.count(letter) + 0.01 for letter in string.ascii_lowercase])
    if call.model != "gpt-4.1":
        return call.question
    is_right = "right" in call.question.lower().replace("says that it is right", "")
    if "GRADE" in call.question:
        return "GRADE: C" if is_right else "GRADE: I"
    if "Reply with one JSON object" in call.question:  # of the judges here
        return json.dumps({"pass": int(is_right), "score": 0.7 if is_right else 0.2})
    return json.dumps({"reason": "", "pass": is_right, "score": 0.7 if is_right else 0.2})
