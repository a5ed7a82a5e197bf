"""Options of providers behind an HTTP API."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from pydantic import Field, SecretStr, field_validator, model_validator

from bestarm_agent.domain.redaction import masked
from bestarm_agent.domain.spend import Resource
from bestarm_agent.providers.catalog_entry import ModelFacts

# "OPENAI_API_KEY" and "MYKEY" pass. A word of 24 characters and more without any underscore does
# not: it is probably the key itself.
_VARIABLE = re.compile(r"(?!(?!.*_).{24})[A-Za-z_]\w*", re.ASCII)  # a long one has underscores
_SCHEMES = ("http://", "https://", "${")


class ApiOptions(ModelFacts):
    """Options of the ``openai`` and ``anthropic`` adapters, in addition to ``ModelFacts``.

    Default of ``base_url``: the vendor's own variable (OPENAI_BASE_URL, ANTHROPIC_BASE_URL), else
    the vendor's address; ``${NAME}`` stands for a variable. The first pattern in ``models`` counts.
    """

    base_url: str | None = None
    endpoints: tuple[str, ...] | None = None  # addresses of equal servers, instead of ``base_url``
    key: str | None = None  # name of the environment variable that holds the key, or "none"
    api_key: SecretStr | None = None  # the key itself, as ``${VARIABLE}``; overrides ``key``
    headers: dict[str, str] = Field(default_factory=dict)  # further headers of every request
    vendor: str | None = None  # name in the price table; None: the adapter's, or by ``base_url``
    ignore_limits: tuple[Resource, ...] = ()  # those whose headers are no limits per minute
    overhead_tokens: int = Field(256, ge=0)  # tokens that a chat template may add, for the bound
    cost_header: str | None = None  # response header with the call's cost in dollars
    price_list: str | None = None  # path, below the address, of a LiteLLM proxy's list of prices
    max_response_bytes: int = Field(32_000_000, ge=1)  # decompressed; more is not read
    models: dict[str, ModelFacts] = Field(default_factory=dict)

    @field_validator("base_url", "endpoints")
    @classmethod
    def _check_urls(cls, given: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        urls = (given,) if isinstance(given, str) else given
        if urls is not None and not (urls and all(url.startswith(_SCHEMES) for url in urls)):
            raise ValueError("each address must begin with http:// or https://, and one is needed")
        return given

    @model_validator(mode="after")
    def _check_key_and_addresses(self) -> ApiOptions:
        """Refuse two addresses, or a key in place of its variable's name, without repeating it."""
        if self.key and (not _VARIABLE.fullmatch(self.key) or masked(self.key) != self.key):
            raise ValueError(
                "needs in `key` the name of an environment variable, such as OPENAI_API_KEY, and "
                "what is there cannot be one; if it is the key itself, write it to .env, and its "
                "variable's name here"
            )
        if self.base_url is not None and self.endpoints is not None:
            raise ValueError("has both `base_url` and `endpoints`; leave one of them out")
        return self

    def facts_of(self, model: str, stated: ModelFacts | None) -> ModelFacts:
        """Return all facts about a model: those stated of it, of its pattern, or of all models."""
        matching = (facts for pattern, facts in self.models.items() if fnmatchcase(model, pattern))
        # Later layers override earlier ones. ``model_construct`` skips validation: each layer was
        # validated.
        layers = filter(None, (self, next(matching, None), stated))
        facts = [(n, getattr(layer, n)) for layer in layers for n in ModelFacts.model_fields]
        return ModelFacts.model_construct(**{n: fact for n, fact in facts if fact is not None})
