"""Score the similarity of a reply to a reference answer, in [0, 1].

BLEU, chrF and ROUGE come from their reference implementations (extra ``metrics``).
"""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

import regex
from pydantic import Field

from bestarm_agent.domain.values import Example
from bestarm_agent.judges.base import references
from bestarm_agent.judges.rule import RuleOptions, WholeTextJudge, unicode_form
from bestarm_agent.plugins import optional

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
# In scripts without spaces each letter with its marks is a word ("東京" is two); in all others a
# run of letters, digits and marks is one ("l'été 2024" is three).
_WORDS = regex.compile(
    rf"[[\p{{L}}\p{{N}}]&&[{_UNSPACED}]]\p{{M}}*|[[\p{{L}}\p{{N}}\p{{M}}]--[{_UNSPACED}]]+",
    regex.VERSION1,
)
# English articles only, as in SQuAD's script: "the cat" equals "cat".
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def extra(module: str, judge: str) -> Any:  # noqa: ANN401 - any module
    """Import a module of the extra ``metrics``; raises ConfigError if it is not installed."""
    return optional(module, "metrics", f"judge `{judge}`")


class MetricJudge(WholeTextJudge[RuleOptions]):
    """Scores a reply by its similarity to the references."""

    options_type = RuleOptions
    recognises = True

    def _agrees(self, answer: str, example: Example) -> float:
        return min(1.0, max(0.0, self._similarity(answer, references(example))))

    @abstractmethod
    def _similarity(self, answer: str, targets: Sequence[str]) -> float:
        """Return the similarity to the best-matching reference, or to all together."""


class TokenF1Judge(MetricJudge):
    """Token F1 as SQuAD counts it (Rajpurkar et al. 2016, section 6.1; evaluation script 1.1).

    Example:
        >>> squad_f1("The cat sat", "a cat sat down")
        0.8
    """

    adapter = "token-f1"
    version = 2  # 2: no tokens are 0, as in SQuAD 1.1

    def _similarity(self, answer: str, targets: Sequence[str]) -> float:
        return max(squad_f1(answer, target) for target in targets)


class SquadExactJudge(MetricJudge):
    """Exact match as SQuAD counts it: without case, punctuation, articles and white space."""

    adapter = "squad-exact"

    def _similarity(self, answer: str, targets: Sequence[str]) -> float:
        return float(any(squad_form(answer) == squad_form(target) for target in targets))


class BleuOptions(RuleOptions):
    """Options of ``bleu``; ``tokenize`` is sacrebleu's tokeniser, "13a" is WMT's."""

    tokenize: Literal["13a", "intl", "zh", "char", "none"] = "13a"
    lowercase: bool = False


class SacreBleuJudge(MetricJudge):
    """Scores by a metric of sacrebleu."""

    _metric: Any

    def _similarity(self, answer: str, targets: Sequence[str]) -> float:
        return float(self._metric.sentence_score(answer, list(targets)).score) / 100


class BleuJudge(SacreBleuJudge):
    """Sentence BLEU by sacrebleu, exponential smoothing, effective order.

    Post 2018, "A Call for Clarity in Reporting BLEU Scores"; Chen & Cherry 2014 for smoothing.
    """

    adapter = "bleu"
    options_type = BleuOptions
    options: BleuOptions

    def __init__(self, name: str, options: BleuOptions) -> None:
        super().__init__(name, options)
        make = extra("sacrebleu.metrics", name).BLEU
        self._metric = make(
            tokenize=options.tokenize, lowercase=options.lowercase, effective_order=True
        )


class ChrfOptions(RuleOptions):
    """Options of ``chrf``; ``word_order`` 0 is chrF, 2 is chrF++."""

    word_order: int = Field(0, ge=0, le=4)


class ChrfJudge(SacreBleuJudge):
    """chrF (Popović 2015, 2017 for chrF++) by sacrebleu, with the best-matching reference."""

    adapter = "chrf"
    options_type = ChrfOptions

    def __init__(self, name: str, options: ChrfOptions) -> None:
        super().__init__(name, options)
        make = extra("sacrebleu.metrics", name).CHRF
        self._metric = make(word_order=options.word_order)


class RougeOptions(RuleOptions):
    """Options of ``rouge``: n-grams, or longest common subsequence (by line: rougeLsum)."""

    variant: Literal["rouge1", "rouge2", "rougeL", "rougeLsum"] = "rougeL"
    stemmer: bool = True  # whether words are reduced by Porter's stemmer


class RougeJudge(MetricJudge):
    """ROUGE's F-measure (Lin 2004) by rouge-score, with the best-matching reference.

    Words of any script count, where rouge-score itself drops all but ``a-z0-9``; in scripts that
    write no spaces each character is one.
    """

    adapter = "rouge"
    version = 2  # 2: words of all scripts
    options_type = RougeOptions

    def __init__(self, name: str, options: RougeOptions) -> None:
        super().__init__(name, options)
        make = extra("rouge_score.rouge_scorer", name).RougeScorer
        stemmer: Any = extra("nltk.stem.porter", name).PorterStemmer()
        self._stem: Callable[[str], str] = stemmer.stem if options.stemmer else str
        scorer: Any = make([options.variant], tokenizer=self)
        self.recognises = options.variant != "rouge2"  # of one word it is 0
        self._score: Callable[[Sequence[str], str], Any] = scorer.score_multi
        self._variant = options.variant

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text, as rouge-score does where it is ASCII."""
        words = _WORDS.findall(unicode_form(text).lower())
        # Porter's rules are for English, and rouge-score leaves words of up to three letters as
        # they are.
        return [self._stem(word) if len(word) > 3 and word.isascii() else word for word in words]

    def _similarity(self, answer: str, targets: Sequence[str]) -> float:
        return float(self._score(targets, answer)[self._variant].fmeasure)


def squad_form(text: str) -> str:
    """Return text as SQuAD's script compares it.

    Example:
        >>> squad_form("The  Eiffel-Tower!")
        'eiffeltower'
    """
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def squad_f1(answer: str, target: str) -> float:
    """Return the F1 of the tokens of two texts, each token counted as often as it occurs.

    It is 0 where one has no token, such as "the" (as in version 1.1 of the script).
    """
    answer_words, target_words = squad_form(answer).split(), squad_form(target).split()
    if not answer_words or not target_words:
        return 0.0
    common = (Counter(answer_words) & Counter(target_words)).total()
    return 2 * common / (len(answer_words) + len(target_words))
