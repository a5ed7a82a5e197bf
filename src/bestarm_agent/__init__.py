"""Find the best LLM candidate from a small part of the calls.

>>> from bestarm_agent import Budget, Study
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from bestarm_agent._version import __version__

if TYPE_CHECKING:
    from bestarm_agent.domain.candidate import Candidate, Message, PromptTemplate
    from bestarm_agent.domain.example import Example
    from bestarm_agent.domain.spend import Budget, Spend
    from bestarm_agent.engine.results.standing import Row, Standing
    from bestarm_agent.engine.setup.open_run import Options
    from bestarm_agent.errors import (
        BestarmError,
        CandidateError,
        ConfigError,
        JudgeError,
        PluginError,
        ProviderError,
        StoreError,
    )
    from bestarm_agent.optimization.rounds import Feedback, optimize
    from bestarm_agent.providers.python import Task
    from bestarm_agent.study import Study

__all__ = [
    "BestarmError",
    "Budget",
    "Candidate",
    "CandidateError",
    "ConfigError",
    "Example",
    "Feedback",
    "JudgeError",
    "Message",
    "Options",
    "PluginError",
    "PromptTemplate",
    "ProviderError",
    "Row",
    "Spend",
    "Standing",
    "StoreError",
    "Study",
    "Task",
    "__version__",
    "optimize",
]

# Imported when first used, so that `import bestarm_agent.selectors` stays light.
_MODULES: Final = {
    "domain.candidate": ("Candidate", "Message", "PromptTemplate"),
    "domain.example": ("Example",),
    "domain.spend": ("Budget", "Spend"),
    "engine.results.standing": ("Row", "Standing"),
    "engine.setup.open_run": ("Options",),
    "errors": (
        "BestarmError",
        "CandidateError",
        "ConfigError",
        "JudgeError",
        "PluginError",
        "ProviderError",
        "StoreError",
    ),
    "optimization.rounds": ("Feedback", "optimize"),
    "providers.python": ("Task",),
    "study": ("Study",),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}


if not TYPE_CHECKING:  # else type checkers would accept every name

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used (PEP 562)."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
