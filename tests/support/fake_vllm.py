"""A process that takes vLLM's arguments and speaks its protocol, without a model.

As seen of vLLM 0.32: /health answers once the engine is up; /sleep, /wake_up and /is_sleeping are
there only with VLLM_SERVER_DEV_MODE=1; unknown models are a 404; the engine is a process of its
own. It echoes "model|prompt". The prompts "die" and "hang" and the variables FAKE_* make it
misbehave.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a "
    "chat template if the tokenizer does not define one."
)
ENGINE = "import time; time.sleep(600)"


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Engine:
    """What the server knows: its models, and whether it sleeps."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.models = [arguments.served_model_name]
        self.can_sleep = os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
        self.is_sleeping = False


class Handler(BaseHTTPRequestHandler):
    """One request; keeps its connection."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(200, {})
        elif self.path == "/is_sleeping" and self.engine.can_sleep:
            self.answer(200, {"is_sleeping": self.engine.is_sleeping})
        elif self.path == "/v1/models":
            self.answer(200, {"data": [{"id": model} for model in self.engine.models]})
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(content) if content else {}
        path = self.path.partition("?")[0]
        if path == "/v1/completions":
            self.generate(body, body["prompt"], "text")
        elif path == "/v1/chat/completions" and os.environ.get("FAKE_NO_TEMPLATE"):
            self.answer(400, {"error": {"message": NO_TEMPLATE, "type": "BadRequestError"}})
        elif path == "/v1/chat/completions":
            self.generate(body, body["messages"][-1]["content"], "message")
        elif path in ("/sleep", "/wake_up") and self.engine.can_sleep:
            self.sleep(path == "/sleep")
        else:
            self.answer(404, {"detail": "Not Found"})

    def sleep(self, begins: bool) -> None:
        if os.environ.get("FAKE_SLEEP_HANGS"):
            time.sleep(60)
        self.engine.is_sleeping = begins
        self.answer(200, {"status": "sleeping" if begins else "awake"})

    def generate(self, body: dict[str, Any], prompt: str, kind: str) -> None:
        model = body["model"]
        if prompt == "die":
            say("RuntimeError: CUDA error; api_key=hush-hush-hush")
            os._exit(7)
        if prompt == "hang":
            time.sleep(60)
        if self.engine.is_sleeping:
            self.answer(503, {"error": {"message": "sleeping", "code": 503}})
            return
        if model not in self.engine.models:
            message = f"The model `{model}` does not exist."
            self.answer(404, {"error": {"message": message, "type": "NotFoundError", "code": 404}})
            return
        say(f"answers {prompt}")
        if busy := os.environ.get("FAKE_BUSY"):  # a file that says so
            Path(busy).touch()
            time.sleep(0.05)
        text = f"{model}|{prompt}"
        said = {"text": text} if kind == "text" else {"message": {"content": text}}
        choice = {"index": 0, "finish_reason": "stop", **said}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 2}
        usage["total_tokens"] = sum(usage.values())
        self.answer(200, {"id": "cmpl-1", "model": model, "choices": [choice], "usage": usage})

    def answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the log is for what matters."""


def check_devices(arguments: argparse.Namespace) -> None:
    """End as vLLM does if it sees fewer devices than it is to use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and len(visible.split(",")) < arguments.tensor_parallel_size:
        say(f"ValueError: World size ({arguments.tensor_parallel_size}) is larger than {visible}")
        sys.exit(1)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("model", "served-model-name", "host", "dtype"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--port", type=int)
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--gpu-memory-utilization", "--gpu_memory_utilization", type=float)
    parser.add_argument("--enable-sleep-mode", action="store_true")
    arguments = parser.parse_args()
    say(f"loading {arguments.model} in {Path.cwd().name}")
    say(f"started with {json.dumps(sys.argv[1:])}")
    say(f"devices {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    check_devices(arguments)
    engine = subprocess.Popen([sys.executable, "-c", ENGINE])
    say(f"engine pid={engine.pid}")
    if reason := os.environ.get("FAKE_BROKEN"):
        say(f"ValueError: {reason}\nHF_TOKEN={os.environ.get('HF_TOKEN')}")
        sys.exit(1)
    if os.environ.get("FAKE_STUCK"):
        threading.Event().wait(60)
    Handler.engine = Engine(arguments)
    Server((arguments.host, arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
