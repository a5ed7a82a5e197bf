"""Reference metrics: how near a reply comes to a reference answer, as a number in [0, 1].

BLEU, chrF and ROUGE come from their reference implementations (extra ``metrics``). Running code
against unit tests is no metric here: it needs a sandbox, which this package does not have.
"""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Literal

from pydantic import Field

from bestarm_agent.domain.example import Example
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.rule import RuleJudge, RuleOptions, references, unparsable

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def extra(module: str, judge: str) -> ModuleType:
    """Import a module of the extra ``metrics``; raises ConfigError if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError(
            f"judge `{judge}` needs the extra `metrics`; run: pip install 'bestarm-agent[metrics]'"
        ) from None


class MetricJudge(RuleJudge[RuleOptions, str]):
    """Scores a reply by its likeness to the references."""

    options_type: ClassVar[type[RuleOptions]] = RuleOptions

    def _extract(self, text: str, example: Example) -> str:
        if not text.strip():
            raise unparsable("nothing", text)
        return text

    def _agrees(self, answer: str, example: Example) -> float:
        return min(1.0, max(0.0, self._likeness(answer, references(example))))

    @abstractmethod
    def _likeness(self, answer: str, targets: Sequence[str]) -> float:
        """How near the answer comes to the nearest reference, or to all together."""


class TokenF1Judge(MetricJudge):
    """Token F1 as SQuAD counts it, with the nearest reference.

    References:
        Rajpurkar et al. 2016, "SQuAD", section 6.1, and its evaluation script 1.1.

    Example:
        >>> squad_f1("The cat sat", "a cat sat down")
        0.8
    """

    adapter: ClassVar[str] = "token-f1"

    def _likeness(self, answer: str, targets: Sequence[str]) -> float:
        return max(squad_f1(answer, target) for target in targets)


class SquadExactJudge(MetricJudge):
    """Exact match as SQuAD counts it: but for case, punctuation, articles and white space."""

    adapter: ClassVar[str] = "squad-exact"

    def _likeness(self, answer: str, targets: Sequence[str]) -> float:
        return float(any(squad_form(answer) == squad_form(target) for target in targets))


class BleuOptions(RuleOptions):
    """Options of ``bleu``.

    Attributes:
        tokenize: sacrebleu's tokeniser; "13a" is WMT's.
        lowercase: whether case is ignored.
    """

    tokenize: Literal["13a", "intl", "zh", "char", "none"]
    lowercase: bool


class BleuJudge(MetricJudge):
    """Sentence BLEU by sacrebleu, exponential smoothing, effective order.

    References:
        Post 2018, "A Call for Clarity in Reporting BLEU Scores"; Chen & Cherry 2014 for smoothing.
    """

    adapter: ClassVar[str] = "bleu"
    options_type: ClassVar[type[RuleOptions]] = BleuOptions
    options: BleuOptions

    def __init__(self, name: str, options: BleuOptions) -> None:
        super().__init__(name, options)
        make = extra("sacrebleu.metrics", name).BLEU
        self._metric: Any = make(
            tokenize=options.tokenize, lowercase=options.lowercase, effective_order=True
        )

    def _likeness(self, answer: str, targets: Sequence[str]) -> float:
        return float(self._metric.sentence_score(answer, list(targets)).score) / 100


class ChrfOptions(RuleOptions):
    """Options of ``chrf``.

    Attributes:
        word_order: 0 is chrF, 2 is chrF++.
    """

    word_order: int = Field(ge=0, le=4)


class ChrfJudge(MetricJudge):
    """chrF by sacrebleu: F-score of character n-grams, with the nearest reference.

    References:
        Popović 2015, "chrF"; Popović 2017, "chrF++".
    """

    adapter: ClassVar[str] = "chrf"
    options_type: ClassVar[type[RuleOptions]] = ChrfOptions

    def __init__(self, name: str, options: ChrfOptions) -> None:
        super().__init__(name, options)
        make = extra("sacrebleu.metrics", name).CHRF
        self._metric: Any = make(word_order=options.word_order)

    def _likeness(self, answer: str, targets: Sequence[str]) -> float:
        return float(self._metric.sentence_score(answer, list(targets)).score) / 100


class RougeOptions(RuleOptions):
    """Options of ``rouge``.

    Attributes:
        variant: n-grams (rouge1, rouge2), longest common subsequence of the text (rougeL), or line
            by line (rougeLsum).
        stemmer: whether words are reduced by Porter's stemmer.
    """

    variant: Literal["rouge1", "rouge2", "rougeL", "rougeLsum"]
    stemmer: bool


class RougeJudge(MetricJudge):
    """ROUGE's F-measure by rouge-score, with the nearest reference.

    References:
        Lin 2004, "ROUGE".
    """

    adapter: ClassVar[str] = "rouge"
    options_type: ClassVar[type[RuleOptions]] = RougeOptions

    def __init__(self, name: str, options: RougeOptions) -> None:
        super().__init__(name, options)
        make = extra("rouge_score.rouge_scorer", name).RougeScorer
        scorer: Any = make([options.variant], use_stemmer=options.stemmer)
        self._score: Callable[[Sequence[str], str], Any] = scorer.score_multi
        self._variant = options.variant

    def _likeness(self, answer: str, targets: Sequence[str]) -> float:
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
    """F1 of the tokens of two texts, each token counted as often as it occurs."""
    said, meant = squad_form(answer).split(), squad_form(target).split()
    if not said or not meant:
        return float(said == meant)
    common = (Counter(said) & Counter(meant)).total()
    return 2 * common / (len(said) + len(meant))
