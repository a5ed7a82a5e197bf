"""Tests by betting that candidates are good enough, from few labels and many guesses."""

from bestarm_agent.certification.betting import Goal, Method, RiskTest, risk_interval
from bestarm_agent.certification.certificate import (
    Certificate,
    Screen,
    Screened,
    certify,
    certify_losses,
)
from bestarm_agent.stats.non_inferiority import Conclusion

__all__ = [
    "Certificate",
    "Conclusion",
    "Goal",
    "Method",
    "RiskTest",
    "Screen",
    "Screened",
    "certify",
    "certify_losses",
    "risk_interval",
]
