"""Finds the best LLM candidate from a small part of the calls."""

from bestarm_agent._version import __version__

__all__ = ["__version__"]
