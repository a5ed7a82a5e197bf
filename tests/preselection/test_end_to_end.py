"""Real prompts routed to the models that ship with the arithmetic example."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import study_from
from bestarm_agent.config.prompts import CompiledPrompt
from bestarm_agent.domain.values import Candidate, Example, Json
from bestarm_agent.engine.evaluate import request_of
from bestarm_agent.engine.setup.parts import StudyParts, assemble
from bestarm_agent.errors import Blame, JudgeError
from bestarm_agent.preselection.records import Record, RoutedCandidate, RouterSettings
from bestarm_agent.preselection.router import Router
from tests.support.judge_answers import NoCalls

pytest.importorskip("torch", reason="needs the extra hf")
pytest.importorskip("transformers", reason="needs the extra hf")
pytest.importorskip("sklearn", reason="needs the extra preselect")

EXAMPLE = Path(__file__).parents[2] / "examples" / "arithmetic"
MODELS = sorted(path.parent.name for path in EXAMPLE.glob("models/*/model.safetensors"))
FORMATS = ("{a}+{b}=", "{a} + {b} =", "Q: {a}+{b}\nA:")
N_TRAINED, N_TRIED = 150, 45

pytestmark = pytest.mark.skipif(not MODELS, reason="the example's models are not there")


def prompts() -> list[Example]:
    """Sums as users may write them, in turn in each format."""
    lines = (EXAMPLE / "dataset.jsonl").read_text(encoding="utf-8").splitlines()
    made = []
    for i, line in enumerate(lines[: N_TRAINED + N_TRIED]):
        row = json.loads(line)
        text = FORMATS[i % 3].format(a=row["a"], b=row["b"])
        made.append(Example(row["id"], {"text": text}, row["answer"]))
    return made


def parts_of(examples: list[Example]) -> StudyParts:
    """The study whose candidates are routed among: every model gets the prompt as it is."""
    config: Mapping[str, Json] = {
        "name": "routing",
        "models": [f"hf/models/{name}" for name in MODELS],
        "prompts": [{"asis": "{{ text }}"}],
        "params": {"temperature": 0, "max_tokens": 6},
        "dataset": "dataset.jsonl",
        "scorer": "numeric",
        "providers": {"hf": {"threads": 1}},
    }
    study = study_from(config, EXAMPLE)
    return assemble(study, Catalog(EXAMPLE, ()), examples=examples)


async def score(parts: StudyParts, candidate: Candidate, example: Example) -> float:
    """Let a candidate answer and the study's scorer judge."""
    provider = parts.providers.of(candidate.provider, candidate.model)
    request = request_of(candidate, CompiledPrompt(candidate.prompt), example)
    reply = await provider.generate(request)
    try:
        return (await parts.judge.score(example, reply, NoCalls())).value
    except JudgeError as error:
        if error.blame is not Blame.CANDIDATE:
            raise
        return 0.0  # no number in it


async def scores(parts: StudyParts, names: list[str], example: Example) -> dict[str, float]:
    by_name = {candidate.label: candidate for candidate in parts.candidates}
    async with asyncio.TaskGroup() as group:
        tasks = {n: group.create_task(score(parts, by_name[n], example)) for n in names}
    return {name: task.result() for name, task in tasks.items()}


async def train(router: Router, parts: StudyParts, examples: list[Example]) -> None:
    for example in examples:
        text = str(example.inputs["text"])
        shown = router.choose(text, k=2)
        router.learn(
            Record(prompt=text, shown=tuple(shown), scores=await scores(parts, shown, example))
        )


async def route(place: Path) -> tuple[list[Counter[str]], float, float]:
    """Train on some prompts, reopen the router, and try it on others.

    Returns:
        By format, how often each model was the first choice; the share of right answers of the
        first choices; the same of the model that is best on all prompts together.
    """
    examples = prompts()
    parts = parts_of(examples)
    names = [RoutedCandidate(name=candidate.label) for candidate in parts.candidates]
    settings = RouterSettings(collect=30, n_components=3, seed=1)
    chosen: list[Counter[str]] = [Counter(), Counter(), Counter()]
    routed, every = [], []
    async with AsyncExitStack() as stack:
        for provider in parts.providers.in_use:
            await stack.enter_async_context(provider)
        async with Router.open("sums", place, names, settings) as router:
            await train(router, parts, examples[:N_TRAINED])
        async with Router.open("sums", place) as router:
            assert router.version == 1
            for i, example in enumerate(examples[N_TRAINED:]):
                [first] = router.choose(str(example.inputs["text"]), k=1)
                chosen[i % 3][first] += 1
                found = await scores(parts, [name.name for name in names], example)
                routed.append(found[first])
                every.append(found)
    singles = [sum(found[name.name] for found in every) / N_TRIED for name in names]
    return chosen, sum(routed) / N_TRIED, max(singles)


@pytest.mark.slow
def test_the_router_learns_which_model_suits_which_prompts(tmp_path: Path) -> None:
    chosen, routed, best_single = asyncio.run(route(tmp_path / "runs.sqlite"))
    favourites = [count.most_common(1)[0][0] for count in chosen]
    assert "sum-llama-113k" in favourites[0]  # right 91 % of the time here, and never at the last
    assert "sum-llama-113k" not in favourites[2]
    assert routed > best_single
