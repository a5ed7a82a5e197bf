"""Tests by betting that candidates are good enough, from few labels and many guesses."""

from bestarm_agent.certification.certificate import Certificate, Screened, certify
from bestarm_agent.certification.evidence import Goal, Method, RiskTest
from bestarm_agent.certification.finite_pool import LabelAsk, PoolTest
from bestarm_agent.certification.multiple_testing import bonferroni, e_bh, fixed_sequence
from bestarm_agent.certification.risk_intervals import risk_interval
from bestarm_agent.certification.screening import DrawScreen, PoolScreen, Verdict

__all__ = [
    "Certificate",
    "DrawScreen",
    "Goal",
    "LabelAsk",
    "Method",
    "PoolScreen",
    "PoolTest",
    "RiskTest",
    "Screened",
    "Verdict",
    "bonferroni",
    "certify",
    "e_bh",
    "fixed_sequence",
    "risk_interval",
]
