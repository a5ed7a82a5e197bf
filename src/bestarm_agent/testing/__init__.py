"""Conformance suites for people who write selectors, providers or judges."""

from bestarm_agent.testing.judge_suite import JudgeCase, JudgeSuite
from bestarm_agent.testing.provider_suite import ProviderCase, ProviderSuite
from bestarm_agent.testing.selector_suite import SelectorSuite

__all__ = ["JudgeCase", "JudgeSuite", "ProviderCase", "ProviderSuite", "SelectorSuite"]
