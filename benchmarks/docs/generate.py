"""Write the reference pages that follow from the code: ``python -m benchmarks.docs.generate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.docs.commands import commands_page
from benchmarks.docs.schemas import result_page, study_page

from bestarm_agent.config.starter import schema_path, schema_text

ROOT = Path(__file__).parents[2]
_DOCS = ROOT / "docs"

PAGES: dict[Path, Callable[[], str]] = {
    schema_path(): schema_text,
    _DOCS / "reference" / "commands.md": commands_page,
    _DOCS / "reference" / "study-keys.md": study_page,
    _DOCS / "reference" / "json.md": result_page,
}


def main() -> None:
    """Write all pages that are not up to date, and name them."""
    for path, make in PAGES.items():
        text = make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print("wrote", path.relative_to(ROOT))


if __name__ == "__main__":
    main()
