"""``providers``: the endpoints of the catalogue, and whether they can be used here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import click

from bestarm_agent.cli.given import STUDY_FILE, Given
from bestarm_agent.cli.output import Column, print_table, say
from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import environment
from bestarm_agent.domain.values import Json
from bestarm_agent.errors import BestarmError, ConfigError
from bestarm_agent.providers.api.endpoints import NO_KEY, Vendor, is_loopback
from bestarm_agent.providers.api.provider import ApiProvider
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.catalog_entry import ProviderEntry, merge_options
from bestarm_agent.providers.registry import create_provider, find_adapter

_SECONDS = 30.0
_MODELS_SHOWN = 20


def providers(given: Given, name: str | None, check: bool) -> int:
    """List providers, or show one, as ``study.yaml`` of this folder sets it."""
    catalog, entries = Catalog(Path(), given.options().catalog_dirs), list[ProviderEntry]()
    if name:
        entries.append(catalog.get("providers", name).parse(ProviderEntry))
        if Path(STUDY_FILE).exists():
            options = given.load().config.providers.get(name, {})
            changed = {"options": merge_options(entries[0].options, options)}
            entries = [entries[0].model_copy(update=changed)]
        _show(entries[0])
    else:
        for each in catalog.names("providers"):
            try:
                entries.append(catalog.get("providers", each).parse(ProviderEntry))
                _class(entries[-1])
            except ConfigError as error:  # such as another program's file in a folder `providers`
                entries = [entry for entry in entries if entry.name != each]
                click.echo(f"left out: {error}", err=True)
        print_table(
            ["provider", "key", Column("address", "middle")],
            [[entry.name, _key(entry), _address(entry)] for entry in entries],
        )
    return 1 if check and not _check(entries) and name else 0


def provider_note(name: str, base_dir: Path) -> str:
    """Return how a study would name a provider's key and address; "" if it has none.

    Raises ConfigError if there is no such provider.
    """
    entry = Catalog(base_dir, ()).get("providers", name).parse(ProviderEntry)
    if _vendor(entry) is None:
        return ""
    key = "" if (variable := _variable(entry)) is None else f", key: {variable}"
    return f"{name}: {{base_url: {_address(entry)}{key}}}"


def is_priced(full_name: str, base_dir: Path, options: Mapping[str, Json]) -> bool:
    """Return whether the price of a model ``provider/model`` is known without the study saying it.

    ``options`` are the study's of its provider. Raises ConfigError if there is no such provider.
    """
    name, _, model = full_name.partition("/")
    entry = Catalog(base_dir, ()).get("providers", name).parse(ProviderEntry)
    if not _class(entry).takes_facts:
        return False  # it runs here, or is a program: what an hour or a call costs is the user's
    shared, _ = entry.resolve(options, {})
    provider = create_provider(name, shared, base_dir, adapter=entry.adapter)
    return provider.capabilities(model).priced


def _show(entry: ProviderEntry) -> None:
    say(f"{entry.name}: {entry.description}", f"adapter: {entry.adapter}")
    say(f"address: {_address(entry)}", f"key: {_key(entry)}")
    for name, value in entry.options.items():
        if name not in ("base_url", "endpoints", "key"):
            say(f"{name}: {_text(value)}")
    for pattern, facts in entry.models.items():
        say(f"models {pattern}: {_text(facts.model_dump(exclude_none=True)) or 'as above'}")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_text(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _class(entry: ProviderEntry) -> type[Provider]:
    return find_adapter(entry.adapter, Path())


def _vendor(entry: ProviderEntry) -> Vendor | None:
    return getattr(_class(entry), "vendor", None)


def _address(entry: ProviderEntry) -> str:
    vendor = _vendor(entry)
    given = entry.options.get("endpoints") or entry.options.get("base_url")
    if isinstance(given, list):
        return ", ".join(map(str, given))
    return str(given or (vendor.url if vendor else "in this process" if _is_ours(entry) else "?"))


def _is_ours(entry: ProviderEntry) -> bool:
    """Return whether a provider is no plug-in, which may have an address and a key of its own."""
    return _class(entry).__module__.startswith("bestarm_agent.")


def _key(entry: ProviderEntry) -> str:
    variable = _variable(entry)
    if variable is None:
        return "none needed" if _vendor(entry) or _is_ours(entry) else "as its plug-in says"
    return f"{variable} ({'set' if _is_set(variable) else 'not set'})"


def _variable(entry: ProviderEntry) -> str | None:
    vendor = _vendor(entry)
    named = entry.options.get("key")
    if vendor is None or named == NO_KEY or (named is None and is_loopback(_address(entry))):
        return None
    return str(named or vendor.key_variable)


def _is_set(variable: str) -> bool:
    return bool(environment().get(variable))


def _check(entries: list[ProviderEntry]) -> bool:
    """Ask all endpoints for their models at once; return False if one does not tell."""

    async def ask_all() -> list[tuple[bool, str]]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_models(entry)) for entry in entries if _vendor(entry)]
        return [task.result() for task in tasks]

    answers = asyncio.run(ask_all())
    for is_good, line in answers:
        click.echo(line, err=not is_good)
    return all(is_good for is_good, _ in answers)


async def _models(entry: ProviderEntry) -> tuple[bool, str]:
    """Return whether an endpoint lists its models, and the line that says so."""
    # a request without a key would be refused, which looks like a wrong address
    variable = _variable(entry)
    if variable is not None and not _is_set(variable):
        return False, f"{entry.name}: not asked; set {variable} to its key"
    try:
        provider = create_provider(entry.name, entry.options, Path(), adapter=entry.adapter)
        if not isinstance(provider, ApiProvider):
            return True, f"{entry.name}: starts servers of its own"
        async with asyncio.timeout(_SECONDS), provider:
            names = await provider.list_models()
    except BestarmError as error:
        return False, f"{entry.name}: {error}"
    except TimeoutError:
        return False, f"{entry.name}: no answer within {_SECONDS:g} s; check the address"
    listed = ", ".join(names[:_MODELS_SHOWN]) + (", ..." if len(names) > _MODELS_SHOWN else "")
    return True, f"{entry.name}: {len(names)} models: {listed}"
