"""Finds the best LLM candidate from a small part of the calls.

>>> from bestarm_agent import Budget, Study
"""

from bestarm_agent._version import __version__
from bestarm_agent.domain.candidate import Candidate, Message, PromptTemplate
from bestarm_agent.domain.example import Example
from bestarm_agent.domain.spend import Budget, Spend
from bestarm_agent.errors import (
    BestarmError,
    CandidateError,
    ConfigError,
    ProviderError,
    StoreError,
)
from bestarm_agent.opening import Options
from bestarm_agent.providers.program_task import Task
from bestarm_agent.standing import Row, Standing
from bestarm_agent.study import Study

__all__ = [
    "BestarmError",
    "Budget",
    "Candidate",
    "CandidateError",
    "ConfigError",
    "Example",
    "Message",
    "Options",
    "PromptTemplate",
    "ProviderError",
    "Row",
    "Spend",
    "Standing",
    "StoreError",
    "Study",
    "Task",
    "__version__",
]
