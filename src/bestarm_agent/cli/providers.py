"""``providers``: the endpoints of the catalogue, and whether they can be used here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bestarm_agent.cli.options import CatalogOption, default_catalogs
from bestarm_agent.errors import BestarmError

if TYPE_CHECKING:
    from bestarm_agent.providers.api.endpoints import Vendor
    from bestarm_agent.providers.catalog_entry import ProviderEntry

_SECONDS = 30.0
_MODELS_SHOWN = 20


def providers(
    name: Annotated[str, typer.Argument(help="One provider; all if left out.")] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Ask those with a key for their list of models.")
    ] = False,
    catalog: CatalogOption = None,
) -> None:
    """List providers, and whether their keys are set."""
    from bestarm_agent.config.catalog import Catalog
    from bestarm_agent.providers.catalog_entry import ProviderEntry

    found = Catalog(Path(), default_catalogs(catalog))
    names = [name] if name else found.names("providers")
    entries = [found.get("providers", one).parse(ProviderEntry) for one in names]
    if name:
        _show(entries[0])
    else:
        _list(entries)
    if check and not _check(entries) and name:
        raise typer.Exit(1)


def _list(entries: list[ProviderEntry]) -> None:
    from bestarm_agent.cli.result_output import plain_table, stdout_console

    table = plain_table("provider", "key", "address")
    for entry in entries:
        table.add_row(entry.name, _key(entry), _address(entry))
    stdout_console().print(table)


def _show(entry: ProviderEntry) -> None:
    typer.echo(f"{entry.name}: {entry.description}")
    typer.echo(f"adapter: {entry.adapter}\naddress: {_address(entry)}\nkey: {_key(entry)}")
    for name, value in entry.options.items():
        if name not in ("base_url", "endpoints", "key"):
            typer.echo(f"{name}: {_text(value)}")
    for pattern, facts in entry.models.items():
        typer.echo(f"models {pattern}: {_text(facts.model_dump(exclude_none=True)) or 'as above'}")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_text(item)}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _vendor(entry: ProviderEntry) -> Vendor | None:
    from bestarm_agent.providers.api.anthropic import AnthropicProvider
    from bestarm_agent.providers.api.openai import OpenAIProvider

    if entry.adapter == "anthropic":
        return AnthropicProvider.vendor
    return OpenAIProvider.vendor if entry.adapter in ("openai", "vllm") else None


def _address(entry: ProviderEntry) -> str:
    vendor = _vendor(entry)
    given = entry.options.get("endpoints") or entry.options.get("base_url")
    if isinstance(given, list):
        return ", ".join(map(str, given))
    return str(given or (vendor.url if vendor else "in this process"))


def _key(entry: ProviderEntry) -> str:
    variable = _variable(entry)
    if variable is None:
        return "none needed"
    return f"{variable} ({'set' if _is_set(variable) else 'not set'})"


def _variable(entry: ProviderEntry) -> str | None:
    from bestarm_agent.providers.api.endpoints import NO_KEY, is_loopback

    vendor = _vendor(entry)
    named = entry.options.get("key")
    if vendor is None or named == NO_KEY or (named is None and is_loopback(_address(entry))):
        return None
    return str(named or vendor.key_variable)


def _is_set(variable: str) -> bool:
    from bestarm_agent.config.load import environment

    return bool(environment().get(variable))


def _check(entries: list[ProviderEntry]) -> bool:
    """Ask all endpoints for their models at once; return False if one does not tell."""
    import asyncio

    async def ask_all() -> list[tuple[bool, str]]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_models(entry)) for entry in entries if _vendor(entry)]
        return [task.result() for task in tasks]

    answers = asyncio.run(ask_all())
    for is_good, line in answers:
        typer.echo(line, err=not is_good)
    return all(is_good for is_good, _ in answers)


async def _models(entry: ProviderEntry) -> tuple[bool, str]:
    """Return whether an endpoint lists its models, and the line that says so."""
    import asyncio

    from bestarm_agent.providers.api.provider import ApiProvider
    from bestarm_agent.providers.registry import create_provider

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
    shown = ", ".join(names[:_MODELS_SHOWN]) + (", ..." if len(names) > _MODELS_SHOWN else "")
    return True, f"{entry.name}: {len(names)} models: {shown}"
