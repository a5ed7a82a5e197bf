"""Studies that use selectors, providers and judges from elsewhere."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from bestarm_agent import Budget, Options, Study
from bestarm_agent.config.datasets import read_examples
from bestarm_agent.config.input_specs import DatasetSpec
from bestarm_agent.domain.values import Example, Json, Reply, Request, Score
from bestarm_agent.engine.results.standing import Standing
from bestarm_agent.errors import ConfigError, PluginError
from bestarm_agent.judges.base import Calls, Judge, JudgeOptions
from bestarm_agent.providers.base import Provider, ProviderOptions
from bestarm_agent.selectors.rules.racing import Uniform
from bestarm_agent.store.store import Store
from bestarm_agent.study import Archive
from tests.support.distributions import install
from tests.support.studies import write_study


class Mine(Uniform):
    name = "mine"


class Parrot(Provider):
    async def generate(self, request: Request) -> Reply:
        return Reply(request.text or "" if request.model == "loud" else "")


class Talks(Judge):
    async def score(self, example: Example, reply: Reply, calls: Calls) -> Score:
        return Score(float(bool(reply.text)))


IMPORTS = """
from __future__ import annotations
from bestarm_agent.domain.values import Reply, Score
from bestarm_agent.judges.base import Judge
from bestarm_agent.providers.base import Provider
from bestarm_agent.selectors.rules.racing import Uniform
"""
RULE, PROVIDER, JUDGE = (IMPORTS + inspect.getsource(kind) for kind in (Mine, Parrot, Talks))
FILES = {"elsewhere_rule.py": RULE, "elsewhere_provider.py": PROVIDER, "elsewhere_judge.py": JUDGE}
ENTRY_POINTS = {
    "selectors": {"mine": "elsewhere_rule:Mine", "broken": "elsewhere_rule:Nothing"},
    "providers": {"parrot": "elsewhere_provider:Parrot"},
    "judges": {"talks": "elsewhere_judge:Talks"},
}


def study(**changes: Json) -> dict[str, Any]:
    return {
        "models": ["parrot/loud", "parrot/mute"],
        "prompts": [{"p": "{{ question }}"}],
        "dataset": "questions.jsonl",
        "scorer": "talks",
        "selector": "mine",
        **changes,
    }


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = "".join(f'{{"question": "q{i}"}}\n' for i in range(8))
    (tmp_path / "questions.jsonl").write_text(rows)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(dedent(content))


def in_two_parts(content: Mapping[str, Any], store: str) -> Standing:
    """Run a study, stop, resume it, read it from the store."""

    async def scene() -> Standing:
        async with Study.open(content, options=Options(store=store)) as opened:
            await opened.run(Budget(answers=5))
        async with Study.resume(options=Options(store=store)) as resumed:
            standing = await resumed.run(Budget(answers=100))
        record = await Archive(store).record("latest")
        assert record.standing.best is not None
        assert standing.best is not None
        assert record.standing.best.estimate == standing.best.estimate
        return standing

    return asyncio.run(scene())


def best(standing: Standing) -> tuple[str, float | None]:
    assert standing.best is not None
    return standing.best.candidate.model, standing.best.estimate


@pytest.mark.slow
def test_installed_plugins_are_used_by_their_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder / "site", monkeypatch, "elsewhere", entry_points=ENTRY_POINTS, files=FILES)
    assert best(in_two_parts(study(), "runs.sqlite")) == ("loud", 1.0)


def test_files_next_to_the_study_are_used_by_their_paths(folder: Path) -> None:
    local = {f"local{name.removeprefix('elsewhere')}": text for name, text in FILES.items()}
    entry = "name: parrot\nadapter: local_provider:Parrot"
    write(folder, {**local, "providers/parrot.yaml": entry})
    content = study(
        selector={"name": "local_rule:Mine", "seed": 3}, scorer={"name": "local_judge:Talks"}
    )
    assert best(in_two_parts(content, "runs.sqlite")) == ("loud", 1.0)


def test_an_edited_judge_is_another_judge(folder: Path) -> None:
    entry = "name: parrot\nadapter: own_provider:Parrot"
    own = {"own_judge.py": JUDGE, "own_provider.py": PROVIDER, "providers/parrot.yaml": entry}
    write(folder, own)
    content = study(selector="uniform", scorer="own_judge:Talks")

    async def begin() -> None:
        async with Study.open(content, options=Options(store="runs.sqlite")) as opened:
            await opened.run(Budget(answers=2))

    async def go_on() -> None:
        async with Study.resume(options=Options(store="runs.sqlite")):
            pass

    asyncio.run(begin())
    write(folder, {"own_judge.py": JUDGE.replace("bool(reply.text)", "1")})
    with pytest.raises(ConfigError, match="judge `own_judge:Talks` is no longer what it was"):
        asyncio.run(go_on())


def test_objects_take_the_place_of_names() -> None:
    content = study()
    del content["scorer"], content["selector"]
    parrot = Parrot("parrot", ProviderOptions(), Path())
    judge, store = Talks("talks", JudgeOptions()), Store.in_memory()

    async def scene() -> Standing:
        providers = {"parrot": parrot}
        async with Study.open(
            content, selector=Mine, providers=providers, judge=judge, store=store
        ) as opened:
            await opened.run(Budget(answers=5))
            assert opened.store is store
            assert type(opened._run.record.pairs.rule) is Mine
        options = Options(store=store, selector=Mine, providers=providers, judge=judge)
        async with Study.resume(options=options) as resumed:
            return await resumed.run(Budget(answers=100))

    assert best(asyncio.run(scene())) == ("loud", 1.0)


def test_an_object_takes_no_options_and_has_one_name() -> None:
    parrot = Parrot("parrot", ProviderOptions(), Path())

    async def scene(content: dict[str, Any], providers: dict[str, Any]) -> None:
        async with Study.open(content, providers=providers, store=Store.in_memory()):
            pass

    content = study(selector="uniform", scorer="recorded", providers={"parrot": {"volume": 3}})
    with pytest.raises(ConfigError, match="`parrot` was given as an object and takes no options"):
        asyncio.run(scene(content, {"parrot": parrot}))
    with pytest.raises(ValueError, match="calls itself 'parrot'; use one name"):
        asyncio.run(scene(content, {"other": parrot}))


def test_a_broken_plugin_is_an_error_with_its_place_and_stops_nobody_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder / "site", monkeypatch, "elsewhere", entry_points=ENTRY_POINTS, files=FILES)
    path = write_study(folder / "study", n_examples=4)

    async def scene(**overrides: Json) -> Standing:
        async with Study.open(path, overrides=overrides) as opened:
            return await opened.run(Budget(answers=4))

    message = r"`broken` \(elsewhere_rule:Nothing\) of elsewhere 1\.2 cannot be used"
    with pytest.raises(ConfigError, match=message):
        asyncio.run(scene(selector={"name": "broken"}))
    assert asyncio.run(scene()).asked == 4


def test_a_dataset_may_be_read_by_a_function(folder: Path) -> None:
    reader = """
        def read(path):
            for line in path.read_text().split("|"):
                yield {"question": int(line)}
    """
    (folder / "numbers.bars").write_text("1|2|3")
    write(folder, {"own_reader.py": reader})
    spec = DatasetSpec.model_validate({"path": "numbers.bars", "format": "own_reader:read"})
    assert [example.inputs["question"] for example in read_examples(spec, folder)] == [1, 2, 3]
    (folder / "numbers.bars").write_text("one")
    with pytest.raises(PluginError, match=r"`own_reader:read` cannot read .*\.bars: ValueErr"):
        read_examples(spec, folder)
