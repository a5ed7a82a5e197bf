"""Convert golden logs to Every Eval Ever with its own converters (0.3.0), offline.

The other golden files come first: the converters read those of lm-eval and Inspect. Python 3.12;
on 3.11 the same was made with pip's ``--ignore-requires-python``::

    pip install 'every-eval-ever[inspect]==0.3.0'
    python benchmarks/interop/make_every_eval_ever.py tests/interop/golden
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from inspect_ai.log import (  # type: ignore[import-not-found, unused-ignore]
    read_eval_log,
    write_eval_log,
)


def convert(tool: str, log: Path, model: str, target: Path) -> None:
    """Convert a log, check it with the validator, and keep its instances as ``target``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "every_eval_ever", "convert", tool]
        command += ["--log_path", str(log), "--output_dir", f"{folder}/data"]
        command += ["--source_organization_name", "bestarm-agent"]
        command += ["--evaluator_relationship", "third_party"]
        subprocess.run([*command, *(["--include_samples"] * (tool == "lm_eval"))], check=True)
        [written] = Path(folder).glob(f"data/*/*/*{model}/*_samples.jsonl")
        check = [sys.executable, "-m", "every_eval_ever", "validate", f"{written.parent}/*"]
        subprocess.run(check, check=True)
        target.write_text(written.read_text())


def main(golden: Path) -> None:
    """Write one file per model and tool; the converter refuses models of the provider mockllm."""
    found = golden / "every_eval_ever"
    found.mkdir(exist_ok=True)
    for model in ("good", "weak"):
        convert(
            "lm_eval", golden / "lm_eval" / f"mock__{model}", model, found / f"lm_{model}.jsonl"
        )
        log = read_eval_log(str(golden / f"inspect_{model}.eval"))
        log.eval.model = f"openai/{model}"
        for sample in log.samples or ():
            sample.output.model = model
        with tempfile.TemporaryDirectory() as folder:
            renamed = Path(folder) / "log.eval"
            write_eval_log(log, str(renamed))
            convert("inspect", renamed, model, found / f"inspect_{model}.jsonl")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
