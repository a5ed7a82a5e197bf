"""Mathematical answers, compared by math-verify."""

from __future__ import annotations

import asyncio
import io
import subprocess
from threading import Timer
from typing import Any

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Reply, Score
from bestarm_agent.errors import Blame, ConfigError, FailureKind, JudgeError
from bestarm_agent.judges import math as rule
from bestarm_agent.judges import math_process
from bestarm_agent.judges.math_process import MathProcess
from bestarm_agent.judges.registry import check_examples, create_judge
from tests.support.judge_answers import NoCalls

HOSTILE = r"\boxed{2^{10^{10^{10}}}}"


def value(text: str, *references: str, **options: object) -> float:
    judge = create_judge("math", options, Catalog())  # type: ignore[arg-type]
    example = Example("e1", {}, references)
    check_examples(judge, [example])
    return asyncio.run(judge.score(example, Reply(text), NoCalls())).value


@pytest.mark.slow
def test_equal_answers_are_right_in_whatever_form() -> None:
    for text, reference in (
        (r"So the answer is $\boxed{\frac{1}{2}}$.", "0.5"),
        (r"Hence \boxed{x^2+2x+1}.", "(x+1)^2"),
        ("19 + 27, so the answer is 46.", "46"),
        (r"The solutions are $\{2, 1\}$.", r"\{1,2\}"),
        (r"\boxed{(1,2]}", "$(1,2]$"),
        ("It is 50%.", r"\frac12"),
        (r"\boxed{\frac{\sqrt2}{2}}", r"\frac{1}{\sqrt{2}}"),
    ):
        assert value(text, reference) == 1.0, text
    assert value("The answer is 47.", "46") == 0.0
    assert value(r"\boxed{(1,2)}", "(1,2]") == 0.0
    assert value("I say 46.", "45", "46") == 1.0


@pytest.mark.slow
def test_signs_of_unicode_are_read_as_latex() -> None:
    for text, reference in (
        ("x²", "x^2"),
        ("2√3", r"2\sqrt{3}"),
        ("√(x+1)/2", r"\frac{\sqrt{x+1}}{2}"),
        ("½", r"\frac{1}{2}"),
        ("5×10⁻³", r"5 \times 10^{-3}"),
        ("(-∞, 2]", r"(-\infty, 2]"),
        (r"2\pi", "2π"),
        ("No solution.", r"\text{no solution}"),
        ("Even", "even"),
        ("０．５ + ٣", "3.5"),
    ):
        assert value(text, reference) == 1.0, text
    assert value("√3x", r"\sqrt{3x}") == 0.0
    assert value("x³", "x^2") == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("So it is <answer>5</answer>", "5"),
        ("<answer>x+1</answer>", "1+x"),
        ("<answer>Even</answer>", "even"),
        ("<b>1/2</b>", "0.5"),
        ("x<5", "x<5"),
    ],
)
def test_tags_around_an_answer_are_no_part_of_it(text: str, reference: str) -> None:
    assert value(text, reference) == 1.0
    assert value(text, "7") == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("The speed is 3e8 m/s", "300000000", "3"),
        ("3e8", r"3\times 10^8", "8"),
        ("1e-3", "0.001", "1"),
        ("The answer is 2x + 3", "2x+3", "2"),
        ("2pi", r"2\pi", "2"),
        ("3n+1", "3n+1", "3"),
        ("3!", "6", "3"),
        ("5 million", "5000000", "5"),
        ("2 1/2", "2.5", "1"),
        ("5 (not 6)", "5", "6"),
        ("It is 5 rather than 6.", "5", "6"),
        ("答案是5。", "5", "6"),
        ("答案：5", "5", "6"),
        ("答案为5个", "5", "6"),
        ("答えは5です", "5", "6"),
        ("It is 50%.", "0.5", "5"),
        ("300000000", "3e8", "3"),
        ("2.5", "2 1/2", "1"),
    ],
)
def test_numbers_outside_of_latex_are_read_whole(text: str, right: str, wrong: str) -> None:
    assert value(text, right) == 1.0
    assert value(text, wrong) == 0.0


@pytest.mark.slow
def test_a_part_of_an_expression_in_prose_is_unparsable() -> None:
    with pytest.raises(JudgeError, match="no number by itself, and no formula alone"):
        value("As 2x + 3 is all that we can say of it", "3")


