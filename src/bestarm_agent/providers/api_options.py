"""Options of providers behind an HTTP API: where it is, the key, and what its models can do."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from bestarm_agent.config.environment import environment
from bestarm_agent.domain.allowance import Resource
from bestarm_agent.domain.redaction import SHORTEST_SECRET
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.entry import ModelFacts

NO_KEY = "none"
_ANY_KEY = "none"  # the SDKs want some text


class ApiOptions(ModelFacts):
    """Options of the ``openai`` and ``anthropic`` adapters; those of ``ModelFacts`` besides.

    Attributes:
        base_url: address of the endpoint. Default: the vendor's, or what the vendor's own variable
            (OPENAI_BASE_URL, ANTHROPIC_BASE_URL) says.
        key: name of the environment variable that holds the key, or "none".
        api_key: the key itself, as ``${VARIABLE}``; comes before ``key``.
        headers: further headers of every request.
        vendor: name under which the price table knows the vendor. Default: the adapter's at its own
            address, else looked up by ``base_url``.
        ignore_limits: resources whose rate-limit headers mean something else than a minute's.
        overhead_tokens: tokens that a chat template may add to a request, for the upper bound.
        models: facts by patterns of model names, the first that matches.
    """

    base_url: str | None = None
    key: str | None = None
    api_key: SecretStr | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    vendor: str | None = None
    ignore_limits: tuple[Resource, ...] = ()
    overhead_tokens: int = Field(256, ge=0)
    models: dict[str, ModelFacts] = Field(default_factory=dict)

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str | None) -> str | None:
        if url is not None and urlsplit(url).scheme not in ("http", "https"):
            raise ValueError("must begin with http:// or https://")
        return url

    def facts(self, model: str, declared: ModelFacts | None = None) -> ModelFacts:
        """What is known of a model: what was declared for it, else its pattern, else the rest."""
        base = ModelFacts.model_construct(**{n: getattr(self, n) for n in ModelFacts.model_fields})
        for pattern, facts in self.models.items():
            if fnmatchcase(model, pattern):
                base = base.under(facts)
                break
        return base if declared is None else base.under(declared)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go, and with what.

    Attributes:
        url: base address.
        own: whether it is not the vendor's usual address.
        key: what to send as key; None if it is missing.
        key_source: what users would call the key's place, for messages.
        headers: further headers.
    """

    url: str
    own: bool
    key: str | None
    key_source: str
    headers: Mapping[str, str]

    @property
    def shown(self) -> str:
        """The address as messages show it: without a query, which may hold a key."""
        return self.url.partition("?")[0]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that no message may hold."""
        texts = (self.key or "", *self.headers.values())
        return tuple(text for text in texts if len(text) >= SHORTEST_SECRET)

    def check(self, provider: str) -> None:
        """Check that there is a key.

        Raises:
            ConfigError: there is none; names the variable and the way out.
        """
        if self.key is None:
            raise ConfigError(
                f"provider `{provider}` needs a key, and the environment variable "
                f"{self.key_source} is not set; set it (or write it to .env), name another one in "
                f"`providers: {{{provider}: {{key: VARIABLE}}}}`, or say `key: none` if "
                f"{self.shown} needs none"
            )


def endpoint(options: ApiOptions, *, url: str, url_variable: str, key_variable: str) -> Endpoint:
    """Find out where requests go.

    Args:
        options: what the user said.
        url: the vendor's address.
        url_variable: the environment variable that may hold another.
        key_variable: the environment variable that usually holds the key.

    Raises:
        ConfigError: the address holds a user name or a password.
    """
    environ = environment()
    chosen = options.base_url or environ.get(url_variable) or url
    if "@" in urlsplit(chosen).netloc:
        raise ConfigError(
            "base_url holds a user name or a password, which cannot be sent beside a key; send "
            "them under `headers`, as ${VARIABLE}"
        )
    variable = options.key or key_variable
    if options.api_key is not None:
        key: str | None = options.api_key.get_secret_value()
    elif variable == NO_KEY:
        key = _ANY_KEY
    else:
        # the vendor's key is not for others: an address of one's own needs one that is named
        named = options.key is not None or chosen == url or chosen == environ.get(url_variable)
        key = (environ.get(variable) if named else None) or (
            _ANY_KEY if is_loopback(chosen) else None
        )
    return Endpoint(chosen.rstrip("/"), chosen != url, key, variable, dict(options.headers))


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine.

    Example:
        >>> is_loopback("http://localhost:8000/v1"), is_loopback("https://api.openai.com/v1")
        (True, False)
    """
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
