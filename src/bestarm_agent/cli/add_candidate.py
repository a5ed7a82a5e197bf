"""``add``: let a candidate join a stored run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from bestarm_agent.cli.options import RunArgument, StudyPlace, Text

if TYPE_CHECKING:
    from bestarm_agent.domain.digest import Json


def add(
    place: StudyPlace,
    model: Annotated[str, typer.Argument(help="provider/model, or the label of one of the study.")],
    run: RunArgument = None,
    prompt: Annotated[
        Text, typer.Option(help="Name of a prompt of the study; default: its only one.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="Sampling parameter, NAME=VALUE; may be repeated.")
    ] = None,
    label: Annotated[Text, typer.Option(help="Name in tables.")] = None,
) -> None:
    """Let a candidate join a run; `resume` goes on with it. No call is made."""
    import asyncio

    from bestarm_agent.cli.stores import find_run
    from bestarm_agent.report.text import safe
    from bestarm_agent.study import Study

    given: dict[str, Json] = {"model": model, "params": dict(map(_parameter, param or ()))}
    given |= {"label": label} if label else {}
    where, found = find_run(run, place.store)

    async def join() -> str:
        async with Study.resume(found, options=place.options(where)) as study:
            given["prompt"] = prompt or _only(list(study.parts.prompts))
            return study.add_candidates([given])[0].label

    joined = safe(asyncio.run(join()))
    typer.echo(
        f"{joined} joined; `bestarm-agent resume` goes on, with --budget-... if it had ended"
    )


def _parameter(text: str) -> tuple[str, Json]:
    import yaml

    from bestarm_agent.errors import ConfigError

    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ConfigError(f"--param must be NAME=VALUE, such as temperature=0.7, got {text!r}")
    read: Json = yaml.safe_load(value)
    return name, read


def _only(prompts: list[str]) -> str:
    from bestarm_agent.errors import ConfigError

    if len(prompts) != 1:
        raise ConfigError(f"name one of the study's prompts with --prompt: {', '.join(prompts)}")
    return prompts[0]
