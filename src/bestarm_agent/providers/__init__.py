"""Providers answer requests: APIs, local models, programs and recorded answers."""

from typing import TYPE_CHECKING

from bestarm_agent.plugins.public_names import lazy_names

if TYPE_CHECKING:
    from bestarm_agent.domain.candidate import Message
    from bestarm_agent.domain.request_reply import Finish, Reply, Request
    from bestarm_agent.domain.spend import Spend, Usage
    from bestarm_agent.errors import FailureKind, ProviderError
    from bestarm_agent.providers.base import Capabilities, Provider
    from bestarm_agent.providers.base_provider import BaseProvider, ProviderOptions
    from bestarm_agent.providers.failures import failure
    from bestarm_agent.providers.registry import create_provider

__all__ = [
    "BaseProvider",
    "Capabilities",
    "FailureKind",
    "Finish",
    "Message",
    "Provider",
    "ProviderError",
    "ProviderOptions",
    "Reply",
    "Request",
    "Spend",
    "Usage",
    "create_provider",
    "failure",
]

if not TYPE_CHECKING:  # else type checkers would accept every name
    __getattr__ = lazy_names(
        globals(),
        {
            "domain.candidate": ("Message",),
            "domain.request_reply": ("Finish", "Reply", "Request"),
            "domain.spend": ("Spend", "Usage"),
            "errors": ("FailureKind", "ProviderError"),
            "providers.base": ("Capabilities", "Provider"),
            "providers.base_provider": ("BaseProvider", "ProviderOptions"),
            "providers.failures": ("failure",),
            "providers.registry": ("create_provider",),
        },
    )