@pytest.mark.slow
def test_a_reply_without_an_answer_and_a_reference_without_one_are_named() -> None:
    with pytest.raises(JudgeError, match="no number or formula in 'I cannot say'") as caught:
        value("I cannot say", "46")
    assert (caught.value.kind, caught.value.blame) == (FailureKind.UNPARSABLE, Blame.CANDIDATE)
    with pytest.raises(ConfigError, match=r"example `e1`: judge `math` cannot compare .* LaTeX"):
        value("46", "none, see $")


@pytest.mark.slow
def test_an_expression_that_takes_forever_is_void_and_the_next_is_scored() -> None:
    with pytest.raises(JudgeError, match="took more than 1 s; raise `timeout_seconds`") as caught:
        value(HOSTILE, "7", timeout_seconds=1)
    assert caught.value.blame is Blame.JUDGE
    assert value(r"\boxed{7}", "7") == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["x+y", "3+4i", "y=2x+1", "100!", r"(-\infty, 3]", "{1, 2}", r"\$5"]
)
def test_a_target_given_back_bare_is_right(text: str) -> None:
    judge = create_judge("math", {}, Catalog())
    example = Example("e1", {}, text)
    check_examples(judge, [example])
    assert judge.unrecognised(example) == ""
    for said in (text, f"**{text}**", f"So it is\n{text}."):
        assert value(said, text) == 1.0


@pytest.mark.slow
def test_bare_formulas_are_compared_and_prose_is_none() -> None:
    assert value("y + x", "x+y") == 1.0
    assert value("x - y", "x+y") == 0.0
    with pytest.raises(JudgeError, match="no number or formula"):
        value("I cannot say", "x+y")


@pytest.mark.slow
def test_small_numbers_are_not_rounded_to_nothing() -> None:
    assert value(r"$\frac{1}{2^{98}}$", r"\frac{1}{2^{99}}") == 0.0
    assert value(r"$\frac{2}{2^{100}}$", r"\frac{1}{2^{99}}") == 1.0
    assert value("0.333333", r"\frac{1}{3}") == 1.0


@pytest.mark.slow
def test_a_comparison_that_raises_is_no_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def compared(package: object, question: object) -> str:
        raise ArithmeticError("no\nway")

    monkeypatch.setattr("bestarm_agent.judges.math_process._compared", compared)
    monkeypatch.setattr("sys.stdin", io.StringIO("{}\n"))
    monkeypatch.setattr("sys.stdout", written := io.StringIO())
    math_process._answer_lines()
    assert written.getvalue() == "math-verify raised ArithmeticError: no way\n"
    monkeypatch.setattr(MathProcess, "compare", lambda *_: written.getvalue().strip())
    judge = create_judge("math", {}, Catalog())
    with pytest.raises(JudgeError, match=r"example `e1`: math-verify raised Arith") as caught:
        asyncio.run(judge.score(Example("e1", {}, "2"), Reply("1"), NoCalls()))
    assert caught.value.blame is Blame.JUDGE


@pytest.mark.slow
def test_a_process_that_must_be_killed_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[str]] = []

    def begin(*args: Any, **options: Any) -> subprocess.Popen[str]:  # noqa: ANN401
        begun.append(popen(*args, **options))
        return begun[-1]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", begin)
    process = MathProcess()
    assert process.compare("7", ["7"], 60) == "right"
    killed = Timer(0.2, begun[0].kill)  # as the limit does, where no signal gets through
    killed.start()
    assert process.compare(HOSTILE, ["7"], 60) == "timeout"
    killed.join()
    assert process.compare("7", ["7"], 60) == "right"
    assert len(begun) == 2


@pytest.mark.slow
def test_hostile_answers_keep_no_other_thread_from_its_work() -> None:
    judge = create_judge("math", {"timeout_seconds": 1}, Catalog())
    example = Example("e1", {}, "7")

    async def scene() -> tuple[int, list[BaseException | None], Score]:
        replies = [Reply(HOSTILE)] * 40 + [Reply("7")]
        scores = [asyncio.create_task(judge.score(example, one, NoCalls())) for one in replies]
        await asyncio.sleep(0)
        elsewhere = await asyncio.to_thread(lambda: sum(task.done() for task in scores))
        for task in scores[4:-1]:
            task.cancel()
        await asyncio.wait(scores)
        return elsewhere, [task.exception() for task in scores[:4]], scores[-1].result()

    n_done, errors, last = asyncio.run(scene())
    assert n_done == 0, "another thread was at work before any of them ended"
    assert all(isinstance(error, JudgeError) for error in errors)
    assert last == Score(1.0, answer="7")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"judge `math` needs the extra `metrics`"):
        create_judge("math", {}, Catalog())
