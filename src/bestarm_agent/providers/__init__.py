"""Providers answer requests: APIs, local models, programs and recorded answers."""

from bestarm_agent.domain.spend import Spend, Usage
from bestarm_agent.domain.values import Finish, Message, Reply, Request
from bestarm_agent.errors import FailureKind, ProviderError
from bestarm_agent.providers.base import Capabilities, Provider, ProviderOptions
from bestarm_agent.providers.failures import failure
from bestarm_agent.providers.registry import create_provider

__all__ = [
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
