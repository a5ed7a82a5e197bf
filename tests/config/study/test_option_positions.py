"""Mistakes in options name file, line, rule and way out, wherever they were written."""

from __future__ import annotations

from pathlib import Path

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.load import load_study
from bestarm_agent.engine.setup.parts import assemble
from bestarm_agent.engine.setup.plan import make_plan
from bestarm_agent.errors import ConfigError
from bestarm_agent.study import open_mode

STUDY = """\
models:
  - openai/first
  - MODEL
prompts:
  - q: "{{ question }}"
dataset: questions.jsonl
scorer: SCORER
selector: SELECTOR
budget: BUDGET
providers:
  PROVIDERS
CERTIFY
"""


def refusal(folder: Path, **parts: str) -> str:
    """What is said about a study with these parts."""
    text = STUDY
    given = {"MODEL": "openai/second", "SCORER": "recorded", "SELECTOR": "auto"} | {
        "BUDGET": "{answers: 4}",
        "PROVIDERS": "openai: {key: none}",
        "CERTIFY": "",
    }
    for name, part in (given | parts).items():
        text = text.replace(name, part)
    (folder / "study.yaml").write_text(text)
    (folder / "questions.jsonl").write_text('{"question": "1+1?"}\n{"question": "2+2?"}\n')
    with pytest.raises(ConfigError) as caught:
        make_plan(assemble(load_study(folder / "study.yaml"), Catalog(folder), open_mode))
    return str(caught.value)


@pytest.mark.parametrize(
    ("price", "said"),
    [
        ("5", "must be a mapping (`key: value`), got 5"),
        ("{input: 1}", "`price.output` is missing"),
        ("{input: cheap, output: 1}", '`price.input` must be a number, got "cheap"'),
        ("{input: 1.0e+300, output: 1}", "`price.input` must be at most 1000000, got 1e+300"),
    ],
)
def test_a_price_of_the_wrong_shape_shows_the_right_one(
    tmp_path: Path, price: str, said: str
) -> None:
    model = f"{{model: openai/second, options: {{price: {price}}}}}"
    message = refusal(tmp_path, MODEL=model)
    assert "study.yaml, line 3: options of openai/second: " in message
    assert said in message
    assert message.endswith(
        "; such as `price: {input: 0.10, output: 0.50}`, dollars per million tokens"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (
            {"MODEL": "{model: openai/second, options: {prices: 3}}"},
            "study.yaml, line 3: provider `openai`: unknown option `prices`; did you mean `price`",
        ),
        (
            {"PROVIDERS": "openai: {api: chatt}"},
            "study.yaml, line 11: provider `openai`: `api` must be 'chat' or "
            "'responses', got \"chatt\"; did you mean `chat`?",
        ),
        ({"MODEL": "opnai/second"}, "study.yaml, line 3: no provider is called `opnai`; did you"),
        ({"PROVIDERS": "opnai: {}"}, "study.yaml, line 11: no provider is called `opnai`"),
        ({"MODEL": "replay/a"}, "study.yaml, line 3: provider `replay`: `path` is missing"),
        (
            {"PROVIDERS": "replay: {path: gone.jsonl}", "MODEL": "replay/a"},
            "study.yaml, line 11: there is no file gone.jsonl; correct the option `path`",
        ),
        ({"SCORER": "recordd"}, "study.yaml, line 7: no judge is called `recordd`; did you mean"),
        (
            {"SCORER": "{name: exact, normalise: [upper]}"},
            "study.yaml, line 7: judge `exact`: `normalise[0]` must be ",
        ),
        ({"SELECTOR": "ucb"}, "study.yaml, line 8: there is no selector 'ucb'; did you mean"),
        (
            {"SELECTOR": "{name: ucb-e, params: {etta: 1}}"},
            "study.yaml, line 8: selector 'ucb-e' has no parameter 'etta'; did you mean `eta`?",
        ),
        (
            {"SELECTOR": "{name: ucb-e, history: [latest]}"},
            "study.yaml, line 8: selector.history: ucb-e does not learn from history",
        ),
        (
            {"CERTIFY": "certify: {risk: 0.1, judge: {name: exact, max_chars: 1}}"},
            "study.yaml, line 12: judge `exact`: `max_chars` must be ",
        ),
    ],
)
def test_the_line_is_that_of_the_option(tmp_path: Path, parts: dict[str, str], said: str) -> None:
    message = refusal(tmp_path, **parts)
    assert said in message
    assert "\n" not in message


def test_a_prompt_that_is_not_in_the_catalogue_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_text('{"question": "1+1?"}\n')
    text = STUDY.replace('q: "{{ question }}"', "quesiton-answer").replace("MODEL", "openai/b")
    (tmp_path / "study.yaml").write_text(text.split("selector:")[0].replace("SCORER", "recorded"))
    with pytest.raises(ConfigError, match=r"line 5: no prompt is called `quesiton-answer`"):
        assemble(load_study(tmp_path / "study.yaml"), Catalog(tmp_path))


def test_several_mistakes_are_listed_with_their_lines(tmp_path: Path) -> None:
    message = refusal(tmp_path, PROVIDERS="openai:\n    default_max_tokens: 0\n    bse_url: x")
    head, *lines = message.splitlines()
    assert head == "2 errors in provider `openai`:"
    assert lines[0].endswith("study.yaml, line 12: `default_max_tokens` must be at least 1, got 0")
    assert "study.yaml, line 13: unknown option `bse_url`; did you mean `base_url`?" in lines[1]


def test_a_mistake_in_a_file_of_the_catalogue_names_that_file(tmp_path: Path) -> None:
    (tmp_path / "providers").mkdir()
    (tmp_path / "providers" / "mine.yaml").write_text(
        "adapter: openai\nname: mine\noptions:\n  overhead_tokens: few\n"
    )
    message = refusal(tmp_path, MODEL="mine/second")
    assert message.endswith(
        'mine.yaml, line 4: provider `mine`: `overhead_tokens` must be a whole number, got "few"'
    )


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ({"BUDGET": "{usd: 1}"}, "budget.usd is set"),
        ({"SELECTOR": "{name: ucb-e, per: dollar}"}, "selector.per is `dollar`"),
    ],
)
def test_all_unknown_prices_are_told_at_once(
    tmp_path: Path, parts: dict[str, str], key: str
) -> None:
    message = refusal(tmp_path, **parts)
    assert (
        f"{key}, but the prices of openai/first and openai/second are not known, and an unknown "
        f"price is not $0; give one where the model is listed: `options: {{price: {{input: 0.10, "
        f"output: 0.50}}}}`"
    ) in message


def test_the_price_of_a_judge_is_told_with_the_others(tmp_path: Path) -> None:
    scorer = "{name: rubric, model: openai/judge}"
    message = refusal(tmp_path, BUDGET="{usd: 1}", SCORER=scorer)
    assert "prices of openai/first, openai/second and openai/judge are not known" in message
    assert "a judge's as `model_options: {price: ...}`" in message


def test_a_mistake_in_the_options_of_servers_names_its_line(tmp_path: Path) -> None:
    providers = "openai: {key: none}\n  vllm:\n    serve: {models: {second: m}, gpus: 0}"
    message = refusal(tmp_path, MODEL="vllm/second", PROVIDERS=providers)
    assert "study.yaml, line 13: provider `vllm`" in message
    assert "`serve.gpus` must be at least 1, got 0" in message
