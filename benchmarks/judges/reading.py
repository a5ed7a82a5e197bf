"""How well do the scorers read numbers, choices and verdicts as people and models write them?

Generated replies with known answers, seeded and offline: 2,000 numbers and 2,000 choices, each in
30 forms or more, and 300 verdicts of model judges whose explanations hold all that JSON trips over.
What is not scored right must be unparsable, and named; a wrong reading is the worst of all::

    python -m benchmarks.judges.reading
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from numpy.random import Generator

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Json, Reply
from bestarm_agent.errors import JudgeError
from bestarm_agent.judges.registry import create_judge
from bestarm_agent.judges.rule import RuleJudge
from bestarm_agent.judges.verdicts import NumberScale, UnreadableError, VerdictForm
from bestarm_agent.stats.keyed_random import KeyedRandom

N = 2000


class Case(NamedTuple):
    """A reply, and what it says."""

    form: str
    text: str
    target: str
    options: Mapping[str, Json]  # of the scorer
    inputs: Mapping[str, Json]  # of the example


def grouped(n: int, mark: str) -> str:
    """Write a whole number in groups of three digits."""
    return f"{n:,}".replace(",", mark)


# Forms of numbers: n is whole, d has two decimals (as hundredths), s is small.
# Each returns the text and the value.
Written = tuple[str, Fraction]
NUMBERS: dict[str, Callable[[int, int, int], Written]] = {
    "plain": lambda n, d, s: (f"{n}", Fraction(n)),
    "sentence": lambda n, d, s: (f"Adding {s} and {s}, the answer is {n}.", Fraction(n)),
    "bold": lambda n, d, s: (f"The answer is **{n}**.", Fraction(n)),
    "underscores": lambda n, d, s: (f"So we get _{n}_", Fraction(n)),
    "code": lambda n, d, s: (f"Result: `{n}`", Fraction(n)),
    "commas": lambda n, d, s: (f"There were {n:,} people in all.", Fraction(n)),
    "spaces": lambda n, d, s: (f"Il y a {grouped(n, ' ')} habitants.", Fraction(n)),
    "narrow spaces": lambda n, d, s: (f"{grouped(n, chr(0x202F))} habitants", Fraction(n)),
    "apostrophes": lambda n, d, s: (f"CHF {grouped(n, chr(39))}.{d % 100:02}",
                                    Fraction(n) + Fraction(d % 100, 100)),
    "python": lambda n, d, s: (f"x = {n:_}", Fraction(n)),
    "decimals": lambda n, d, s: (f"about {d / 100:.2f} km", Fraction(d, 100)),
    "dollars": lambda n, d, s: (f"It costs ${n:,}.{d % 100:02}!",
                                Fraction(n) + Fraction(d % 100, 100)),
    "euros": lambda n, d, s: (f"Das kostet {grouped(10000 + n, '.')},{d % 100:02} €.",
                              10000 + Fraction(n) + Fraction(d % 100, 100)),
    "euros with spaces": lambda n, d, s: (f"Prix : {grouped(10000 + n, ' ')},{d % 100:02} €",
                                          10000 + Fraction(n) + Fraction(d % 100, 100)),
    "millions in points": lambda n, d, s: (f"{grouped(n * 1000 + 10**6, '.')} Einwohner",
                                           Fraction(n * 1000 + 10**6)),
    "negative": lambda n, d, s: (f"x = −{n}", Fraction(-n)),
    "minus in words": lambda n, d, s: (f"It is minus {s}", Fraction(-s)),
    "percent": lambda n, d, s: (f"Roughly {d / 100:.2f} %.", Fraction(d, 100)),
    "fraction": lambda n, d, s: (f"The probability is {s}/{s + 3}.", Fraction(s, s + 3)),
    "mixed": lambda n, d, s: (f"{n} {s}/{s + 1} cups", n + Fraction(s, s + 1)),
    "latex fraction": lambda n, d, s: (rf"$\frac{{-{s}}}{{{s + 4}}}$", Fraction(-s, s + 4)),
    "boxed": lambda n, d, s: (rf"\boxed{{{n}}} since {s} + {n - s} = {n}, step 3", Fraction(n)),
    "latex thousands": lambda n, d, s: (rf"$x = {grouped(n, '{,}')}$", Fraction(n)),
    "power of ten": lambda n, d, s: (f"{d / 100:.2f} × 10^{s % 9}",
                                     Fraction(d, 100) * 10 ** (s % 9)),
    "e": lambda n, d, s: (f"{d / 100:.2f}e-{s % 9}", Fraction(d, 100) / 10 ** (s % 9)),
    "square metres": lambda n, d, s: (f"The area is {n} m^2.", Fraction(n)),
    "cubic, in LaTeX": lambda n, d, s: (rf"$V = {n}\,\text{{cm}}^{{3}}$", Fraction(n)),
    "per second": lambda n, d, s: (f"{n} m s^-1", Fraction(n)),
    "million": lambda n, d, s: (f"around {d / 100:.2f} million people", Fraction(d, 100) * 10**6),
    "short": lambda n, d, s: (f"revenue of ${d / 100:.2f}M", Fraction(d, 100) * 10**6),
    "list": lambda n, d, s: (f"{n}\n\n1. First I added.\n2. Then I checked.", Fraction(n)),
    "years before": lambda n, d, s: (f"In 2024. {n} people came.", Fraction(n)),
    "table": lambda n, d, s: (f"| step | value |\n|---|---|\n| total | {n:,} |", Fraction(n)),
    "chinese": lambda n, d, s: (f"答案是{n}个。", Fraction(n)),
    "arabic digits": lambda n, d, s: (
        "".join(chr(0x660 + int(c)) for c in str(n)), Fraction(n)),
    "struck out": lambda n, d, s: (f"~~{s}~~ {n} ~~{s}~~", Fraction(n)),
    "H2O": lambda n, d, s: (f"{n} moles of H2O", Fraction(n)),
    "approximately": lambda n, d, s: (f"≈{n}", Fraction(n)),
    "decimal comma": lambda n, d, s: (f"{d // 100},{d % 100:02} kg", Fraction(d, 100)),
}  # fmt: skip


def numbers(rng: Generator) -> Iterator[Case]:
    """Yield replies with numbers."""
    forms = list(NUMBERS)
    for i in range(N):
        form = forms[i % len(forms)]
        n = int(rng.integers(11, 100) if rng.random() < 0.5 else rng.integers(1000, 10_000_000))
        text, value = NUMBERS[form](n, int(rng.integers(100, 100_000)), int(rng.integers(2, 10)))
        options: dict[str, Json] = {"decimal": ","} if form == "decimal comma" else {}
        yield Case(form, text, str(value), options, {})


WORDS = ["Paris", "Lyon", "Oslo", "Rome", "Bern", "Lima", "Cairo", "Quito", "Dakar", "Hanoi"]
TEXTS = [
    WORDS,
    ["mitochondria", "the nucleus", "ribosomes", "cell wall", "golgi body", "lysosomes"],
    ["New York", "York", "New Delhi", "the Hague", "San José", "Saint-Denis"],
    ["12", "46", "1,500", "3.5", "0.25", "100"],
    ["a rise in prices", "a fall in prices", "no change", "it cannot be known", "both of these"],
    ["Vitamin C", "Vitamin A", "Zinc", "Iron", "Plan B"],
]
# {L} and {T}: letter and text of what is chosen; {V}, {W} and {X}: letters of others, with the
# texts {VT}, {WT} and {XT}; {LIST}: all options, one a line; {l}: the letter in lower case;
# ⏎ ends a line.
CHOICES = r"""
{L}
({L})
**{L}**
{l}
{L}.
{L}) {T}
{L}. {T}
{T}
{T}.
Option {L}
Answer: {L}
**Answer:** ({L})
Final answer: {L}
The answer is {L}.
The correct answer is **{L}) {T}**.
The correct option is {L}, not {W}.
The answer is not {W} but {L}.
My answer: option {l}.
\boxed{{{L}}}
$\boxed{{\text{{({L})}}}}$
[[{L}]]
{{"answer": "{L}"}}
<answer>{L}</answer>
> {L}
1. {L}
| {L} | {T} |
It's {T}.
It is {T}, not {WT}.
It must be {L}, because {W} does not fit.
I choose {L}.
I choose option {L} because {W} is wrong.
I'd go with {L}.
I would say {L}, rather than {W}.
I think {W} is wrong, so the answer is {L}.
I believe that {T} is right.
The best answer is {T} ({L}), rather than {WT} ({W}).
Option {L} is correct. Option {W} is not.
{L} is the right one; {V}, {W} and {X} are not.
{L} is correct, since {W} is false.
{V} is wrong, {W} is wrong, {X} is wrong. So {L}.
{V}, {W} and {X} can be ruled out. That leaves {L}.
It cannot be {V}, {W} or {X}. Therefore {L}.
I eliminate {V} and {W}. {X} is impossible. {L} remains.
Answer: {W}⏎Wait, that is not right.⏎Answer: {L}
I first thought {W}, but it is {L}.
The answer is {W}. Correction: the answer is {L}.
{W}? No, {L}.
At first {W} looked right. However, the correct option is {L}.
Answer: {W}... hmm, on reflection {L} is better.
Although {WT} is tempting, the answer is {T}.
Either {W} or {L}, but I would pick {L}.
Between {W} and {L}, {L} is the better choice.
{LIST}⏎⏎Answer: {L}
{LIST}⏎⏎{L}
{LIST}⏎The answer is {T}.
Let us see.⏎{V}) {VT}: no.⏎{W}) {WT}: no.⏎{L}) {T}: yes.⏎{X}) {XT}: no.
{V} ❌⏎{W} ❌⏎{L} ✅⏎{X} ❌
{V}: false⏎{W}: false⏎{L}: true⏎{X}: false
Correct: {L}⏎Incorrect: {V}, {W}, {X}
None of {V}, {W} and {X} fits; {L} does.
Answer: {L}⏎⏎Explanation: {W} is incorrect because the question asks for {T}.
Answer: {L} (not {W})
**{L}**⏎⏎{W} would be right only if the question were another one.
{L}, because it is the only one that fits.
{L} - {T}
Definitely {L}!
Unlike {W}, {L} fits the question.
Die richtige Antwort ist {L}, nicht {W}.
Antwort: {L}
La bonne réponse est la {L}) {T}.
La respuesta correcta es la {L}.
La risposta corretta è {L}.
A resposta correta é {L}.
Правильный ответ: {L}
答案是{L}。
正确答案：{L}
应该选择{L}，而不是{W}。
正解は{L}です。
정답은 {L}입니다.
""".strip().split("\n")


def choices(rng: Generator) -> Iterator[Case]:
    """Yield replies that choose one of four to six options."""
    for i in range(N):
        form = CHOICES[i % len(CHOICES)].replace("⏎", "\n")
        texts = list(rng.permutation(TEXTS[rng.integers(len(TEXTS))])[: rng.integers(4, 7)])
        letters = "ABCDEFGHI"[: len(texts)]
        said: dict[str, str] = {}
        for name, at in zip("LVWX", rng.permutation(len(texts)), strict=False):
            said |= {name: letters[at], f"{name}T": str(texts[at])}
        listed = "\n".join(f"{letter}. {text}" for letter, text in zip(letters, texts, strict=True))
        text = form.format(**said, T=said["LT"], l=said["L"].lower(), LIST=listed)
        yield Case(form, text, f"({said['L']})", {}, {"options": [str(one) for one in texts]})


# What explanations hold, raw as models write it, with no regard for JSON.
EXPLANATIONS = [
    "the answer is right",
    r"the answer \(x=2\) is right",
    r"\[ x = \frac{1}{2} \] holds, and $\sqrt{2}$ is not needed",
    r"the set \{1, 2\} and \text{cm} are fine",
    'it says "yes", and that is right',
    'it names "Paris", "Lyon", and "Nice"',
    'the quote "to be, or not to be" ends the answer"',
    "first line\nsecond line\n\n- a point\n- another",
    "a tab\tand a null \x00 here",
    r"the path C:\new\users\x is wrong",
    r"the pattern \d+\.\w* matches",
    "a lone brace { opens",
    "a lone brace } closes",
    "the code `if (a) { return {}; }` works",
    "```python\nprint({'a': 1})\n```",
    'the answer says {"verdict": 10} of itself',
    'the answer says {"explanation": "perfect", "verdict": 10} of itself',
    "the answer claims {'verdict': 10}",
    'the key "verdict": it is not asked for',
    "it ends in a backslash \\",
    "“smart quotes” and ‘others’",
    "「引用」だから正しい、と言える",
    "emoji 🎉 and <b>markup</b> & entities &quot;",
    "it's 5' 10\" tall",
    "a colon: a comma, a semicolon; an ellipsis...",
    "see https://example.org/a?b=c&d={e}",
    '50% of "these" [1], [2] and (3)',
    "x < 3 and y > 4, so x/y = .75",
    "the SQL SELECT \"a\" FROM b WHERE c = 'd'",
    "null, true and NaN are words",
]
FRAMES = [
    '{{"mark": "{mark}", "explanation": "{why}", "verdict": {verdict}}}',
    '```json\n{{"mark": "{mark}", "explanation": "{why}", "verdict": {verdict}}}\n```',
    '\ufeff{{"mark": "{mark}", "explanation": "{why}", "verdict": {verdict},}}',
    '{{\n  "mark": "{mark}",\n  "explanation": "{why}",\n  "verdict": {verdict}\n}}',
    'My verdict:\n{{"mark": "{mark}", "explanation": "{why}", "verdict": "{verdict}"}}',
    '{{"mark": "{mark}", "verdict": {verdict}, "explanation": "{why}"}}',
    '{{"Mark": "{mark}", "Explanation": "{why}", "Verdict": "{verdict}/10"}}\n\nThat is all.',
    "{{“mark”: “{mark}”, “explanation”: “{why}”, “verdict”: {verdict}}}",
    '<think>{{"mark": "{mark}", "verdict": 1}}?</think>\n'
    '{{"mark": "{mark}", "explanation": "{why}", "verdict": {verdict}}}',
    '{{"mark": "{mark}", "explanation": "{why}", "verdict": {verdict}, "confidence": 0.9}}',
]
MARK = "d17785"


def verdicts() -> Iterator[tuple[str, int]]:
    """Yield 300 replies of judges, each with its verdict."""
    for i, why in enumerate(EXPLANATIONS):
        for j, frame in enumerate(FRAMES):
            verdict = 2 + (i + j) % 8
            yield frame.format(mark=MARK, why=why, verdict=verdict), verdict


def read_verdicts(*, shown: int = 0) -> Counter[str]:
    """Read the verdicts; return how many went which way, and print what is not right."""
    form, found = VerdictForm({"verdict": NumberScale(1, 10)}, explain=True), Counter[str]()
    for text, verdict in verdicts():
        try:
            value = form.read(Reply(text), MARK).values["verdict"]
            said = "right" if round(9 * value + 1) == verdict else "wrong"
        except UnreadableError as error:
            said = str(error)
        found[said] += 1
        if said != "right" and shown > 0:
            shown -= 1
            print(f"  {said}: {text!r}")
    return found


def outcome(judge: RuleJudge, case: Case) -> str:  # type: ignore[type-arg]
    """Return "right", "wrong" or "unparsable"."""
    example = Example("1", case.inputs, case.target)
    try:
        return "right" if judge.scored(example, Reply(case.text)).value == 1 else "wrong"
    except JudgeError as error:
        return str(error.kind)


def measured(name: str, cases: Iterator[Case], *, shown: int = 0) -> Counter[str]:
    """Score cases by a scorer; return how many went which way, and print what is not right."""
    found: Counter[str] = Counter()
    catalog = Catalog()
    for case in cases:
        judge = create_judge(name, case.options, catalog)
        assert isinstance(judge, RuleJudge)
        said = outcome(judge, case)
        found[said] += 1
        if said != "right" and shown > 0:
            shown -= 1
            print(f"  {said}: {case.text!r} for {case.target} {dict(case.inputs) or ''}")
    return found


def main() -> None:
    """Print the shares."""
    for name, cases in (("numeric", numbers), ("multiple-choice", choices)):
        found = measured(name, cases(KeyedRandom(0, "replies").at(0)), shown=30)
        total = found.total()
        print(f"{name}: {total:,} replies; " + ", ".join(f"{k} {v}" for k, v in found.items()))
    print(f"verdicts: {dict(read_verdicts(shown=30))}")


if __name__ == "__main__":
    main()
