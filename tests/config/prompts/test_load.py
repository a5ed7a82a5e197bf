from __future__ import annotations

from pathlib import Path

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.config.prompts import (
    CompiledPrompt,
    catalog_prompt,
    check_prompt,
    file_prompt,
    prompt_files,
)
from bestarm_agent.domain.values import Example, Message, PromptTemplate
from bestarm_agent.errors import ConfigError


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts").mkdir()
    return tmp_path


def rendered(name: str, **inputs: object) -> object:
    prompt = CompiledPrompt(catalog_prompt(name, Catalog()))
    example = Example("e1", inputs)  # type: ignore[arg-type]
    check_prompt(prompt, [example])
    return prompt.render(example.inputs)


def test_shipped_prompts_ask_the_question() -> None:
    assert rendered("completion", question="12+34=") == "12+34="
    assert rendered("question-answer", question="12+34") == "Question: 12+34\nAnswer:"
    assert rendered("question-answer", question="Who?", context="Ann ran.") == (
        "Ann ran.\n\nQuestion: Who?\nAnswer:"
    )
    assert rendered("chat", question="Who?", context=None) == (
        Message("system", "Answer with the result alone, without an explanation."),
        Message("user", "Who?"),
    )
    assert rendered("multiple-choice", question="Who?", options=["Ann", "Bob"]) == (
        Message("user", "Who?\n\nA. Ann\nB. Bob\n\nAnswer with the letter of the right option."),
    )


def test_the_shipped_chain_of_thought_asks_for_the_marker_that_judges_read() -> None:
    messages = rendered("chain-of-thought", question="Who?")
    assert isinstance(messages, tuple)
    assert messages[0].text.startswith("Who?\n\nThink step by step.")
    assert messages[0].text.endswith('begins with "Answer:".')


def test_a_text_file_is_the_prompt_without_its_last_line_break(study: Path) -> None:
    (study / "sum.jinja").write_bytes(b"\xef\xbb\xbf{{ a }}+{{ b }}=\r\n")
    (study / "two.md").write_text("{{ a }}\n\n", encoding="utf-8")
    assert file_prompt(study / "sum.jinja") == PromptTemplate("sum", "{{ a }}+{{ b }}=")
    assert file_prompt(study / "two.md", name="mine") == PromptTemplate("mine", "{{ a }}\n")


def test_a_yaml_file_holds_text_or_messages(study: Path) -> None:
    (study / "prompts" / "chat.yaml").write_text(
        "messages:\n- {role: system, content: Hi}\n- {role: user, content: '{{ q }}'}\n",
        encoding="utf-8",
    )
    expected = PromptTemplate("chat", None, (Message("system", "Hi"), Message("user", "{{ q }}")))
    assert file_prompt(study / "prompts" / "chat.yaml") == expected
    loaded = catalog_prompt("chat", Catalog(study))
    assert loaded == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("description: x\n", r"^p\.yaml: a prompt needs either `text` or `messages`, and not both"),
        ("text: a\nmessages: [{role: user, content: b}]\n", "and not both"),
        ("text: a\ntxt: b\n", r"^p\.yaml, line 2: unknown option `txt`; did you mean `text`\?"),
        ("text: 5\n", r"^p\.yaml, line 1: `text` must be a text, got 5; put it in quotes"),
        (
            "messages:\n- role: user\n  content: a\n- role: bot\n  content: b\n",
            r"^p\.yaml, line 4: `messages\[1\]\.role` must be 'system', 'user' or 'assis",
        ),
        (
            "text: |-\n  a\n  {{ b }\n",
            r"^prompt `p` \(p\.yaml\), line 2 of the template: unexpected '}'",
        ),
    ],
)
def test_malformed_prompt_files_are_named_with_the_line(
    study: Path, text: str, message: str
) -> None:
    (study / "p.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        file_prompt(study / "p.yaml")


def test_missing_files_and_unknown_names_are_refused(study: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read none\.jinja: No such file"):
        file_prompt(study / "none.jinja")
    with pytest.raises(ConfigError, match=r"no prompt is called `chatt`; did you mean `chat`"):
        catalog_prompt("chatt", Catalog(study))
    with pytest.raises(ConfigError, match=r"a template file is `file://a/b\.txt`"):
        catalog_prompt("a/b.txt", Catalog(study))


def test_patterns_match_files_by_name(study: Path) -> None:
    for name in ("b.jinja", "a.txt", "c.yaml"):
        (study / "prompts" / name).write_text("x", encoding="utf-8")
    (study / "prompts" / "d.jinja").mkdir()
    found = [path.name for path in prompt_files("prompts/*", study)]
    assert found == ["a.txt", "b.jinja", "c.yaml"]
    assert [path.name for path in prompt_files(str(study / "prompts/?.jinja"), Path())] == [
        "b.jinja"
    ]
    with pytest.raises(ConfigError, match=r"no prompt file matches `prompts/\*\.md` in \."):
        prompt_files("prompts/*.md", study)
    (study / "prompts" / "a.md").write_text("x", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"both be called `a`; rename one of them"):
        prompt_files("prompts/*", study)


def test_special_characters_in_the_studys_folder_are_no_pattern(tmp_path: Path) -> None:
    folder = tmp_path / "study [1]"
    folder.mkdir()
    (folder / "a.jinja").write_text("x", encoding="utf-8")
    assert prompt_files("*.jinja", folder) == (folder / "a.jinja",)
