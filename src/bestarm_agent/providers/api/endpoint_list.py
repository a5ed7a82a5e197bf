"""The addresses of a provider: one, several, or those of a file that may change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bestarm_agent.errors import ConfigError
from bestarm_agent.providers.api.connection import Endpoint, Vendor, endpoint_at, find_endpoint
from bestarm_agent.providers.api.options import FILE, ApiOptions

_SHARED = "endpoints"  # stands for all of them where a single address would stand for itself


class EndpointList:
    """The endpoints that calls may go to at the moment.

    Attributes:
        identity: what a reply depends on: the address, or the same text for any list.
        priced_by: address for the price table.
        is_own: true if this is not the vendor's usual address.
    """

    def __init__(self, options: ApiOptions, vendor: Vendor, base_dir: Path) -> None:
        self._options = options
        self._vendor = vendor
        self._path: Path | None = None
        self._seen: tuple[int, ...] | None = None  # the state of the file when it was last read
        self._now: tuple[Endpoint, ...] = ()
        self.complaint: str | None = None  # the fault of the file, for people
        given = options.endpoints
        if given is None:
            self._now = (find_endpoint(options, vendor),)
            self.identity = self.priced_by = self._now[0].url
        elif isinstance(given, str):
            self.identity, self.priced_by = _SHARED, given
            self._path = base_dir / given.removeprefix(FILE)
        else:
            self._now = _distinct(endpoint_at(url, options, vendor) for url in given)
            self.identity, self.priced_by = _SHARED, self._now[0].url
        self.is_own = given is not None or self._now[0].own

    def current(self) -> tuple[Endpoint, ...]:
        """Return the endpoints, by the file as it is now; the last good ones if it is damaged."""
        if self._path is not None and (seen := _state(self._path)) not in (None, self._seen):
            self._seen = seen
            try:
                self._now, self.complaint = self._read(self._path), None
            except ConfigError as error:
                self.complaint = str(error)
        return self._now

    def check(self, provider: str) -> None:
        """Check the file, and that there is a key for every endpoint; raises ConfigError."""
        if self._path is not None:
            self._now = self._read(self._path)
        for endpoint in self._now:
            endpoint.check(provider)

    def _read(self, path: Path) -> tuple[Endpoint, ...]:
        name = path.name
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(
                f"endpoints: {name} cannot be read ({reason}); write one address on each line; "
                "the file may be empty until the first server is ready"
            ) from None
        return _distinct(
            self._parse(line.strip(), f"{name}, line {number}")
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith("#")
        )

    def _parse(self, url: str, where: str) -> Endpoint:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{where}: {url!r:.60} must begin with http:// or https://")
        try:
            endpoint = endpoint_at(url, self._options, self._vendor, variables=False)
            endpoint.check(self._vendor.name)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        return endpoint


def _distinct(endpoints: Iterator[Endpoint]) -> tuple[Endpoint, ...]:
    return tuple({endpoint.url: endpoint for endpoint in endpoints}.values())


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file does; None if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
