"""Count lines and files by room, and compare them with the table in docs/architecture.md.

``python .ci/sizes.py`` fails where a number is above its row in the table. Numbers there may only
fall; raising one is a decision that the commit explains.
"""

import ast
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bestarm_agent"
ROW = re.compile(r"^\| `?([^`|]+?)`? \| ([\d,]+) \|(?: ([\d,]+) \|)?", re.MULTILINE)


def lines_of(*paths: Path) -> int:
    """Count the lines of files."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def in_circles(seen: dict[str, set[str]]) -> int:
    """Count the rooms that can be reached from themselves, by eager or by lazy imports."""
    reached = {room: set(others) - {room} for room, others in seen.items()}
    for _ in reached:
        for others in reached.values():
            others.update(*(reached.get(other, set()) for other in list(others)))
    return sum(room in others for room, others in reached.items())


def measure() -> dict[str, tuple[int, int]]:
    """Return (lines, files) of every room, and the counts that the whole package is held to."""
    rooms: defaultdict[str, list[Path]] = defaultdict(list)
    homes: defaultdict[str, set[Path]] = defaultdict(set)
    importers: defaultdict[str, set[str]] = defaultdict(set)
    seen: defaultdict[str, set[str]] = defaultdict(set)
    modules = {
        ".".join(("bestarm_agent", *path.relative_to(SOURCE).with_suffix("").parts)): path
        for path in SOURCE.rglob("*.py")
    }
    for name, path in modules.items():
        inside = path.relative_to(SOURCE).with_suffix("").parts
        rooms[inside[0] if len(inside) > 1 else "loose modules"].append(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(path)
            if isinstance(node, ast.ImportFrom) and node.module:
                for full in (f"{node.module}.{alias.name}" for alias in node.names):
                    importers[full if full in modules else node.module].add(name)
                    seen[inside[0]].update(full.split(".")[1:2])
    single = [name for name in modules if len(importers[name]) == 1 and "__init__" not in name]
    sizes = {room: (lines_of(*paths), len(paths)) for room, paths in sorted(rooms.items())}
    sizes["all of src"] = (lines_of(*modules.values()), len(modules))
    for folder in ("tests", "benchmarks"):
        paths = list((ROOT / folder).rglob("*.py"))
        sizes[folder] = (lines_of(*paths), len(paths))
    pages = list((ROOT / "docs").rglob("*.md"))
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    sizes["words of docs"] = (words, len(pages))
    sizes["modules with one importer"] = (len(single), 0)
    sizes["class names with two homes"] = (sum(len(paths) > 1 for paths in homes.values()), 0)
    sizes["rooms in circles"] = (in_circles(seen), 0)
    return sizes


def main() -> int:
    """Print the counts; return 1 if one is above the table."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## Sizes")[1]
    table = {
        name: tuple(int(number.replace(",", "") or 0) for number in (lines, files))
        for name, lines, files in ROW.findall(page)
    }
    wrong = Counter[str]()
    for name, (lines, files) in measure().items():
        most = table.get(name, (0, 0))
        wrong[name] += lines > most[0] or files > most[1]
        mark = f"   above the table: {most[0]:,} {most[1] or ''}" if wrong[name] else ""
        print(f"{name:28}{lines:8,}{files or '':>6}{mark}")
    return min(wrong.total(), 1)


if __name__ == "__main__":
    sys.exit(main())
