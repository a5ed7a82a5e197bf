"""Images and PDF files that prompts carry: named by a field of the dataset, checked, read.

A field holds a path from the folder of the dataset, a data URL, or the http(s) URL of an image,
which is sent as it is. The first bytes say what a file is, whatever it is called. A path does not
leave the folder, by its words or by a symbolic link, unless whoever wrote the study allows links: a
dataset of somebody else could send, and show, what lies on this machine.
"""

from __future__ import annotations

import os
import re
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from bestarm_agent.config.files import shown_path
from bestarm_agent.domain.values import DataUrl, Json
from bestarm_agent.errors import ConfigError

MOST_BYTES = 20_000_000  # of an image or a file
_PDF = "application/pdf"
# The signature of each type at the file's start. A PDF may have up to a kilobyte of other bytes
# before its mark, as readers of PDF tolerate; the first 1,024 bytes are enough to tell.
_TYPES = {  # by their beginnings
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": rb"GIF8[79]a",
    "image/webp": rb"RIFF.{4}WEBP",
    _PDF: rb".{0,1019}%PDF-",
}
_HEAD = 1024  # bytes at the beginning that say what it is
_KEPT = 32  # files kept in memory: candidates ask for the same ones at about the same time
_BYTES_PER_PAGE = 2000  # of a PDF whose pages cannot be counted; few have less
# "/Type /Page", but not "/Type /Pages", the node above the pages.
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
# Since PDF 1.5 objects, pages among them, may lie in compressed object streams.
_PACKED = re.compile(rb"/ObjStm\b.{0,400}?stream\r?\n(.*?)endstream", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Attachment:
    """An image or a file of a rendered prompt, not read yet."""

    type: str  # "image_url" or "file", as in a part of a message
    value: str  # what the prompt names: a path, a data URL or an http(s) URL
    folder: Path  # from which paths start: the dataset's
    origin: str = ""  # the prompt's part, for messages
    links: bool = False  # whether symbolic links may lead out of the folder

    @property
    def is_image(self) -> bool:
        """Return whether it is an image."""
        return self.type == "image_url"

    @property
    def size(self) -> int | None:
        """Its size in bytes; None if it lies on another server, or no longer exists."""
        if self.value.startswith("data:"):
            return _size(self.value)
        try:
            return None if self._is_remote else self._path.stat().st_size
        except (ConfigError, OSError, ValueError):
            return None

    @property
    def display_name(self) -> str:
        """Its name and size, for people, or that it is gone."""
        if self._is_remote or self.value.startswith("data:"):
            return str(brief(self.value))
        size = self.size
        known = ": there is no such file" if size is None else f", {size:,} bytes"
        return f"{self.value:.200}{known}"

    def check(self) -> int:
        """Return its number of pages, 1 for an image, of which only the beginning is read.

        Raises ConfigError as ``read`` does.
        """
        if not self.is_image:
            return getattr(self.read(), "pages", 1)
        self._check_beginning()
        return 1

    def read(self) -> str:
        """Return the URL to send.

        Raises:
            ConfigError: it is missing, too large, or not what it is used as.
        """
        self._check_beginning()
        if self._is_remote:
            return self.value
        if self.value.startswith("data:"):
            return _from_url(self.value)[1]
        # The time of change and the inode are part of the cache's key: a file that was replaced is
        # read again.
        stat = self._path.stat()
        return _from_file(self._path, self.display_name, (stat.st_mtime_ns, stat.st_ino))

    def _check_beginning(self) -> None:
        """Check its size, and what it is by its first bytes; an image elsewhere may be anything."""
        if self._is_remote and self.is_image:
            return
        if self._is_remote:
            self._refuse("costs by its pages, which an address does not tell; download it")
        if (self.size or 0) > MOST_BYTES:
            self._refuse(f"has {self.size:,} bytes, at most {MOST_BYTES:,} are sent; shrink it")
        try:
            if self.value.startswith("data:"):
                head, _ = _from_url(self.value)
            else:
                if self._path.is_fifo():
                    raise ValueError("a pipe")
                with self._path.open("rb") as file:
                    head = file.read(_HEAD)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._refuse(f"cannot be read from {shown_path(self.folder)} ({why}); correct it")
        type = _type_of(head)
        if self.is_image and (type is None or type == _PDF):
            what = "a PDF, which is a `file`" if type else "no PNG, JPEG, GIF or WebP"
            self._refuse(f"is {what} by its first bytes; correct it")
        if not self.is_image and type != _PDF:
            self._refuse("is no PDF by its first bytes; `file` takes PDF files alone")

    def _refuse(self, why: str) -> NoReturn:
        origin = f"{self.origin}: " if self.origin else ""
        raise ConfigError(f"{origin}`{brief(self.value):.200}` {why}") from None

    @property
    def _is_remote(self) -> bool:
        return self.value.startswith(("http://", "https://"))

    @property
    def _path(self) -> Path:
        # Two checks: by the words of the path, which needs no file, and by what it resolves to,
        # since a link inside the folder may lead out of it.
        path = os.path.normpath(self.value or "nothing")
        if os.path.isabs(path) or path.split(os.sep)[0] == "..":
            self._refuse("leaves the folder of the dataset; name a path inside it")
        file = self.folder / path
        if not self.links and not file.resolve().is_relative_to(self.folder.resolve()):
            self._refuse(
                "leaves the folder of the dataset by a symbolic link; copy it there, or trust the "
                "links: `dataset: {links: true}`"
            )
        if file.is_fifo() or file.is_char_device():  # it may never end
            self._refuse("is a pipe or a device; name a file")
        return file


def _type_of(head: bytes) -> str | None:
    known = (type for type, beginning in _TYPES.items() if re.match(beginning, head, re.DOTALL))
    return next(known, None)


def url_of(content: bytes) -> str | None:
    """Return bytes as a data URL; None if they are no image or PDF.

    Example:
        >>> url_of(b"GIF89a"), url_of(b"<svg>")
        ('data:image/gif;base64,R0lGODlh', None)
    """
    type = _type_of(content[:_HEAD])
    return None if type is None else f"data:{type};base64,{b64encode(content).decode()}"


def brief(value: Json) -> Json:
    """Return a field's value for people and judges: of a data URL, its type and size.

    Example:
        >>> brief("data:image/png;base64,iVBORw0KGgo="), brief("6 x 7?")
        ('image/png, 8 bytes', '6 x 7?')
    """
    if isinstance(value, str) and value.startswith("data:") and ";base64," in value[:100]:
        return f"{value[5 : value.index(';')]}, {_size(value):,} bytes"
    return value


def _size(url: str) -> int:
    # Base64 writes 3 bytes as 4 characters, and "=" for each byte that the last group lacks. So the
    # size is known without decoding.
    return (len(url) - url.find(",") - 1) * 3 // 4 - url[-2:].count("=")


@lru_cache(maxsize=_KEPT)
def _from_url(url: str) -> tuple[bytes, DataUrl]:
    """Return a data URL's first bytes, and the URL with its true media type; raises ValueError."""
    head, _, text = url.partition(",")
    if not head.endswith(";base64"):
        raise ValueError("it is a data URL, but not in base64")
    content = b64decode(text, validate=True)
    return content[:_HEAD], _made(content, str(brief(url)))


@lru_cache(maxsize=_KEPT)
def _from_file(path: Path, name: str, _identity: tuple[int, int]) -> DataUrl:
    return _made(path.read_bytes(), name)


def _made(content: bytes, name: str) -> DataUrl:
    digest = sha256(content).hexdigest()
    return DataUrl(url_of(content) or "", name=name, digest=digest, pages=_pages(content))


def _pages(content: bytes) -> int:
    """Return 1 for an image, and at least the pages of a PDF."""
    if _type_of(content[:_HEAD]) != _PDF:
        return 1
    # Too many pages reserve a little money too much, too few would let a budget be passed. So where
    # a part cannot be unpacked, the larger of count and guess is taken.
    count, guess = len(_PAGE.findall(content)), 1 + len(content) // _BYTES_PER_PAGE
    for packed in _PACKED.finditer(content):
        try:
            unpacked = zlib.decompressobj().decompress(packed[1], MOST_BYTES)
        except zlib.error:
            return max(count, guess)
        count += len(_PAGE.findall(unpacked))
    return count or guess
