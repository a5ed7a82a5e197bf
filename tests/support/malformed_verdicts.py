"""Judges' replies as judges write them: kinds of damage, and what each must be read as.

Every kind takes a verdict and an explanation and returns a reply with what is to be read in it:
the verdict itself, or None where it is lost or in doubt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bestarm_agent.domain.request_reply import Finish, Reply

Kind = Callable[[int, str], "Reply | str"]


@dataclass(frozen=True)
class Case:
    kind: str
    reply: Reply
    expected: int | None


EXPLANATIONS = (
    "Right, and to the point.",
    'It says "46", which is right.',
    "Two steps:\n1. it adds\n2. it checks",
    "Braces {like these} and [those] are fine.",
    "L'explication est « bonne », 100 % : ça va.",
    "正しい。",
    "The score: high. A verdict, I think, of quality.",
    'It tries {"verdict": 10} on me; no.',
    "Back\\slashes \\ and a tab\t.",
    "😀 fine",
)
VERDICTS = (1, 2, 5, 7, 10)

READABLE: dict[str, Kind] = {}
LOST: dict[str, Kind] = {}


def readable(kind: Kind) -> Kind:
    READABLE[kind.__name__] = kind
    return kind


def lost(kind: Kind) -> Kind:
    LOST[kind.__name__] = kind
    return kind


def strict(verdict: object, why: str) -> str:
    return json.dumps({"explanation": why, "verdict": verdict}, ensure_ascii=False)


@readable
def as_asked(verdict: int, why: str) -> str:
    return strict(verdict, why)


@readable
def indented(verdict: int, why: str) -> str:
    return json.dumps({"explanation": why, "verdict": verdict}, indent=4)


@readable
def fenced(verdict: int, why: str) -> str:
    return f"```json\n{strict(verdict, why)}\n```"


@readable
def fenced_without_language(verdict: int, why: str) -> str:
    return f"```\n{strict(verdict, why)}\n```"


@readable
def prose_around(verdict: int, why: str) -> str:
    return f"Here is my evaluation:\n\n{strict(verdict, why)}\n\nLet me know if you need more!"


@readable
def fence_never_closed(verdict: int, why: str) -> str:
    return f"Sure!\n```json\n{strict(verdict, why)}"


@lost
def draft_before(verdict: int, why: str) -> str:
    return f"Draft: {strict(verdict % 10 + 1, 'draft')}\nFinal: {strict(verdict, why)}"


@readable
def thoughts_before(verdict: int, why: str) -> str:
    return f"<think>Perhaps {strict(verdict % 10 + 1, 'no')}?</think>\n{strict(verdict, why)}"


@readable
def thoughts_whose_beginning_the_prompt_holds(verdict: int, why: str) -> str:
    return f"Perhaps {strict(verdict % 10 + 1, 'no')}?\n</think>\n\n{strict(verdict, why)}"


@readable
def tags_of_thoughts_in_a_text(verdict: int, why: str) -> str:
    return strict(verdict, f"It writes <think> and </think>: {why}")


@readable
def echo_of_the_schema(verdict: int, why: str) -> str:
    return f'Schema: {{"type": "object"}}\n{strict(verdict, why)}'


@readable
def number_as_text(verdict: int, why: str) -> str:
    return strict(str(verdict), why)


@readable
def number_as_float(verdict: int, why: str) -> str:
    return strict(float(verdict), why)


@readable
def out_of_ten(verdict: int, why: str) -> str:
    return strict(f"{verdict}/10", why)


@readable
def keys_in_capitals(verdict: int, why: str) -> str:
    return json.dumps({"Explanation": why, "VERDICT": verdict})


@readable
def one_level_down(verdict: int, why: str) -> str:
    return json.dumps({"evaluation": {"explanation": why, "verdict": verdict}})


@readable
def in_a_list(verdict: int, why: str) -> str:
    return f"[{strict(verdict, why)}]"


@readable
def json_in_a_string(verdict: int, why: str) -> str:
    return json.dumps(strict(verdict, why))


@readable
def byte_order_mark(verdict: int, why: str) -> str:
    return f"\ufeff{strict(verdict, why)}"


@readable
def raw_line_breaks_in_a_text(verdict: int, why: str) -> str:
    return f'{{"explanation": "fine\nand\tmore", "verdict": {verdict}}}'


@readable
def the_same_key_twice_with_one_value(verdict: int, why: str) -> str:
    return f'{{"verdict": {verdict}, "explanation": {json.dumps(why)}, "verdict": {verdict}}}'


@readable
def trailing_comma(verdict: int, why: str) -> str:
    return f'{{"verdict": {verdict}, "explanation": "fine",}}'


@readable
def single_quotes(verdict: int, why: str) -> str:
    return f"{{'explanation': 'fine', 'verdict': {verdict}}}"


@readable
def keys_without_quotes(verdict: int, why: str) -> str:
    return f'{{explanation: "fine", verdict: {verdict}}}'


@readable
def a_comment_inside(verdict: int, why: str) -> str:
    return f'{{\n  "explanation": "fine", // in short\n  "verdict": {verdict}\n}}'


@readable
def comma_forgotten(verdict: int, why: str) -> str:
    return f'{{\n  "explanation": "fine"\n  "verdict": {verdict}\n}}'


@readable
def quotes_not_escaped(verdict: int, why: str) -> str:
    return f'{{"explanation": "it says "yes" here", "verdict": {verdict}}}'


@readable
def python_literal(verdict: int, why: str) -> str:
    return f"{{'explanation': None, 'verdict': {verdict}, 'sure': True}}"


@readable
def nothing_but_the_number(verdict: int, why: str) -> str:
    return f"{verdict}\n"


@readable
def the_number_in_bold(verdict: int, why: str) -> str:
    return f"**{verdict}/10**"


@readable
def cut_off_after_the_verdict(verdict: int, why: str) -> str:
    return f'{{"verdict": {verdict}, "explanation": "it goes on and'


@lost
def nothing_at_all(verdict: int, why: str) -> str:
    return ""


@lost
def blank(verdict: int, why: str) -> str:
    return " \n\t"


@lost
def prose_only(verdict: int, why: str) -> str:
    return f"I would give this a {verdict} out of 10. {why}"


@lost
def a_refusal(verdict: int, why: str) -> Reply:
    return Reply(strict(verdict, why), Finish.REFUSAL)


@lost
def filtered(verdict: int, why: str) -> Reply:
    return Reply(strict(verdict, why)[:20], Finish.CONTENT_FILTER)


@lost
def cut_off_at_the_verdict(verdict: int, why: str) -> str:
    """A verdict of 10 cut off after its first digit reads as 1."""
    return f'{{"explanation": "fine", "verdict": {verdict}'


@lost
def cut_off_before_the_verdict(verdict: int, why: str) -> str:
    return strict(verdict, why).partition('"verdict"')[0]


@lost
def cut_off_by_the_token_limit(verdict: int, why: str) -> Reply:
    return Reply(f'{{"verdict": {verdict}, "explanation": "it goes on', Finish.LENGTH)


@lost
def cut_off_while_thinking(verdict: int, why: str) -> Reply:
    return Reply(f"<think>So far {strict(verdict, why)} but", Finish.LENGTH)


@lost
def off_the_scale(verdict: int, why: str) -> str:
    return strict(verdict + 10, why)


@lost
def below_the_scale(verdict: int, why: str) -> str:
    return strict(-verdict, why)


@lost
def between_two_verdicts(verdict: int, why: str) -> str:
    return strict(verdict + 0.5, why)


@lost
def on_another_scale(verdict: int, why: str) -> str:
    return strict(f"{min(verdict, 5)}/5", why)


@lost
def a_word(verdict: int, why: str) -> str:
    return strict("excellent", why)


@lost
def not_a_number(verdict: int, why: str) -> str:
    return '{"explanation": "fine", "verdict": NaN}'


@lost
def null(verdict: int, why: str) -> str:
    return strict(None, why)


@lost
def true(verdict: int, why: str) -> str:
    """Python holds True for 1; a judge does not."""
    return strict(True, why)


@lost
def two_numbers(verdict: int, why: str) -> str:
    return strict([verdict, 1], why)


@lost
def the_same_key_twice(verdict: int, why: str) -> str:
    return strict(verdict, why)[:-1] + f', "verdict": {verdict % 10 + 1}}}'


@lost
def two_verdicts_in_one(verdict: int, why: str) -> str:
    return f"[{strict(verdict, why)}, {strict(verdict % 10 + 1, why)}]"


@lost
def another_key(verdict: int, why: str) -> str:
    return json.dumps({"explanation": why, "rating": verdict})


@lost
def a_good_one_and_then_a_broken_one(verdict: int, why: str) -> str:
    """The last word counts, and it cannot be read."""
    return f'{strict(verdict, "first")} No: {{"explanation": "fine", "verdict": }}'


@lost
def a_quotation_of_the_answer_in_single_quotes(verdict: int, why: str) -> str:
    """It is asked about an answer that says the like."""
    return "It claims {'verdict': 10}."


@readable
def a_quotation_after_the_verdict(verdict: int, why: str) -> str:
    return f'{strict(verdict, why)} (It claimed {{"verdict": 10}}.)'


@lost
def two_broken_ones_that_differ(verdict: int, why: str) -> str:
    return f"{{'verdict': {verdict}}} or {{'verdict': {verdict % 10 + 1}}}"


@lost
def only_the_schema(verdict: int, why: str) -> str:
    return '{"explanation": "<one to three sentences>", "verdict": <a whole number>}'


@lost
def a_range(verdict: int, why: str) -> str:
    return strict(f"{verdict}-{verdict + 1}", why)


@lost
def deeply_nested_rubbish(verdict: int, why: str) -> str:
    return "[" * 3000 + "{" * 3000


@lost
def deeply_nested_and_broken(verdict: int, why: str) -> str:
    return f'{{"verdict": {verdict}, "explanation": ' + '{"a": [' * 2000


@lost
def endless_and_broken(verdict: int, why: str) -> str:
    return "{'verdict': 7, 'explanation': '" + "it goes on, " * 3000


@readable
def markup(verdict: int, why: str) -> str:
    return f"<verdict>{verdict}</verdict>"


def cases() -> Iterator[Case]:
    """Every kind with every verdict and explanation, without repetition."""
    for kinds, is_readable in ((READABLE, True), (LOST, False)):
        for name, kind in kinds.items():
            seen = set()
            for verdict in VERDICTS:
                for why in EXPLANATIONS:
                    made = kind(verdict, why)
                    reply = Reply(made) if isinstance(made, str) else made
                    if (reply.text, reply.finish) not in seen:
                        seen.add((reply.text, reply.finish))
                        yield Case(name, reply, verdict if is_readable else None)
