"""The command ``bestarm-agent``, and ``python -m bestarm_agent``."""

from __future__ import annotations

import sys

_EXIT_INTERRUPTED = 130


def main() -> None:
    """Run a command; Ctrl-C ends it without a traceback, also while modules are imported."""
    try:
        from bestarm_agent.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
