r"""Tell what a model thought from what it answered, where a server sends both as one text.

Templates and servers write the tags of ``_NAMES`` around the thoughts, or special tokens; the
opening one may be part of the prompt, so that a reply has the closing one alone. The forms are
those of vLLM's and SGLang's reasoning parsers (``[THINK]``: Mistral, ``<seed:think>``: Seed-OSS,
``◁think▷``: Kimi, ``<|channel|>``: gpt-oss, whose channels' names also come bare, where a server
drops special tokens).
"""

from __future__ import annotations

import re

_NAMES = r"(?:think|thinking|thoughts?|reasoning|scratchpad|seed:think)"
# A bare "analysis" counts only at the very beginning and before a capital ("analysisWe need"): that
# is what is left of gpt-oss' channel where a server drops special tokens. An answer may well begin
# with the word itself ("analysis of the data"). The last alternatives are the tokens of Cohere and
# OpenThinker, of Gemma 4 and MedGemma.
_OPENING = re.compile(
    rf"<{_NAMES}(?:\s[^<>]*)?> | \[THINK\] | ◁think▷"
    r"| (?:<\|start\|>assistant)?<\|channel\|>\s*analysis\s*<\|message\|>"
    r"| \A (?-i:analysis(?=[A-Z]))"
    r"| <\|(?:(?:start|begin)_(?:of_)?)?(?:thinking|think|thought)\|>"
    r"| <(?:\|channel|unused94)>thought\b",
    re.IGNORECASE | re.VERBOSE,
)
_CLOSING = re.compile(
    rf"</\s*{_NAMES}\s*> | \[/THINK\] | ◁/think▷"
    r"| <\|channel\|>\s*final\s*(?:<\|constrain\|>\s*\w+\s*)?<\|message\|>"
    r"| (?-i:assistantfinal(?=\S))"
    r"| <\|(?:end_(?:of_)?|/)(?:thinking|think|thought)\|>"
    r"| <(?:channel\||unused95)> | \[begin\ final\ response\]",
    re.IGNORECASE | re.VERBOSE,
)
# Tags of other names, where a reply begins with them and goes on after them: <analysis>, <cot>,
# <reflection>, <antThinking>, <mm:think>, Open WebUI's <details type="reasoning">; and the two
# sentences of Granite. Elsewhere such a tag may well be a part of the answer, as are <reason> and
# <rationale> anywhere: many prompts ask for them.
_FIRST = re.compile(
    r"(?:\s*(?:<((?:\w{1,20}[:_])?(?:\w{0,20}think\w{0,20}|\w{0,20}thoughts?|reasoning|cot"
    r"|reflection|scratch_?pad|analysis|monologue)(?:_(?:process|steps|content|block))?"
    r"|details(?=\s[^<>]*reasoning))(?:\s[^<>]*)?>.*?</\1\s*>"
    r"|here(?:'s| is) my thought process:.*?here(?:'s| is) my response:))+(?=\s*\S)",
    re.IGNORECASE | re.DOTALL,
)
# What a server that keeps special tokens leaves around an answer. Their form tells them from words
# and from HTML: a bar inside the bracket (<|im_end|>, DeepSeek's <｜end▁of▁sentence｜>, Gemma 4's
# <turn|>, EXAONE's [|endofturn|]), or a name that says what begins or ends there (<end_of_turn>,
# <eos>, <seed:eos>). The names that have no form are Llama's and Mistral's <s> and [INST], and
# padding. A role may follow: "<|im_start|>assistant". A struck "<s>Lyon</s> Paris" begins with no
# token, and what opens reasoning is none of these.
_TOKENS = re.compile(
    rf"(?: (?=[<[])(?!{_OPENING.pattern} | <s>[^<]*</s>\s*\S)"
    r"(?: <[|｜][^<>|｜\n]{1,40}[|｜]?> | <\w{1,40}[|｜]> | \[\|\w{4,40}\|\] | </?s> | \[/?INST\]"
    r"| [<[](?:\w{1,9}:)?(?:(?:end|begin|start)_?of_?\w{1,20}|im_(?:start|end)|eo[a-z]|bos|pad)[]>]"
    r"| \[END\ FINAL\ RESPONSE\]) (?:(?:assistant|model)(?=\s|<))? \s*)+",
    re.IGNORECASE | re.VERBOSE,
)
# Fenced blocks, also one that never ends, and `spans`: a reply that explains a tag quotes it.
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
_BLANK = "\ufeff \t\r\n"


