from __future__ import annotations

from tests.stats.conftest import check_rate

__all__ = ["check_rate"]
