"""Serve three invented models and a judge by OpenAI's protocol: ``python server.py``.

They route tickets of customers to a team. Nothing is learned or random: a hash of model, prompt and
ticket decides when a model errs, so that every run of the tutorial gives the same answers.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8765
CLUES = {  # words in a ticket that tell the team, and the team in other words
    "billing": (r"charged|invoice|refund|card", "The people who handle payments."),
    "shipping": (r"parcel|delivery|courier|address label", "Whoever sends out our parcels."),
    "account": (r"password|log in|e-mail address|profile", "Those who look after logins."),
    "technical": (r"crash|error|slow|blank screen", "The engineers."),
}
RIGHT = {"small": 0.62, "medium": 0.86, "large": 0.96}  # share of right answers
WORDY = {"small": 0.0, "medium": 0.02, "large": 0.45}  # share of answers in other words
JUDGE_ERRS = 0.06  # share of wrong verdicts


def chance(*parts: str) -> float:
    """Return a number in [0, 1) that depends on the parts alone."""
    digest = hashlib.sha256("\n".join(parts).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def route(model: str, prompt: str) -> str:
    """Return a model's answer to a ticket."""
    ticket = prompt.rpartition("Ticket:")[2]
    teams = list(CLUES)
    team = next((name for name in teams if re.search(CLUES[name][0], ticket, re.I)), "technical")
    one_word = "one word" in prompt
    if chance(model, prompt, "errs") > RIGHT[model] - (0 if one_word else 0.2):
        wrong = [name for name in teams if name != team]
        team = wrong[int(3 * chance(model, prompt, "which"))]
    wordy = chance(model, prompt, "words") < WORDY[model] * (1 if one_word else 1.5)
    return CLUES[team][1] if wordy else team.capitalize()


def judge(prompt: str) -> str:
    """Return a verdict: whether the answer means the team of the reference."""
    mark = re.findall(r'"mark": "(\w+)"', prompt)[-1]
    reference, answer = re.findall(r"^<<<.*?>>>\n(.*?)\n<<<", prompt, re.M | re.S)[-2:]
    right = answer.lower() == reference.lower() or answer == CLUES[reference][1]
    if chance(prompt, "judge") < JUDGE_ERRS:
        right = not right
    text = f"The answer {'names' if right else 'does not name'} the team of the reference."
    verdict = "correct" if right else "incorrect"
    return json.dumps({"mark": mark, "explanation": text, "verdict": verdict})


def complete(model: str, prompt: str) -> dict[str, object]:
    """Return a chat completion."""
    text = judge(prompt) if model == "judge" else route(model, prompt)
    tokens = {"prompt_tokens": len(prompt) // 4 + 8, "completion_tokens": len(text) // 4 + 1}
    message = {"role": "assistant", "content": text}
    return {
        "id": "tutorial",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {**tokens, "total_tokens": sum(tokens.values())},
    }


class Server(ThreadingHTTPServer):
    """Serves each connection in a thread of its own."""

    def handle_error(self, *_: object) -> None:
        """Print nothing: a client that stops cuts its connections off."""


class Handler(BaseHTTPRequestHandler):
    """Answers requests for chat completions."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # send head and body together

    def do_POST(self) -> None:
        """Answer one request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["model"] not in {*RIGHT, "judge"}:
            self.reply(404, {"error": {"message": f"there is no model {asked['model']}"}})
            return
        self.reply(200, complete(asked["model"], asked["messages"][-1]["content"]))

    def reply(self, status: int, content: dict[str, object]) -> None:
        """Send a JSON object."""
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing: there are hundreds of requests."""


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else PORT
    with Server(("127.0.0.1", port), Handler) as server:
        print(f"serving at http://127.0.0.1:{server.server_port}/v1, until Ctrl-C", flush=True)
        server.serve_forever()
