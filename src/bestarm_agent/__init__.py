"""Find the best LLM candidate from a small part of the calls.

>>> from bestarm_agent import Budget, Study
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from bestarm_agent._version import __version__ as __version__

if TYPE_CHECKING:
    from bestarm_agent.domain.spend import Budget as Budget
    from bestarm_agent.domain.spend import Spend as Spend
    from bestarm_agent.domain.values import Candidate as Candidate
    from bestarm_agent.domain.values import CandidateDict as CandidateDict
    from bestarm_agent.domain.values import Example as Example
    from bestarm_agent.domain.values import Json as Json
    from bestarm_agent.domain.values import Message as Message
    from bestarm_agent.domain.values import PromptTemplate as PromptTemplate
    from bestarm_agent.engine.results.pairs import PairFilter as PairFilter
    from bestarm_agent.engine.results.standing import Row as Row
    from bestarm_agent.engine.results.standing import Standing as Standing
    from bestarm_agent.engine.setup.options import Options as Options
    from bestarm_agent.errors import BestarmError as BestarmError
    from bestarm_agent.errors import CandidateError as CandidateError
    from bestarm_agent.errors import ConfigError as ConfigError
    from bestarm_agent.errors import JudgeError as JudgeError
    from bestarm_agent.errors import PluginError as PluginError
    from bestarm_agent.errors import ProviderError as ProviderError
    from bestarm_agent.errors import StoreError as StoreError
    from bestarm_agent.one_call import find_best as find_best
    from bestarm_agent.one_call import select as select
    from bestarm_agent.optimization.rounds import Feedback as Feedback
    from bestarm_agent.optimization.rounds import optimize as optimize
    from bestarm_agent.providers.python import Task as Task
    from bestarm_agent.store.export import PairOutcome as PairOutcome
    from bestarm_agent.study import Archive as Archive
    from bestarm_agent.study import Study as Study

# Imported when first used, so that `import bestarm_agent.selectors` stays light.
_MODULE_OF: Final = {
    "Archive": "study",
    "BestarmError": "errors",
    "Budget": "domain.spend",
    "Candidate": "domain.values",
    "CandidateDict": "domain.values",
    "CandidateError": "errors",
    "ConfigError": "errors",
    "Example": "domain.values",
    "Feedback": "optimization.rounds",
    "JudgeError": "errors",
    "Json": "domain.values",
    "Message": "domain.values",
    "Options": "engine.setup.options",
    "PairFilter": "engine.results.pairs",
    "PairOutcome": "store.export",
    "PluginError": "errors",
    "PromptTemplate": "domain.values",
    "ProviderError": "errors",
    "Row": "engine.results.standing",
    "Spend": "domain.spend",
    "Standing": "engine.results.standing",
    "StoreError": "errors",
    "Study": "study",
    "Task": "providers.python",
    "find_best": "one_call",
    "optimize": "optimization.rounds",
    "select": "one_call",
}
__all__ = [*_MODULE_OF, "__version__"]

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
