"""Configured secrets are masked wherever they appear, whatever they look like."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest

from bestarm_agent.domain.redaction import masked, without_traces

SECRET = "correct-horse-battery-staple"


@pytest.mark.parametrize("secret", [SECRET, "pass word/with?signs", "12345678", "schlüssel"])
@pytest.mark.parametrize("header", ["", "Bearer "])
def test_a_secret_is_found_in_every_form(secret: str, header: str) -> None:
    encoded = secret.encode()
    forms = [
        secret,
        quote(secret, safe=""),
        "".join(f"%{byte:02X}" for byte in encoded),
        *(b64encode(b"x" * shift + encoded).decode() for shift in range(3)),
        urlsafe_b64encode(encoded).decode(),
    ]
    for form in forms:
        shown = without_traces(f"<{form}>", [f"{header}{secret}"])
        assert "[redacted]" in shown, form
        assert form not in shown
    assert "[redacted]" in masked(f"wrong key {secret}", {f"{header}{secret}": "[redacted]"})


def test_short_texts_and_other_words_stay() -> None:
    assert without_traces("hunter2 is a battery", ["hunter2", SECRET]) == "hunter2 is a battery"
