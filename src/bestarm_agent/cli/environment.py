"""Apply the environment's log level and colours to commands."""

from __future__ import annotations

import logging
import os
import sys

from bestarm_agent.config.settings import Settings


class _StderrHandler(logging.Handler):
    """Writes to the present ``sys.stderr``: a live table replaces it, to keep lines above it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as a line."""
        sys.stderr.write(self.format(record) + "\n")


def apply_settings() -> None:
    """Apply ``BESTARM_LOG_LEVEL`` and ``BESTARM_NO_COLOR``; raise ConfigError if one is wrong."""
    settings = Settings()
    if settings.no_color:
        os.environ["NO_COLOR"] = "1"  # read by every console that is made from now on
    log = logging.getLogger("bestarm_agent")
    log.setLevel(settings.log_level.upper())
    if not log.handlers:
        handler = _StderrHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        log.propagate = False
