"""Conformance suites for people who write selectors, providers or judges."""

from typing import TYPE_CHECKING

from bestarm_agent.plugins.public_names import lazy_names

if TYPE_CHECKING:
    from bestarm_agent.testing.judge_suite import JudgeCase, JudgeSuite
    from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite
    from bestarm_agent.testing.selector_suite import SelectorSuite
    from bestarm_agent.testing.virtual_time import LoopClock, run_virtual

__all__ = [
    "JudgeCase",
    "JudgeSuite",
    "LoopClock",
    "ProviderCase",
    "ProviderSuite",
    "SelectorSuite",
    "run_virtual",
]

if not TYPE_CHECKING:  # else type checkers would accept every name
    __getattr__ = lazy_names(
        globals(),
        {
            "testing.judge_suite": ("JudgeCase", "JudgeSuite"),
            "testing.provider_suite": ("ProviderCase", "ProviderSuite"),
            "testing.selector_suite": ("SelectorSuite",),
            "testing.virtual_time": ("LoopClock", "run_virtual"),
        },
    )
