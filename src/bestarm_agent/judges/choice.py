"""Read which of several lettered options a reply chooses, and whether it is the right one.

Every mention of an option, by its letter or by its text, becomes one character that stands for it.
What is rejected ("A is wrong", "rather than A") is taken out. Then statements are looked for, in
the order of ``_STATEMENTS``, and the last one wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from string import ascii_uppercase
from typing import Literal, NamedTuple

from pydantic import Field

from bestarm_agent.config.yaml import YamlProblem, parse_yaml
from bestarm_agent.domain.values import Example, Json
from bestarm_agent.judges.base import excerpt, judge_failed, unparsable
from bestarm_agent.judges.rule import (
    ANSWER,
    ANSWER_UNSPACED,
    STANDARD,
    RuleJudge,
    ShortRuleOptions,
    normaliser,
    occurrences,
    unicode_form,
)

_NORMALISE = normaliser(STANDARD)
# Emphasis, quotes and dollar signs go before anything is looked for, so that "**B**", `B` and "$B$"
# are one bare letter. An underscore becomes a space because it may stand between two words.
_EMPHASIS = str.maketrans({**dict.fromkeys('*`"“”„«»$', ""), "_": " ", "’": "'"})
# The beginning of \text{, \mathrm{ or \textbf{ (up to two letters more). The closing brace stays:
# to every pattern below it is punctuation, as in "\boxed{\text{B}}".
_LATEX_TEXT = re.compile(r"\\(?:text|math)[a-z]{0,2}\s?\{")
# One private-use character per letter, U+E000 for A to U+E019 for Z. A pattern can so name "any
# option" as one character class, however the reply wrote it, and no reply holds such a character by
# chance. U+F8FF lies outside the class, so that a rejected option is found by no statement.
_FIRST, _REJECTED = 0xE000, "\uf8ff"  # the mention of option A, and of one that is rejected


def _any(listed: str) -> str:
    """Return a pattern for any of the words, whole; "_" stands for a space, "*" for an ending."""
    # Word edges are spelt out instead of \b because \b takes "_" for a letter, and because "*"
    # needs the edge after the ending, not after the stem: "eliminat*" must match "eliminated"
    # whole.
    words = (re.escape(word).replace("_", r"\s").replace(r"\*", r"\w*") for word in listed.split())
    return rf"(?<![^\W_])(?:{'|'.join(words)})(?![^\W_])"


# The parts that the patterns below are made of. _MARK, _NEAR and _CLAUSE name what may not stand in
# between, rather than what may, so that a language or a layout that nobody thought of still passes.
# None of them crosses a mention, so that a word is always about the nearest one.
_MENTION = "\ue000-\ue019"
_T = f"[{_MENTION}]"
_MARK = rf"[^\w\n{_MENTION}]"  # of punctuation, brackets, lists
_NEAR = rf"[^{_MENTION}.;!?\n]"  # what may stand between a word and the mention that it is about
# "A and B", "A, B", "A/B", "A) B".
_AND = rf"(?:,|/|&|\+|(?:, )?{_any('and or nor und oder et ou y o e')}|或|和|\)? )"
# A list of up to ten mentions, "A, B and option C": one statement about all of them.
_TL = rf"{_T}(?: ?{_AND} ?(?:(?:option|choice) )?{_T}){{0,9}}"  # several are one statement
# What may stand before a letter: "the option B", "to be the answer B". Bounded at three words.
_THE = r"(?:(?:the|option|choice|letter|answer|to|be|die|la|le|el|o) ){0,3}"
# A conjunction begins a reason or a contrast, and what follows is about another thing: in "B
# because A is wrong" the word "wrong" is not about B. A clause ends there, and at punctuation.
_WHY = _any("because since as so but other others rest while whereas weil denn car porque")
_CLAUSE = rf"(?:(?!{_WHY})[^{_MENTION}.;,:!?\n])"

# Words and signs that reject what stands before them. "not" does so except in "not only A" and
# where a mention follows within two words ("it is not A"), which is the second rejection's case.
_WRONG = (
    _any(
        "cannot never wrong incorrect false eliminated impossible fail fails untrue worse "
        "ruled_out no is_out are_out "
        "nicht kein* falsch faux fausse pas falso falsa incorrecto incorrecta errado errada "
        "неверн* неправильн*"
    )
    + rf"|n't\b|\bnot\b(?!\s(?:only|(?:\w+\s){{0,2}}{_T}))|错|不|誤|違|[❌✗✘✖]"
)
# Words and signs that affirm what stands before them: "B is correct", "B ✓".
_RIGHT = (
    _any(
        "correct right answer best better stronger preferable superior true accurate likeliest "
        "more_likely most_likely winner wins beats fits yes richtig* korrekt "
        "correcte bonne vrai vraie correcto correcta giusta esatta certa верн* правильн*"
    )
    + "|正确|正解|正し|对|맞|[✅✓✔☑]"
)
# Nouns that a letter follows: "Answer: B", "the correct option is B", "\boxed{B}".
_ANSWER = (
    _any(
        f"{ANSWER.replace('|', ' ')} solution lösung correct_option correct_choice correct_one "
        "correct_letter best_option final_choice my_choice my_pick"
    )
    + rf"|{ANSWER_UNSPACED}"
    + r"|\\boxed(?![a-z])|\b(?:final|conclusion|verdict|decision)(?=\s?[:=])"
)
# Verbs that a letter follows: "I choose B", "I'd go with B".
_CHOOSE = (
    _any(
        "choos* chose pick picked select* go_with going_with went_with vote_for opt_for settle*_on "
        "stick_with say guess prefer conclude believe think nehme wähle choisis elijo scelgo "
        "escolho выбираю"
    )
    + "|选择?|選"
)
# Words that draw a conclusion: "so B.", "which leaves B.", "sondern B".
_SO = _any(
    "so therefore thus hence leaves leave leaving remaining remains left but daher also donc luego "
    "quindi sondern mais sino"
)
_WOULD = r"\s(?:would|could|might|may)\b"  # be, in another case
# Words that begin a reason or a contrast, in which nothing is stated.
_REASON = _any("because since as while whereas though although weil car porque")
# Where a sentence may end after a mention. "so B." concludes; "so B has the higher value" does not.
_ENDS = rf"(?=\s*(?:[.!,;:)\]}}\n<]|$|{_any('because since as is it weil car porque')}))"

# "All options except B are wrong" states B, while "all except B are right" rejects it. It is
# rewritten before the rejections, which would take the B away.
_ALL_BUT = re.compile(
    rf"{_any('all every everything each any')}{_NEAR}{{0,40}}?"
    rf"(?P<wrong>(?:{_WRONG}){_NEAR}{{0,9}}?)?"
    rf"{_any('except but besides other_than apart_from save')}\s{_THE}(?P<tl>{_TL})"
    rf"(?(wrong)|{_NEAR}{{0,30}}?(?:{_WRONG}))",
    re.IGNORECASE,
)
# Rejections are taken out first, since "the answer is not A but B" would otherwise state A. Their
# order matters: each takes away what it names, and the later, looser ones see only the rest.
_REJECTIONS = [
    # [ ] A; A is wrong; A, C and D are not; B can be ruled out; C: false; C (no)
    rf"(?:\[ ?\]|☐)\s?{_TL}",
    rf"{_TL}(?=(?:\)? |[:=] ?| [-–—] )(?:{_CLAUSE}{{0,30}}?[\s\w])?(?:{_WRONG})"
    rf"|\s?\((?:{_WRONG})[),;]|\s?(?:では|じゃ)な|[은는이가]?\s아니)",
    # not A; wrong options: A, C; I do not think it is A; eliminate A and C
    rf"(?:{_any('not never neither nor cannot excluding except versus vs nicht keineswegs')}|n't"
    rf"|{_any('eliminat* rule_out ruled_out ruling_out reject* discard* exclud* dismiss* statt')}"
    rf"|{_any('anstatt pas plutôt_que no_es en_lugar_de не não non nie niet ikke inte bukan')}"
    rf"|{_any('none_of ليس ليست')}|排除|不是|不选"
    rf"|{_any('wrong incorrect false')}(?: (?:option|choice|answer)s?)?(?::| are| is))"
    # not the B of "eliminating A, C and D, B remains"
    rf"(?: (?!{_WHY}|only\b)[^\W\d]+(?:'\w+)?:?){{0,4}}? ?{_THE}{_TL}"
    rf"(?!\s(?:(?:is|are)\s)?{_any('remain* left stands')})",
    # rather than A; unlike A; over A, B or C (but not B in "unlike A, B is right")
    rf"{_any('than instead_of unlike over against compared_to compared_with opposed_to')}\s"
    rf"{_THE}{_T}(?:(?:, {_T})*,?\s(?:and|or)\s{_T})*",
    # people might think A; most would answer A; it is a mistake to choose A
    rf"(?:(?<!\bi )(?:might|may|could)"
    rf"|{_any('people students some many others mistake trap someone')})\s(?:\w+\s){{0,2}}"
    rf"(?:{_CHOOSE}|would\sanswer){_NEAR}{{0,25}}?{_TL}",
    # my second choice is A; runner-up: A
    rf"(?:\bmy\ssecond\s(?:choice|guess|pick)|second[\s-]best|runner-up){_NEAR}{{0,25}}?{_TL}",
    # if it were so, A would be right; had it been so, A would be right; A would be right if ...;
    # not: if I had to choose, ...
    rf"(?:\bif|(?:^|[.!?;]\s?)had)\s(?!(?:i|we|you|one|forced|pressed)\b){_NEAR}{{0,60}}{_TL}(?=\swould)",
    rf"{_TL}(?=\s(?:would|could|might)\s{_NEAR}{{0,40}}\bif\b)",
    # B, but it could be A: a doubt takes back no choice; not: it is not B, but it could be A
    rf"(?<={_T}[,;.]\s){_any('but though although')}\s(?:it|that)\s(?:could|might|may)\s"
    rf"(?:\w+\s)?be\s{_THE}{_TL}",
]
# Statements, the clearest first; of each line the last that is made counts.
_STATEMENTS = [
    [
        # the answer is B
        rf"(?:{_ANSWER})(?:(?:{_MARK}|\n){{0,12}}|{_NEAR}{{0,50}}?)(?P<tl>{_TL})",
        rf"(?:{_CHOOSE}|\[[xX]\]){_NEAR}{{0,25}}?(?P<tl>{_TL})",  # I choose B; [x] B
        # B is the right one; B: true; B选项是正确的; but "A would be right for Lyon" grants nothing
        rf"(?P<tl>{_TL})(?!{_WOULD})(?:{_MARK}{{1,3}}|(?=[^\x00-\x7f])){_CLAUSE}{{0,30}}?(?:{_RIGHT})",
        rf"(?:{_SO}|所以|因此){_NEAR}{{0,25}}?(?P<tl>{_TL}){_ENDS}",  # so B; that leaves B
    ],
    [
        # it's B, but not "it is true that"; it was B.; neither in a reason for one of them
        rf"(?:(\b(?:it|that|this)(?:'s|\sis|\smust\sbe|\shas\sto\sbe)\s)"
        rf"|\b(?:is|are|ist|est|es|é|è)\s|[=→⇒]\s?){_THE}(?P<tl>{_TL})"
        rf"(?(1)(?!\s{_any('that to for of only when if')})|{_ENDS})(?:,?\s{_REASON}[^.;!?\n]*)?",
        rf"(?P<tl>{_TL}){_WOULD}{_NEAR}{{0,20}}?(?:{_RIGHT})(?:\s\w+)?{_ENDS}",  # B would be best
        # a line with B alone, or 1. B
        rf"^{_MARK}*(?:\d[.)] )?(?:(?:option|choice|letter)\s)?(?P<tl>{_TL}){_MARK}*$",
    ],
]
# B) because ...: several such lines repeat the options
# A reply that repeats its options with a remark on each ("A) Lyon: no river. B) ...") has several
# such lines and states none by them, so this pattern counts only if all of them name one option.
_LEADING = (
    rf"^{_MARK}{{0,8}}(?P<tl>{_T})(?=\s?(?:[)\]:.,;!]|$)|\s[-–—]|\s{_REASON})"
    # nor a list: "A: 10%, B: 80%", "A, B"
    rf"(?!\W{{0,3}}{_T}\s?(?:[.,;]|$)|.*{_T}\s?(?:[:=→]|[-–—]>?\s|[.)]\s\d))"
)
# What was said before does not count if something is said after it.
# "Answer: A. Wait, it is B" has two statements, and the clearer one is the one withdrawn. So the
# reply is cut at these words, and the parts are read from the last to the first.
_CHANGES = (
    r"\bno[,.!?:]|(?<!\w )actually\b|"
    + _any(
        "wait hold_on correction on_second_thought* on_reflection scratch_that reconsider* "
        "recheck* re-check* sorry hm* let_me_re* let_me_check let_me_think at_first initially "
        "i_thought i_first_thought that's_not_right that_is_not_right that's_wrong that_is_wrong "
        "made_a_mistake made_an_error warte halt attendez en_fait espera подождите"
    )
    + "|等等|不对"
)
# What follows "A" or "2" where it is an option that something is said of, and neither an article
# nor a count: "A is right", "2 seems best".
_GOES_ON = (
    "is|isn't|are|was|because|since|as|and|or|nor|seems|looks|makes|would|cannot|can't|can|must"
    "|should|does|doesn't|has|fits|works|remains|stands|wins|matches|but|not|rather|over"
    "|ist|und|es|est|et|y|oder|mais|maar|utan|sondern|sino|mas"
)
# A bare letter is the hardest mention: "a" and "I" are words, "B" may be a grade, a plan, a
# vitamin. The alternatives go from the safest layout to the loosest, with one group each, of which
# one match fills one: brackets "(b)"; "b)" or "Option b" at a line's start; "answer: b"; "b)"
# followed by white space; and any capital alone. In the last one "A" is an option unless a word
# follows that it could be the article of ("A cat", but not "A is right"), and "I" unless it could
# be the pronoun ("I think" or "I, too", but not "I is right").
_LETTER = re.compile(  # one that is an option, and not a word or a part of one
    rf"""
      (?: (?<![^\W_]) | (?<=box) | (?<=boxed) ) [(\[{{']\s? ([A-Za-z]) \s?[)\]}}']  # (B), [b]
    | (?<=>)\s? ([A-Za-z]) (?=[.)]?\s?</)                       # <answer>b</answer>
    | ^ [^\w\n(\ue000-\ue019]{{0,6}} (?:(?i:option|choice)\s)? ([A-Za-z])  # b) at a line's start
        (?= \s?[)\]}}:] | \.(?!\w) | \s[-–—]\s | [^\w\n\ue000-\ue019]*$ )
    | (?i: \b (?:option|choice|letter|{_ANSWER}) # answer: b
        (?:\s(?:is|ist|es|est|(?:\w{{1,9}}\s){{1,2}}be))? [:\s]{{1,2}} )
        ([A-Z](?![\w']) | [a-z](?=\s*(?:$|[).,:;!?\]}}\n<]|(?:is|as|because|since)\b)))
    | (?i: {_CHOOSE} | \b(?:it|that|this)(?:'s|\sis|\s(?:\w{{1,9}}\s){{1,2}}be) ) :?\s  # I choose b
        ([b-hj-z](?=\n) | [a-hj-z](?=\s*(?:[).,:;!?]|\Z|\n\n|because|since)))
    | (?<![\w'-]) ([A-Za-z]) \) (?=\s)                          # b) within a line
    | (?<![A-Za-z0-9'-]) ([A-Z]) (?![A-Za-z0-9'] | -\w)         # B, but no article and no "I"
        (?: (?<![AI])
          | (?<=A) (?!\s+(?!(?:{_GOES_ON})(?![^\W_]))[a-z])
          | (?<=I) (?!,|\s+(?!(?:is|isn't|because|since|and|or)(?![^\W_]))[a-z])
        )
    """,
    re.VERBOSE | re.MULTILINE,
)
# the number of an option, where options are numbered: no count ("2 hours"), amount or part of one
_NUMBER = re.compile(
    rf"(?<![\w.,:/$€£-])\d{{1,2}}(?![\w%°/-]|[.,:]\d|\s+(?!(?:{_GOES_ON})(?![^\W_]))[a-z])"
)
# "B) Paris", "(B) Paris" and "Paris (B)" mention one option twice: its letter and its text have
# both become the same character by then, and are joined.
_SAME = re.compile(rf"[(\[{{]?({_T})(?:(?:[ :.)(\[\]{{}}–—|-]{{0,4}}| is )\1)+[)\]}}]?")  # B) Paris
# "(B)": brackets go, so that "the answer is (B)." ends as "the answer is B." does.
_BRACKETED = re.compile(rf"[(\[{{]\s?({_T})\s?[)\]}}]")
# A line that holds one option and nothing else: "B) Paris", after the joining above.
_LISTED = re.compile(rf"^{_MARK}{{0,8}}({_T})[ .,;:|)\]]*$", re.MULTILINE)
# "Q: ... A: Paris", or "A: Paris" where A is Lyon: this A stands for "answer".
_LABEL = r"^([-#\s]{0,4}[Q\ue010]:(?:.*\n){1,9}?)?[-#\s]{0,4}\ue000 ?:(?(1)|(?=\s?[\ue001-\ue019]))"
_BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
# All are compiled here, in one place, since every one of them needs the same two flags.
_RULED_OUT, _CLEAR, _IMPLIED, (_LED, _CHANGE, _LABELLED, _JUDGES) = (
    [re.compile(pattern, re.IGNORECASE | re.MULTILINE) for pattern in patterns]
    for patterns in (_REJECTIONS, *_STATEMENTS, [_LEADING, _CHANGES, _LABEL, f"{_RIGHT}|{_WRONG}"])
)


class AmbiguousError(ValueError):
    """The reply chooses more than one option."""


def chosen_letter(
    text: str, options: Mapping[str, str], letters: Mapping[str, str] | None = None
) -> str | None:
    r"""Return the letter that ``text`` chooses, None for none; raise AmbiguousError for several.

    ``options`` holds each option's text by letter; "" if only the letter is known. ``letters``
    holds letters by number, of options that are numbered: ``text`` may choose by these. The last
    statement counts: 1. after what says that an earlier one does not hold ("Wait, ..."), 2. a clear
    one ("the answer is B", "B is correct", "I choose B", "so B"), 3. an implied one ("it is B", a
    line with B alone; but not in a reason), 4. the only line that begins with an option; before 3.
    where options are words such as "true", which explain an answer, too. Else it is the only option
    that is mentioned and not rejected, or that is left of all.

    Example:
        >>> chosen_letter("The answer is **B**.", {"A": "Lyon", "B": "Paris"})
        'B'
        >>> chosen_letter("Answer: A\nWait, no. It is Paris, not A.", {"A": "Lyon", "B": "Paris"})
        'B'
    """
    # The order of the three steps matters: a repeated list of options would be four statements, and
    # rejections must be gone before statements are looked for.
    letters = letters or {}
    plain = _without_lists(_mentions(text, options, letters))
    rejected: set[str] = set()

    def reject(mention: re.Match[str]) -> str:
        rejected.update(_letters(mention[0]))
        return re.sub(_T, _REJECTED, mention[0])

    # An option "true" or "no" is a word that explains answers, too.
    judging = any(_JUDGES.fullmatch(_NORMALISE(option)) for option in options.values())
    plain = _ALL_BUT.sub(r"answer \g<tl>", plain)
    for pattern in _RULED_OUT:
        plain = pattern.sub(reject, plain)
    # From the last part to the first. A part after a change of mind that states nothing may still
    # mention an option ("The answer is A. Hmm, B?"): such mentions are kept and must agree with the
    # statement found, else the reply is ambiguous.
    later: set[str] = set()
    for part in reversed(_CHANGE.split(plain)):
        if statement := _statement(part, at_once=judging):
            *others, last = re.findall(_T, statement)
            stated = _letters(last if last in others else statement)  # of A and B, B is right
            return _only(stated | later)
        later |= _letters(part)
    # No statement: the only option that is mentioned and not rejected, or that is in bold (in a
    # list of all, say); or, if all mentions are rejections, the only one that none of them named.
    mentioned = _letters(plain) - rejected
    if len(mentioned) != 1:
        bold = _letters(_mentions("; ".join(_BOLD.findall(text)), options, letters)) - rejected
        mentioned = bold if len(bold) == 1 else mentioned
    if (letter := _only(mentioned)) is not None:
        return letter
    remaining = options.keys() - rejected
    return _only(remaining) if rejected and len(remaining) == 1 else None


def _statement(plain: str, *, at_once: bool) -> str:
    """Return the last statement of the clearest kind, "" without any.

    ``at_once``: an option that the text begins with is clearer than what is implied after it.
    """
    leading = {match["tl"] for match in _LED.finditer(plain)}
    led = leading.pop() if len(leading) == 1 else ""  # several repeat the options
    is_told = at_once and led and re.match(rf"\W*?{led}", plain)
    for patterns in (_CLEAR, [] if is_told else _IMPLIED):
        statements = [match for pattern in patterns for match in pattern.finditer(plain)]
        if statements:
            return max(statements, key=lambda match: match.end("tl"))["tl"]
    return led


def _mentions(text: str, options: Mapping[str, str], letters: Mapping[str, str]) -> str:
    """Return a reply in plain characters, with one for each mention of an option."""
    plain = _tidied(_LATEX_TEXT.sub("", text))
    # Longest texts first, so that "New York City" is not taken for "New York" with a word after it.
    known = sorted(options.items(), key=lambda option: -len(option[1]))
    for letter, option in known:
        # a text may begin with its own letter: "B) Paris"
        text = re.sub(rf"^\W*{letter}\s?[).:]\s*(?=\S)", "", _tidied(option), flags=re.IGNORECASE)
        wording = _NORMALISE(text)
        if not wording or wording.upper() in options or wording in letters:
            continue  # a letter is read as a letter, a number as that of an option
        # Lower case changes the length of a few characters ("İ" becomes two); then places found in
        # one text would be wrong in the other, and case counts.
        low = plain.lower() if len(plain.lower()) == len(plain) else plain
        # From the end, so that a replacement does not move the places that are still to be
        # replaced.
        for start in reversed([*occurrences(low, wording, words=True)]):
            plain = plain[:start] + _mark(letter) + plain[start + len(wording) :]

    def marked(mention: re.Match[str]) -> str:
        # Each alternative of the pattern has one group, so the last group that matched holds the
        # letter.
        group = mention.lastindex or 0
        letter, span = str(mention[group]).upper(), mention.span(group)
        if letter not in options:
            return mention[0]
        offset = mention.start()
        return mention[0][: span[0] - offset] + _mark(letter) + mention[0][span[1] - offset :]

    def joined(same: re.Match[str]) -> str:
        # "B. Paris is the capital" begins with an option as "B) because ..." does
        begins = not plain[: same.start()].rpartition("\n")[2].strip()
        return f"{same[1]})" if begins and not _LISTED.match(plain, same.start()) else same[1]

    if letters:
        plain = _NUMBER.sub(lambda number: letters.get(number[0], number[0]), plain)
    plain = _LABELLED.sub("", _LETTER.sub(marked, plain))
    return _BRACKETED.sub(r"\1", _SAME.sub(joined, plain))


def _tidied(text: str) -> str:
    return re.sub(r"[^\S\n]+", " ", unicode_form(text).translate(_EMPHASIS))


def _without_lists(plain: str) -> str:
    """Drop lines that repeat the options, one after the other and nothing else."""
    lines, last = [*_LISTED.finditer(plain)], None
    dropped: set[int] = set()
    for line in lines:
        # Letters must rise and nothing may stand between the lines: "A) Lyon / B) Paris" is a list,
        # and the lone "B" under a sentence is an answer.
        follows = (
            last is not None and last[1] < line[1] and not plain[last.end() : line.start()].strip()
        )
        if follows and last is not None:
            dropped |= {last.start(1), line.start(1)}
        last = line
    return "".join(c for place, c in enumerate(plain) if place not in dropped) if dropped else plain


def _mark(letter: str) -> str:
    return chr(_FIRST + ascii_uppercase.index(letter))


def _letters(plain: str) -> set[str]:
    return {ascii_uppercase[ord(mention) - _FIRST] for mention in re.findall(_T, plain)}


def _only(letters: set[str]) -> str | None:
    if len(letters) > 1:
        raise AmbiguousError(" and ".join(sorted(letters)))
    return next(iter(letters), None)


class MultipleChoiceOptions(ShortRuleOptions):
    """Options of ``multiple-choice``.

    ``options_field`` names the input field that holds the options: a list of texts, lettered from
    A; a mapping from letters, or from numbers that begin with 0 or 1, to texts; or ``{"label":
    [...], "text": [...]}``. A list of names means one field per option. Examples without it are
    answered by letter alone. Those whose options are numbered may be answered by number, too.
    """

    options_field: str | tuple[str, ...] = "options"
    # the first option's number where targets are numbers; None: they are letters or texts
    numbered_from: Literal[0, 1] | None = None
    letters: str = Field(ascii_uppercase, pattern=r"^[A-Z]{2,26}$")  # of examples without options


class _Options(NamedTuple):
    """The options of an example."""

    texts: Mapping[str, str]  # by letter; "" if only the letter is known
    letters: Mapping[str, str] = {}  # by number, if they are numbered


class MultipleChoiceJudge(RuleJudge[MultipleChoiceOptions, str]):
    """Scores 1 if the reply chooses the right option, by its letter or its text."""

    adapter = "multiple-choice"
    # 2: the last statement counts; 3: ticks, bold options, further languages; 4: doubts; 5: "(no)";
    # 6: options that are numbered, lower-case letters in more places, no option that only explains
    version = 6
    options_type = MultipleChoiceOptions

    def __init__(self, name: str, options: MultipleChoiceOptions) -> None:
        super().__init__(name, options)
        self._bare = _Options(dict.fromkeys(options.letters, ""))
        self.recognises = options.numbered_from is None  # no reply is a number

    def _extract(self, text: str, example: Example) -> str:
        try:
            letter = chosen_letter(text, *self._lettered(example))
        except AmbiguousError as error:
            raise unparsable(f"more than one choice ({error})", text) from None
        except ValueError as error:
            raise judge_failed(f"example `{example.id}`: {error}") from None
        if letter is None:
            raise unparsable("no choice", text)
        return letter

    def _lettered(self, example: Example) -> _Options:
        field = self.options.options_field
        if not isinstance(field, str):
            held = [example.inputs.get(name) for name in field]
            return _from_list([text for text in held if text is not None])
        value = example.inputs.get(field)
        if value is None:
            return self._bare
        if isinstance(value, str):  # a table's cell holds a list as JSON or as Python writes it
            with suppress(YamlProblem):
                value = parse_yaml(value)[0]
        if value and isinstance(value, list) and all(isinstance(o, dict) for o in value):
            value = {key: [option.get(key) for option in value] for key in ("label", "text")}
        if isinstance(value, Mapping):
            return _from_mapping(value)
        if isinstance(value, Sequence) and not isinstance(value, str):
            return _from_list(value)
        got = excerpt(str(value))
        raise ValueError(f"field `{field}` must hold a list of options, got {got!r}")

    def _target(self, reference: str, example: Example) -> str:
        (options, letters), written = self._lettered(example), _NORMALISE(reference)
        if self.options.numbered_from is not None:
            letters = _numbered(options, self.options.numbered_from)
        if written in letters:
            return letters[written]
        # A target may be an option's letter or its text. If it is both, of two different options
        # (options A: "B", B: "A"), no guess is made: the target decides every score of the example.
        texts = [letter for letter, text in options.items() if text and _NORMALISE(text) == written]
        letter = written.strip("()[]. ").upper()
        if len(texts) == 1 and texts[0] != letter in options:
            raise ValueError(
                f"it is ambiguous: the letter of one option, and the text of option {texts[0]}; "
                f"write `({letter})` or `({texts[0]})` for the letter"
            )
        if len(texts) == 1:
            return texts[0]
        with suppress(AmbiguousError):  # "B. Paris", "Answer: B"
            if letter := letter if letter in options else chosen_letter(reference, options) or "":
                return letter
        raise ValueError(
            f"it is neither one of the letters {''.join(options)} nor the text of an option; "
            "correct the dataset, or say `numbered_from` if it is the number of an option"
        )


def _numbered(letters: Iterable[str], first: int) -> dict[str, str]:
    return {str(number): letter for number, letter in enumerate(letters, first)}


def _from_list(texts: Sequence[Json]) -> _Options:
    if not 2 <= len(texts) <= len(ascii_uppercase):
        raise ValueError(f"there must be 2 to 26 options, got {len(texts)}")
    return _Options({letter: str(t) for letter, t in zip(ascii_uppercase, texts, strict=False)})


def _from_mapping(value: Mapping[str, Json]) -> _Options:
    labels, texts = value.get("label"), value.get("text")
    if isinstance(labels, Sequence) and isinstance(texts, Sequence):
        if len(labels) != len(texts):
            raise ValueError(f"got {len(labels)} labels for {len(texts)} texts of options")
        value = dict(zip(map(str, labels), texts, strict=True))
    options = {str(label).strip().upper(): str(text) for label, text in value.items()}
    for first in (0, 1):  # some rows of a dataset may be numbered, where others have letters
        letters = _numbered(ascii_uppercase[: len(options)], first)
        if [*options] == [*letters] and len(options) > 1:
            return _Options(_from_list([*options.values()]).texts, letters)
    if len(options) < 2 or not options.keys() <= set(ascii_uppercase):
        got = ", ".join(options)
        raise ValueError(f"options must have letters A to Z, or numbers from 0 or 1, got {got}")
    return _Options(options)
