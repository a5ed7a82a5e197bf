"""Write the Inspect logs of ``tests/interop/golden`` with inspect-ai itself (0.3.285), offline.

Two mock models answer the same additions, two epochs each; one of them fails on one sample.

    python benchmarks/interop/make_inspect_logs.py tests/interop/golden
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

from inspect_ai import Task, eval, task  # type: ignore[import-not-found, unused-ignore]
from inspect_ai.dataset import Sample  # type: ignore[import-not-found, unused-ignore]
from inspect_ai.log import (  # type: ignore[import-not-found, unused-ignore]
    read_eval_log,
    write_eval_log,
)
from inspect_ai.model import (  # type: ignore[import-not-found, unused-ignore]
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.scorer import includes, match  # type: ignore[import-not-found, unused-ignore]

SUMS = [(1, 1), (2, 3), (4, 4), (5, 7)]


@task  # type: ignore[untyped-decorator, unused-ignore]
def sums(terse: bool = False) -> Any:  # noqa: ANN401 - a Task of inspect-ai, which mypy cannot see
    """Build the task: four additions, scored in two ways."""
    ask = "{a}+{b}=" if terse else "What is {a}+{b}?"
    samples = [
        Sample(id=f"{a}+{b}", input=ask.format(a=a, b=b), target=str(a + b)) for a, b in SUMS
    ]
    return Task(dataset=samples, scorer=[match(), includes()], epochs=2)


def answering(right: int, *, failing: bool = False) -> Any:  # noqa: ANN401
    """Return a function that answers; every ``right``-th call is wrong."""
    calls = 0

    def answer(messages: Any, *_: Any) -> Any:  # noqa: ANN401
        nonlocal calls
        calls += 1
        question = "".join(c for c in messages[-1].text if c in "0123456789+")
        if failing and question == "4+4":
            raise RuntimeError("the mock provider is down")
        a, b = question.split("+")
        text = f"The answer is {int(a) + int(b)}" if calls % right else "The answer is 99"
        output = ModelOutput.from_content("mock", text)
        output.usage = ModelUsage(input_tokens=7, output_tokens=4, total_tokens=11)
        return output

    return answer


def main(folder: Path) -> None:
    """Write two `.eval` files and one `.json` file."""
    runs: tuple[tuple[str, str, Any, bool, Literal["eval", "json"]], ...] = (
        ("inspect_good.eval", "good", answering(100, failing=True), False, "eval"),
        ("inspect_weak.eval", "weak", answering(2), False, "eval"),
        ("inspect_weak.json", "weak", answering(2), True, "json"),
    )
    for name, model, outputs, terse, form in runs:
        with tempfile.TemporaryDirectory() as logs:
            eval(
                sums(terse=terse),
                model=get_model(f"mockllm/{model}", custom_outputs=outputs),
                log_dir=logs,
                log_format=form,
                display="none",
                fail_on_error=False,
                max_connections=1,
                max_samples=1,
            )
            [written] = Path(logs).glob(f"*.{form}")
            log = read_eval_log(str(written))
        log.eval.revision = None
        for sample in log.samples or ():  # only what makes the file large, or names this machine
            sample.events, sample.attachments = [], {}
            if sample.error is not None:
                sample.error.traceback = sample.error.traceback_ansi = ""
        write_eval_log(log, str(folder / name), format=form)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
