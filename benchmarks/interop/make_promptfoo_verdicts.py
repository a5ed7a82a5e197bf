"""Let promptfoo itself run the config of the tests, and keep its verdicts.

::

    npm i promptfoo@0.123.1 node@22      # anywhere; put node_modules/.bin on the PATH
    python -m benchmarks.interop.make_promptfoo_verdicts node_modules/.bin/promptfoo
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.fake_api.server import FakeApi
from tests.support.fake_api.threads import in_thread
from tests.support.promptfoo_answers import say

GOLDEN = Path(__file__).parents[2] / "tests" / "interop" / "golden" / "promptfoo"


def verdict(row: dict[str, Any]) -> dict[str, Any]:
    """Return of a row what must be the same here."""
    parts = row["gradingResult"]["componentResults"]
    return {
        "model": row["provider"].get("label") or row["provider"]["id"],
        "answer": row["response"]["output"],
        "success": row["success"],
        "score": round(row["score"], 9),
        "named": {name: round(value, 9) for name, value in row["namedScores"].items()},
        "assertions": [
            [part["assertion"]["type"], part["pass"], round(part["score"], 4)]
            for part in parts
            if part.get("assertion")
        ],
    }


def main() -> None:
    """Run promptfoo, named by the first argument, against a server on the loopback interface."""
    with in_thread(FakeApi(answer=say, key=None)) as api, TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.argv[1], "eval", "-c", str(GOLDEN / "promptfooconfig.yaml"), "-o", str(out)]
        own = {
            "OPENAI_BASE_URL": api.openai_url,
            "OPENAI_API_KEY": "fake",
            "PROMPTFOO_CONFIG_DIR": folder,
            "PROMPTFOO_DISABLE_TELEMETRY": "1",
            "PROMPTFOO_DISABLE_UPDATE": "1",
            "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
            "PROMPTFOO_PYTHON": sys.executable,
        }
        flags = ["--no-cache", "--no-share", "--no-table", "--no-progress-bar"]
        subprocess.run(
            [*command, *flags], env={**os.environ, **own}, check=False
        )  # 100: tests fail
        rows = json.loads(out.read_text())["results"]["results"]
    rows.sort(key=lambda row: (row["testIdx"], row["promptIdx"]))
    lines = ",\n".join(json.dumps(verdict(row)) for row in rows)
    (GOLDEN / "verdicts.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