def parted(text: str) -> tuple[str, str, bool]:
    r"""Return the reasoning of a reply, its answer, and whether it ended while the model thought.

    The answer is what follows the last closing tag, or all that stands outside of reasoning if
    nothing follows. A reply that begins with a brace answers at once: tags in it are quoted, as
    are those in code, between quotes, or within a sentence of a reply that opened none.

    Example:
        >>> parted("<think>A? No.</think>\n\nIt is B."), parted("<think>A? No, ")[1:]
        (('<think>A? No.</think>', 'It is B.', False), ('', True))
        >>> parted("The tag `</think>` ends it."), parted("B<|im_end|>")[1]
        (('', 'The tag `</think>` ends it.', False), 'B')
    """
    thought, answer, is_cut = _parted(text)
    # Some models think a second time right away. An answer that is stored is read again, so what is
    # found then is found now.
    while thought and (again := _parted(answer))[0]:
        thought, answer, is_cut = thought + again[0], again[1], again[2]
    return thought, answer, is_cut


def _parted(text: str) -> tuple[str, str, bool]:
    bare = _bare(text) or text
    begun = bare.lstrip(_BLANK)
    # JSON was asked for and came: a tag inside is a value.
    if begun.startswith("{"):
        return "", bare, False
    opened = _OPENING.match(begun) is not None
    if not opened and (first := _FIRST.match(begun)):
        return first[0], begun[first.end() :].strip(_BLANK), False
    # of what it thought, a model quotes as it likes; few replies hold a tag at all
    as_it_is = opened or not _CLOSING.search(text)
    read = text if as_it_is else _CODE.sub(lambda code: " " * len(code[0]), text)
    closings = list(_CLOSING.finditer(read))
    tags = [tag for tag in closings if not _is_quoted(tag, within_sentences=not opened)]
    # All closing tags look quoted ("'</think>'"), yet the model began by thinking: one of them
    # ended it.
    if opened and not tags:
        tags = closings
    if not tags:
        return (text, "", True) if opened else ("", bare, False)
    end = tags[-1].end()
    if answer := _bare(text[end:]).strip(_BLANK):
        return text[:end], answer, False
    # It thought again after its answer, or closed that, too, or gave none. Tags more than were
    # opened, in the prompt or here, and more than are spoken of, close nothing.
    tags = [tag for tag in tags if not _is_quoted(tag, within_sentences=True)]
    spare = len(tags) - len(_OPENING.findall(read)) - (not opened)
    said = text[: tags[-spare].start()] if spare > 0 else text
    return text, _bare(_outside(said)).strip(_BLANK), False


def _bare(text: str) -> str:
    """Return an answer without the special tokens around it."""
    begins, ends = len(text) - len(text.lstrip(_BLANK)), len(text)
    # run by run, so that each token of a reply full of them is read once
    return _TOKENS.sub(
        lambda run: run[0] if begins < run.start() and run.end() < ends else "", text
    )


def _is_quoted(tag: re.Match[str], *, within_sentences: bool) -> bool:
    before = tag.string[max(0, tag.start() - 2) : tag.start()]
    after = tag.string[tag.end() : tag.end() + 2]
    if (before[-1:], after[:1]) in {("'", "'"), ('"', '"'), ("`", "`"), ("“", "”")}:
        return True
    is_word = re.fullmatch(r"\S ", before) and re.match(r" [a-z]|[.,;:]", after)
    return within_sentences and is_word is not None


def _outside(text: str) -> str:
    """Return what stands outside of pairs of tags, and after a closing one that none opened."""
    kept, at = "", 0
    while opening := _OPENING.search(text, at):
        kept += text[at : opening.start()]
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            return kept
        at = closing.end()
    # A closing tag that none opened belongs to an opening one in the prompt: what precedes it is
    # thought.
    lone = [tag.end() for tag in _CLOSING.finditer(text, at)]
    return text[lone[-1] :] if lone else kept + text[at:]
