"""The comment of the action, by GitHub's own program against a GitHub on loopback."""

from __future__ import annotations

import json
import shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.gate.test_action import STEPS, Runner


class GitHub(BaseHTTPRequestHandler):
    """GitHub's comments of one pull request, 30 to a page at most."""

    comments: ClassVar[list[dict[str, Any]]]

    def _answer(self) -> None:
        place = urlsplit(self.path)
        sent = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        number = place.path.rpartition("/")[2]
        found: object
        if self.command == "GET":
            page = int(parse_qs(place.query).get("page", ["1"])[0])
            found = self.comments[30 * (page - 1) : 30 * page]
        elif self.command == "POST":
            found = {"id": len(self.comments), "user": {"type": "Bot"}, **sent}
            self.comments.append(found)
        else:
            found = self.comments[int(number)]
            found.update(sent)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if self.command == "GET" and len(self.comments) > 30 * page:
            after = f"http://api.github.localhost{place.path}?page={page + 1}"
            self.send_header("Link", f'<{after}>; rel="next"')
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    do_GET = do_POST = do_PATCH = _answer

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.skipif(shutil.which("gh") is None, reason="GitHub's own program is not installed")
def test_githubs_own_program_keeps_one_comment_among_many_pages(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    (runner.folder / "tools" / "gh").unlink()
    marker = "<!-- bestarm-agent gate study.json -->"
    GitHub.comments = [{"id": i, "user": {"type": "User"}, "body": marker} for i in range(40)]
    server = ThreadingHTTPServer(("127.0.0.1", 0), GitHub)
    Thread(target=server.serve_forever, daemon=True).start()
    variables = {
        **{"GH_HOST": "github.localhost", "HTTP_PROXY": f"http://127.0.0.1:{server.server_port}"},
        **{"GH_TOKEN": "t", "GH_ENTERPRISE_TOKEN": "t", "GH_CONFIG_DIR": str(runner.folder)},
        **{"FOLDER": str(runner.folder), "NUMBER": "7", "STUDY": "study.json"},
    }
    try:
        for text in ("first", "second"):
            (runner.folder / "gate.md").write_text(text)
            assert runner.shell(STEPS["Comment"]["run"], **variables) == 0, runner.told
    finally:
        server.shutdown()
        server.server_close()
    assert "::warning::" not in runner.told
    assert [one["body"] for one in GitHub.comments[40:]] == [f"{marker}\nsecond"]
