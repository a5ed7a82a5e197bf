"""A study in two worker processes; says which they are once one of them has done something."""

from __future__ import annotations

import sys
from multiprocessing import active_children

import numpy as np

from bestarm_agent.simulation.replay_many import parse_contenders, replay_all


def main() -> None:
    scores = np.random.default_rng(0).random((40, 500), dtype=np.float32)

    def tell(done: int, total: int) -> None:
        if done == 1:
            pids = (str(process.pid) for process in active_children())
            sys.stdout.write(" ".join(pids) + "\n")
            sys.stdout.flush()
            sys.stdin.read()  # until it is killed

    replay_all(scores, parse_contenders("ucb-e"), (1.0,), 200, jobs=2, progress=tell)


if __name__ == "__main__":
    main()
