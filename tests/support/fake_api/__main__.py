"""Run the server as a process of its own: ``python -m tests.support.fake_api --help``.

The first line that it prints is its base URL. Models add numbers, each right on its own share of
the questions; ``GET /fake/received`` tells what was received.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from tests.support.fake_api.answers import echo, quality
from tests.support.fake_api.calls import Call, chance
from tests.support.fake_api.faults import PASSING, Fault, calm, storm
from tests.support.fake_api.server import FakeApi, FakeModel


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.fake_api", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="NAME=SHARE", help="share of right answers")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key", help="the key that clients must send; else all are let in")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--jitter-ms", type=float, default=0.0, help="added, keyed by the body")
    parser.add_argument("--quick", type=int, default=0, help="first requests, without latency")
    parser.add_argument("--storm", type=float, default=0.0, help="share of attempts that fail")
    parser.add_argument("--faults", nargs="+", type=Fault, default=list(PASSING))
    return parser.parse_args()


def server(args: argparse.Namespace) -> FakeApi:
    shares = {name: float(share) for name, _, share in (m.rpartition("=") for m in args.models)}

    def latency(call: Call) -> float:
        if len(api.received) <= args.quick:
            return 0.0
        jitter = args.jitter_ms * chance("latency", call.digest) if args.jitter_ms else 0
        return float(args.latency_ms + jitter) / 1000

    api = FakeApi(
        answer=quality(shares) if shares else echo,
        script=storm(args.storm, args.faults) if args.storm else calm,
        models=dict.fromkeys(shares, FakeModel()) if shares else None,
        key=args.key,
        latency=latency,
        port=args.port,
    )
    return api


async def main() -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(wanted, stop.set)
    async with server(arguments()) as api:
        sys.stdout.write(f"{api.url}\n")
        sys.stdout.flush()
        await stop.wait()


asyncio.run(main())
