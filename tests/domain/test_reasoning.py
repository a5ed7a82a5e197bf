"""The answer of a reply is what stands outside its reasoning, whoever reads it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import THOUGHT, Example, Finish, Reply, Score
from bestarm_agent.errors import Blame, FailureKind, JudgeError
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import create_judge
from bestarm_agent.store.codec import dump_reply, load_reply
from tests.support.judge_answers import NoCalls

ANSWERS = [  # reply, what it answers
    ("<think>Maybe A. Hmm.</think>The answer is B.", "The answer is B."),
    ("<think>\nx\n</think>\n\nB", "B"),
    ("<think>\n\n</think>\n\nB", "B"),
    ("\n <Thinking>A?</Thinking> B", "B"),
    ("<reasoning>A?</reasoning>\nB", "B"),
    ("<thought>A?</thought>B", "B"),
    ('<think effort="high">A?</think>B', "B"),
    ("the template opened it: A?\n</think>\n\nB", "B"),
    ("A?</thinking>B", "B"),
    ("[THINK]A?[/THINK]B", "B"),
    ("<seed:think>A?</seed:think>B", "B"),
    ("◁think▷A?◁/think▷B", "B"),
    ("<|channel|>analysis<|message|>A?<|end|><|start|>assistant<|channel|>final<|message|>B", "B"),
    ("analysisWe need a letter. A?assistantfinalB", "B"),
    ("<|channel|>analysis<|message|>A?<|end|><|channel|>final <|constrain|>json<|message|>1", "1"),
    ("<|START_THINKING|>A?<|END_THINKING|>B", "B"),
    ("<|begin_of_thought|>A?<|end_of_thought|>B", "B"),
    ("the template opened it: A?<|END_THINKING|>B", "B"),
    ("<|channel>thought\nA?<channel|>B", "B"),
    ("<unused94>thought\nA?<unused95>B", "B"),
    ("Here is my thought process:\nA?\nHere is my response:\nB", "B"),
    ("Here are my reasoning steps:\nA?\n[BEGIN FINAL RESPONSE]\nB", "B"),
    ("<analysis>A?</analysis>\nB", "B"),
    ("<antThinking>A?</antThinking>B", "B"),
    ("<reasoning_content>A?</reasoning_content>B", "B"),
    ("<mm:think>A?</mm:think><reflection>C?</reflection>B", "B"),
    ('<details type="reasoning" done="true"><summary>2 s</summary>A?</details>\nB', "B"),
    ("<think>A?</think>no, <think>C?</think>B", "B"),
    ("<think>I write `</think>` and then? A</think>B", "B"),
    ('<think>It must be "A"</think>"B"', '"B"'),
    ("<think>```python\nprint(1)</think>B", "B"),
    ("B <think>was that right? Yes.</think>", "B"),
    ("<think>A?</think>", ""),
    # a closing tag more than were opened; but a model may think within its thoughts, or of tags
    ("<think>A?</think>B</think>", "B"),
    ("A?</think>\n\nB\n</think></think>", "B"),
    ("[THINK]A?[/THINK]B[/THINK]</s>", "B"),
    ("<think>A?<think>C?</think>D?</think>", ""),
    ("<think>I put </think> before my answer. A?</think>", ""),
]
NOT_REASONING = [
    "B",
    "",
    "I think B.",
    "The tag `</think>` ends it.",
    "The tags <think> and </think> enclose it.",
    'Split at "</think>".',
    "```python\ntext.split('</think>')\n</think>\n```",
    '{"mark": "a", "explanation": "it wrote </think> twice"}',
    "Analysis of the case: B",
    "x <thinkpad> y",
    "<answer>B</answer><analysis>A is wrong</analysis>",
    "<analysis>all of the answer</analysis>",
    "<reason>it is late</reason><label>B</label>",
    "<analysis_id>5</analysis_id><value>B</value>",
    "<details><summary>More</summary>A</details>B",
    "Here is my response: B? No: here is my thought process.",
]


@pytest.mark.parametrize(("text", "answer"), ANSWERS)
def test_reasoning_is_no_part_of_the_answer(text: str, answer: str) -> None:
    reply = Reply(text)
    assert (reply.text, reply.said, reply.finish) == (answer, answer, Finish.STOP)
    assert reply.notices == (THOUGHT,), "said once"
    assert load_reply(dump_reply(reply)) == reply
    kept = reply.reasoning if text.rstrip() == reply.reasoning else reply.reasoning + answer
    assert "".join(kept.split()) == "".join(text.split()), "nothing is lost"


@pytest.mark.parametrize("text", NOT_REASONING)
def test_a_reply_that_only_speaks_of_tags_is_left_alone(text: str) -> None:
    assert (Reply(text).text, Reply(text).reasoning, Reply(text).notices) == (text, "", ())


@pytest.mark.parametrize(
    "text", ["<think>A? No,", "<think>A?</think><think>B?", "[THINK] A", "<|START_THINKING|>A"]
)
def test_a_reply_that_ends_in_thought_is_cut_off_and_has_no_answer(text: str) -> None:
    reply = Reply(text)
    assert (reply.text, reply.finish) == ("", Finish.LENGTH)
    for name in ("exact", "contains", "numeric", "multiple-choice", "token-f1", "regex"):
        options = {"pattern": ".*"} if name == "regex" else {}
        with pytest.raises(JudgeError, match="no answer follows the reasoning") as caught:
            _score(create_judge(name, options, Catalog()), Example("1", {}, "A"), reply)
        assert caught.value.kind is FailureKind.UNPARSABLE
        assert caught.value.blame is Blame.CANDIDATE


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>analysis<|message|>A?<|end|><|start|>assistant<|channel|>final<|message|>B<|return|>",
        "<|start|>assistant<|channel|>analysis<|message|>A?<|channel|>final<|message|>B<|end|>",
        "<|START_THINKING|>A?<|END_THINKING|><|START_RESPONSE|>B<|END_RESPONSE|>",
        "<think>A?</think>B<|im_end|>\n",
        "Here are my reasoning steps:\nA?[BEGIN FINAL RESPONSE]B[END FINAL RESPONSE]",
        *("B<|im_end|>", "B</s>", "B<|eot_id|>\n</s>", "<cot>A?</cot>B</s>"),
        *("B<｜end▁of▁sentence｜>", "B<end_of_turn>\n<eos>", "B<EOS><pad><pad>", "<s>B</s>"),
        *("<bos>B<eos>", "B[EOS]", "<seed:bos>B<seed:eos>", "[/INST]B</s>", "B<turn|>"),
        *("<|im_start|>assistant\nB<|im_end|>", "[|assistant|]B[|endofturn|]"),
        "<s><think>A?</think><|begin_of_text|>B<end_of_utterance>",
    ],
)
def test_special_tokens_around_an_answer_are_no_part_of_it(text: str) -> None:
    assert Reply(text).text == "B"


@pytest.mark.parametrize(
    "text",
    [
        "<|endoftext|>",
        "</s>",
        "`</s>` ends it.",
        "a <|b|> c",
        " B ",
        "List<int>",
        "<b>B</b>",
        "<s>A</s> B",
        "a <eos> b",
        "f <|> g",
        "use <br>",
    ],
)
def test_an_answer_of_special_tokens_stays(text: str) -> None:
    assert (Reply(text).text, Reply(text).reasoning) == (text, "")
    assert Reply('{"a": 1}<|im_end|>').text == '{"a": 1}'


def test_reasoning_in_a_field_of_its_own_joins_what_stands_in_the_text() -> None:
    assert Reply("B", reasoning="A?").notices == (THOUGHT,)
    assert Reply("<think>C?</think>B", reasoning="A?").reasoning == "A?\n<think>C?</think>"


@pytest.mark.parametrize(
    ("name", "inputs", "target"),
    [
        ("exact", {}, "B"),
        ("contains", {}, "B"),
        ("token-f1", {}, "B"),
        ("multiple-choice", {"options": ["Lyon", "Paris", "Nice"]}, "B"),
    ],
)
def test_rules_read_the_answer_alone(name: str, inputs: dict[str, object], target: str) -> None:
    example = Example("1", inputs, target)  # type: ignore[arg-type]
    judge = create_judge(name, {}, Catalog())
    assert _score(judge, example, Reply("<think>Maybe A, or C.</think>B")).value == 1.0


def test_a_marker_may_be_the_end_of_the_reasoning() -> None:
    judge = create_judge("exact", {"after": "</think>"}, Catalog())
    example = Example("1", {}, "B")
    assert _score(judge, example, Reply("<think>A?</think>B")).value == 1.0
    with pytest.raises(JudgeError, match="no '</think>'"):
        _score(judge, example, Reply("B"))


PIECES = [
    *("<think>", "</think>", "<analysis>", "</analysis>", "<cot>", "</cot>", "<|im_end|>", "</s>"),
    *("<s>", "<eos>"),
    *(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<|channel>thought",
        "<channel|>",
        "assistantfinal",
    ),
    *("Here is my thought process:", "Here is my response:", "a", "B", "`", "'", "{", " ", "\n"),
]


@given(
    st.text(alphabet="<>/think `'\".,ab\n")
    | st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
)
def test_taking_the_answer_twice_changes_nothing(text: str) -> None:
    once = Reply(text)
    again = Reply(once.text)
    assert again.text == once.text
    assert not again.reasoning


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["<think>" * 30_000, "</think>" * 30_000, "`</think>` " * 20_000, "<eos> " * 30_000 + "x"],
)
def test_long_replies_are_parted_in_time(text: str) -> None:
    """A quadratic search would take minutes here."""
    assert len(Reply(text).reasoning) in (0, len(text))


def _score(judge: Judge, example: Example, reply: Reply) -> Score:
    return asyncio.run(judge.score(example, reply, NoCalls()))
