"""Write the lm-eval samples of ``tests/interop/golden`` with lm-eval itself (0.4.13), offline.

Two mock models answer four additions; the task has two filters, hence two scores an answer.

    python benchmarks/interop/make_lm_eval_samples.py tests/interop/golden
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lm_eval import simple_evaluate  # type: ignore[import-not-found, unused-ignore]
from lm_eval.api.model import LM  # type: ignore[import-not-found, unused-ignore]
from lm_eval.loggers import EvaluationTracker  # type: ignore[import-not-found, unused-ignore]
from lm_eval.tasks import TaskManager  # type: ignore[import-not-found, unused-ignore]

TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{a}}}}+{{{{b}}}}="
doc_to_target: "{{{{total}}}}"
generation_kwargs: {{until: ["\\n"], max_gen_toks: 8}}
metric_list:
  - metric: exact_match
filter_list:
  - name: strict-match
    filter: [{{function: take_first}}]
  - name: first-number
    filter: [{{function: regex, regex_pattern: '(\\d+)'}}, {{function: take_first}}]
"""
SUMS = [(1, 1), (2, 3), (4, 4), (5, 7)]


class Mock(LM):  # type: ignore[misc, unused-ignore]
    """Answers additions; one that ``errs`` is wrong on odd totals."""

    def __init__(self, errs: bool) -> None:
        super().__init__()
        self._errs = errs

    def generate_until(self, requests: Any, disable_tqdm: bool = True) -> list[str]:  # noqa: ANN401
        """Answer every request."""
        return [self._answer(*request.args[0].rstrip("=").split("+")) for request in requests]

    def loglikelihood(self, requests: Any) -> Any:  # noqa: ANN401
        """Refuse: the task does not need it."""
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: Any) -> Any:  # noqa: ANN401
        """Refuse: the task does not need it."""
        raise NotImplementedError

    def _answer(self, a: str, b: str) -> str:
        total = int(a) + int(b)
        if self._errs and total % 2:
            return str(total + 1)
        return f"{total}" if total < 10 else f"It is {total}"


def main(folder: Path) -> None:
    """Write one folder per model, as `lm_eval --output_path` does."""
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "sums.jsonl"
        rows = [{"a": a, "b": b, "total": a + b} for a, b in SUMS]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        (Path(place) / "sums.yaml").write_text(TASK.format(data=data), encoding="utf-8")
        manager = TaskManager(include_path=place, include_defaults=False)
        for name, errs in (("mock/good", False), ("mock/weak", True)):
            tracker = EvaluationTracker(output_path=str(folder / "lm_eval"))
            tracker.general_config_tracker.log_experiment_args(
                model_source="mock",
                model_args=f"pretrained={name}",
                system_instruction=None,
                chat_template=None,
                fewshot_as_multiturn=False,
            )
            found = simple_evaluate(Mock(errs), tasks=["sums"], task_manager=manager)
            samples = found.pop("samples")
            found.pop("pretty_env_info", None)  # about the machine
            tracker.save_results_aggregated(results=found, samples=samples)
            tracker.save_results_samples(task_name="sums", samples=samples["sums"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
