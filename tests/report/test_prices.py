"""Prices, the objective and the costs in the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import nan

from bestarm_agent.config.goal_specs import ObjectiveSpec
from bestarm_agent.domain.spend import Spend
from bestarm_agent.engine.results.standing import CostLine, ObjectiveResult, Standing
from bestarm_agent.report.html_page import render_report
from bestarm_agent.stats.agreement import Measure
from tests.support.standings import changed, standing_with

SCORES = [[0.2] * 10, [0.6] * 10, [0.5] * 10, [0.9] * 10]
PRICES = (0.01, 0.1, 5.0, 20.0)


def priced(prices: Sequence[float | None] = PRICES, answer: int = 3) -> Standing:
    """Four candidates with prices; the third is dearer and worse than the second."""
    standing = standing_with(["a", "b", "c", "d"], SCORES)
    rows = []
    for row in standing.rows:
        mean = prices[row.index]
        price = Measure(nan if mean is None else mean, 0.0 if mean is None else 0.9 * mean, 30.0)
        usd = None if mean is None else mean
        rows.append(replace(row, price=price, price_source="study", usd_per_1000=usd))
    finding = ObjectiveResult(
        spec=ObjectiveSpec.model_validate("cheapest-within-epsilon"),
        answer=answer,
        established=False,
        margin=None,
        confidence=0.95,
    )
    return changed(standing, rows=tuple(rows), objective=finding, end="budget")


def page_of(standing: Standing) -> str:
    return render_report(standing, config=None, failures=[], sessions=[])


def test_the_report_says_what_was_asked_for_and_what_was_found() -> None:
    page = page_of(priced())
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert "Take d, the cheapest that is probably within 2 points of the best: " in text
    assert "too few to choose by" in text
    assert "$20.00 per 1,000 calls" in text
    assert "Prices: " in text


def test_the_report_shows_where_the_money_went() -> None:
    lines = (
        CostLine("openai: answered calls of candidates", Spend(calls=5, usd_nanos=3_000_000_000)),
        CostLine("judging", Spend(calls=2, usd_nanos=1_000_000_000)),
    )
    page = page_of(replace(priced(), costs=lines))
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert "openai: answered calls of candidates 5 0 $3.00" in text
    assert "judging 2 0 $1.00" in text
    assert "orker seconds" not in text, "an API has no workers"


def test_the_full_grid_is_priced_with_judging_and_the_answer_is_marked() -> None:
    standing = priced(answer=1)
    rows = [replace(row, spend=Spend(answers=10, usd_nanos=10**9)) for row in standing.rows]
    page = page_of(replace(standing, rows=tuple(rows)))
    n_pairs = len(rows) * standing.n_examples
    assert f"all answers: about ${n_pairs * 0.1:.2f}" in page
    [taken] = re.findall(r'<tr class="take">.*?</tr>', page, re.DOTALL)
    assert ">b<" in taken


def test_replies_from_the_cache_count_in_the_price_of_all_answers() -> None:
    standing = priced()
    rows = [replace(row, spend=Spend(answers=10), usd_per_1000=100.0) for row in standing.rows]
    page = page_of(replace(standing, rows=tuple(rows)))
    assert f"all answers: about ${len(rows) * standing.n_examples * 0.1:.2f}" in page
