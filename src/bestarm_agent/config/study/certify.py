"""The `certify` part of a study: the target, the autoevaluator, the labels."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from bestarm_agent.config.fields import StudyModel
from bestarm_agent.config.study.dataset_and_scorer import ScorerSpec
from bestarm_agent.config.study.value_types import Count, Expandable


class CertifySpec(StudyModel):
    """Asks for the cheapest candidate that is good enough instead of the best one.

    The study's `scorer` is the trusted judge, which scores replies to labelled examples. A loss is
    one minus a score.
    """

    risk: Annotated[float, Strict(), Field(gt=0, lt=1)] = Field(
        description="Largest mean loss in (0, 1) that is good enough."
    )
    confidence: Annotated[float, Strict(), Field(gt=0, lt=1)] = Field(
        0.9, description="Probability in (0, 1) that no bad candidate is certified."
    )
    judge: ScorerSpec = Field(
        description="The autoevaluator, which scores every reply, or just its name."
    )
    labels: Expandable | None = Field(
        None,
        description="JSON lines with `id` and `target`: the labels, in the place of the answers "
        "that the dataset holds. Left out: examples with an answer are the labelled ones. "
        "`${VARIABLE}` is expanded.",
    )
    order: Literal["cost", "prompt", "given"] = Field(
        "cost",
        description="How candidates are tried: from the dearest to the cheapest, from the longest "
        "to the shortest prompt, or as they are given.",
    )
    method: Literal["r-eval", "r-autoeval", "r-autoeval+"] = Field(
        "r-autoeval+", description="How evidence is gathered (docs/certification.md)."
    )
    betting: Literal["portfolio", "plug-in"] = Field("portfolio", description="How bets are made.")
    factors: Annotated[int, Strict(), Field(ge=2)] = Field(
        10, description="Reliance factors of `r-autoeval+`."
    )
    per_label: Count | None = Field(
        None,
        description="Unlabelled examples per label. Left out: as many as there are; 3 if all "
        "examples are labelled.",
    )
    max_labels: Count | None = Field(None, description="Most labels that may be used.")
    correction: Literal["sequence", "bonferroni"] = Field(
        "sequence",
        description="For many candidates: one after the other until the first that fails, or from "
        "the end until the first that passes, each at its share of the error probability.",
    )
    people: bool = Field(
        False,
        description="Whether scores that people gave to single answers (the study's `labels`) take "
        "the place of the trusted scorer's.",
    )
