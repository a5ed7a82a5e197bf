"""Reads what a promptfoo config names: files, providers, templates; refuses with the line."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from bestarm_agent.config.fields import dotted, shown
from bestarm_agent.config.prompts.templates import CompiledPrompt
from bestarm_agent.config.yaml.documents import check_file, read_text
from bestarm_agent.config.yaml.errors import YamlProblem
from bestarm_agent.config.yaml.parser import KeyPath, parse_yaml
from bestarm_agent.config.yaml.source_positions import Places
from bestarm_agent.domain.candidate import PromptTemplate
from bestarm_agent.errors import ConfigError

Found: TypeAlias = Any  # what stands in the file, which nobody has checked

FILE = "file://"
_DATA = (".json", ".yaml", ".yml")
_CODE = (".js", ".cjs", ".mjs", ".ts", ".py", ".rb")
_SAME = """anthropic azure bedrock cerebras cohere databricks deepinfra deepseek fireworks github
google groq litellm mistral moonshot nvidia ollama openai openrouter perplexity sambanova vertex
xai"""
# promptfoo's names, and the catalogue's
_PROVIDERS = {name: name for name in _SAME.split()} | {
    "azureopenai": "azure",
    "cloudflare-ai": "cloudflare",
    "togetherai": "together",
}
_KINDS: Mapping[str, dict[str, str]] = {
    **{kind: {} for kind in ("chat", "messages", "embedding", "embeddings")},
    "responses": {"api": "responses"},
    "completion": {"text": "completions"},
}
_SAMPLING = """frequency_penalty max_tokens presence_penalty reasoning_effort seed service_tier
stop temperature top_k top_p verbosity"""
_PARAMS = {name: name for name in _SAMPLING.split()} | {
    **dict.fromkeys(("max_completion_tokens", "max_output_tokens"), "max_tokens"),
    **dict.fromkeys(("max_new_tokens", "num_predict"), "max_tokens"),
}
_OPTIONS = {
    "apiBaseUrl": "base_url",
    "apiKey": "api_key",
    "apiKeyEnvar": "key",
    "headers": "headers",
    "passthrough": "extra_body",
}
_PRICES = {"cost": ("input", "output"), "inputCost": ("input",), "outputCost": ("output",)}
_ENVIRONMENT = re.compile(r"\{\{\s*env\.(\w+)\s*\}\}")
_ODD = re.compile(r"[^\w .:@+()-]+")


@dataclass(frozen=True)
class Source:
    """A promptfoo config; every method raises ConfigError with the line of a key path."""

    places: Places
    base_dir: Path

    def refuse(self, at: KeyPath, text: str) -> NoReturn:
        """Refuse what stands at a key path; ``text`` is a predicate with the way out."""
        raise self.places.error(f"`{dotted(at)}` {text}", *at)

    def mapping(self, found: Found, at: KeyPath, *known: str) -> dict[str, Any]:
        """Return a mapping that has no other keys than those known, if any are."""
        if not isinstance(found, dict):
            self.refuse(at, f"must be a mapping, got {shown(found)}")
        for key in found:
            if known and key not in known:
                self.refuse((*at, key), "has no counterpart here; take it out, or run promptfoo")
        return found

    def sequence(self, found: Found, at: KeyPath) -> list[Found]:
        """Return a list; an empty one for nothing."""
        if found is not None and not isinstance(found, list):
            self.refuse(at, f"must be a list, got {shown(found)}")
        return found or []

    def number(self, found: Found, at: KeyPath) -> float:
        """Return a number, which a table may hold as a text."""
        try:
            return float("" if isinstance(found, bool) else found)
        except (TypeError, ValueError):
            self.refuse(at, f"must be a number, got {shown(found)}")

    def rendered(self, value: Found, inputs: Mapping[str, Any], at: KeyPath) -> Found:
        """Return a text, or a list of them, with an example's fields filled in; else the value."""
        if isinstance(value, list):
            return [self.rendered(part, inputs, at) for part in value]
        if not isinstance(value, str) or not ("{{" in value or "{%" in value):
            return value
        try:
            return _compiled(value).render(inputs)
        except ConfigError as error:
            self.refuse(at, f"cannot be filled in: {error}")

    def path(self, name: str, at: KeyPath) -> Path:
        """Return the path of a file that is no code; ``name`` may begin with `file://`."""
        path = self.base_dir / name.removeprefix(FILE)
        if path.suffix in _CODE or "://" in name.removeprefix(FILE):
            self.refuse(at, f"is {shown(name)}; code and addresses are not read here")
        try:
            check_file(path, "file")
        except ConfigError as error:
            self.refuse(at, f"is {shown(name)}: {error}")
        return path

    def content(self, value: Found, at: KeyPath, data: Collection[str] = _DATA) -> Found:
        """Return the content of the file that a text names, parsed if it is data; else itself."""
        if not isinstance(value, str) or not value.startswith(FILE):
            return value
        path = self.path(value, at)
        text = read_text(path)
        return self.parsed(text, at) if path.suffix in data else text.strip()

    def parsed(self, text: str, at: KeyPath) -> Found:
        """Return the value of a YAML text."""
        try:
            return parse_yaml(text)[0]
        except YamlProblem as problem:
            self.refuse(at, f"is malformed YAML: {problem}")

    def model(self, found: Found, at: KeyPath) -> dict[str, Any]:
        """Return a provider's `model`, `params`, `options`, and `label` and `prompts` if given.

        ``found`` is its id, `{id, label, config, prompts}`, or `{ID: {label, config, prompts}}`.
        """
        if isinstance(found, str):
            found = {"id": found}
        if isinstance(found, dict) and len(found) == 1 and "id" not in found:
            ((name, rest),) = found.items()
            found = {"id": name, **self.mapping(rest or {}, at, "label", "config", "prompts")}
        found = self.mapping(found, at, "id", "label", "config", "prompts")
        model, options = self._named(str(found.get("id")), at)
        config, params = found.get("config") or {}, {}
        self.mapping(config, (*at, "config"), *_PARAMS, *_OPTIONS, *_PRICES)
        for key, value in config.items():
            if key in _PARAMS:
                params[_PARAMS[key]] = [value] if isinstance(value, list) else value
            elif key in _OPTIONS:
                options[_OPTIONS[key]] = _with_variables(value)
            else:  # dollars for a token
                usd = self.number(value, (*at, "config", key)) * 1_000_000
                price = dict.fromkeys(_PRICES[key], usd)
                options["price"] = {**options.get("price", {}), **price}
        label = {"label": name_of(found["label"])} if found.get("label") else {}
        prompts = {"prompts": found["prompts"]} if "prompts" in found else {}
        return {"model": model, "params": params, "options": options, **label, **prompts}

    def _named(self, name: str, at: KeyPath) -> tuple[str, dict[str, Any]]:
        provider, _, model = name.partition(":")
        kind, colon, rest = model.partition(":")
        options: dict[str, Any] = {}
        if kind in _KINDS and colon:
            model, options = rest, dict(_KINDS[kind])
        if provider not in _PROVIDERS or not model:
            self.refuse(
                at,
                f"is {shown(name)}; read are models of {', '.join(sorted(_PROVIDERS))}, such as "
                "openai:gpt-5-mini. A program of your own is a model of a study file: "
                "`python/module:function` or `command/...` (docs/providers.md)",
            )
        return f"{_PROVIDERS[provider]}/{model}", options


def name_of(found: Found) -> str:
    """Return a text, or a number, as a name of a study."""
    return _ODD.sub("_", str(found)).strip("_. ")[:60] or "unnamed"


def jinja(text: str) -> str:
    """Return a template of Nunjucks for Jinja, which has another name for the filter `dump`."""
    return re.sub(r"\|\s*dump\b", "| tojson", text)


@lru_cache(maxsize=1000)
def _compiled(text: str) -> CompiledPrompt:
    return CompiledPrompt(PromptTemplate("test", text=jinja(text)))


def _with_variables(value: Found) -> Found:
    """Return a setting with ``${NAME}`` for promptfoo's ``{{env.NAME}}``."""
    if isinstance(value, dict):
        return {key: _with_variables(item) for key, item in value.items()}
    return _ENVIRONMENT.sub(r"${\1}", value) if isinstance(value, str) else value
