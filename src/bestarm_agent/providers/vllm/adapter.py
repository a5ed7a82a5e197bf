"""Chooses between vLLM servers that run already and those that are started here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bestarm_agent.config.yaml.documents import OptionsError, Problem, parse_options
from bestarm_agent.domain.digest import Json
from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.openai import OpenAIProvider
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.vllm.options import ServeOptions
from bestarm_agent.providers.vllm.provider import VllmProvider


class Vllm:
    """The adapter ``vllm``: with the option ``serve``, starts servers; else calls an address."""

    takes_facts = True

    @staticmethod
    def create(
        name: str, options: Mapping[str, Json], base_dir: Path, *, elsewhere: bool = False
    ) -> Provider:
        """Validate the options and build the provider; raises ConfigError.

        ``elsewhere``: it only describes models, whose servers other machines will run.
        """
        api = {key: value for key, value in options.items() if key != "serve"}
        serve = options.get("serve")
        if serve is None:
            _refuse_devices(name, options)
            return OpenAIProvider.create(name, api, base_dir)
        if not isinstance(serve, Mapping):
            raise ConfigError(f"provider `{name}`: `serve` must be a mapping, got {serve!r:.40}")
        if api.get("endpoints") is not None:
            raise ConfigError(
                f"provider `{name}` has both `serve`, which starts servers, and `endpoints` of "
                "servers that run already; leave one of them out"
            )
        try:
            parsed = parse_options(ServeOptions, serve, subject=f"provider `{name}`, serve")
        except OptionsError as error:
            problems = [replace(one, path=("serve", *one.path)) for one in error.problems]
            raise OptionsError(error.subject, problems) from None
        return VllmProvider(name, parsed, api, base_dir, elsewhere=elsewhere)

    @classmethod
    def describe(cls, name: str, options: Mapping[str, Json], base_dir: Path) -> Provider:
        """Build a provider that asks nothing of programs and devices here; raises ConfigError."""
        return cls.create(name, options, base_dir, elsewhere=True)


def _refuse_devices(name: str, options: Mapping[str, Json]) -> None:
    """Check that no devices are assigned to a server that runs already; raises OptionsError."""
    for option in ("devices", "gpus", "replicas", "memory_gb"):
        if option in options:
            text = (
                f"`{option}` assigns devices to servers that are started here, and this one runs "
                "already; move it into `serve`, or set CUDA_VISIBLE_DEVICES where you start it"
            )
            raise OptionsError(f"provider `{name}`", [Problem((option,), text)])
