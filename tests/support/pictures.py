"""Small pictures of one colour, a PDF, and models that look at pictures."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.fake_api import Answer, Call
from tests.support.fake_api.calls import chance
from tests.support.studies import study_file

COLOURS = {"red": (255, 0, 0), "green": (0, 160, 0), "blue": (0, 0, 255)}
_BEGINNING = b"\x89PNG\r\n\x1a\n"


def png(colour: str, seed: int = 0) -> bytes:
    """A picture of 8 x 8 points; those of two seeds differ in a point that nobody looks at."""
    row = bytes(COLOURS[colour]) * 8
    points = b"".join(b"\x00" + row for _ in range(7)) + b"\x00" + row[:-3] + seed.to_bytes(3)
    header = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(points)), (b"IEND", b""))
    return _BEGINNING + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def colour_of(content: bytes) -> str:
    """The colour of a picture, read from its points."""
    start = content.index(b"IDAT") + 4
    points = zlib.decompressobj().decompress(content[start:])
    return {rgb: name for name, rgb in COLOURS.items()}[(points[1], points[2], points[3])]


def pdf(n_pages: int, *, packed: bool = False) -> bytes:
    """A PDF of empty pages, their objects in a compressed stream if they are packed."""
    pages = b"".join(b"<< /Type /Page /Parent 1 0 R >> " for _ in range(n_pages))
    if packed:
        stream = zlib.compress(pages)
        pages = b"9 0 obj << /Type /ObjStm /Length %d >> stream\n%s\nendstream" % (
            len(stream),
            stream,
        )
    return b"%PDF-1.7\n1 0 obj << /Type /Pages >> endobj\n" + pages + b"\n%%EOF"


def looking(shares: Mapping[str, float]) -> Answer:
    """Models that name the colour of the picture, each right on its own share of them."""

    def answer(call: Call) -> str:
        [(_, content)] = call.attached
        seen = colour_of(content)
        if chance(call.model, content) < shares[call.model]:
            return seen
        return next(name for name in COLOURS if name != seen)

    return answer


def picture_study(folder: Path, n: int, **study: Any) -> Path:  # noqa: ANN401
    """Write a study of pictures, in a folder beside the dataset; return the path of its file."""
    (folder / "photos").mkdir(parents=True)
    rows = [{"photo": f"photos/{i}.png", "colour": [*COLOURS][i % 3]} for i in range(n)]
    for i, row in enumerate(rows):
        (folder / row["photo"]).write_bytes(png(row["colour"], i))
    content = ["Which colour is it?", {"image": "{{ photo }}"}]
    usual = {
        "prompts": [{"look": [{"role": "user", "content": content}]}],
        "dataset": {"path": "rows.jsonl", "target": "colour"},
        "scorer": "exact",
        "params": {"max_tokens": 16},
    }
    return study_file(folder, {"rows": rows}, **{**usual, **study})
