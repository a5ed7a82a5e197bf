from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bestarm_agent.config.catalog import Catalog
from bestarm_agent.domain.values import Example, Json, Reply, Score
from bestarm_agent.errors import ConfigError
from bestarm_agent.judges.base import Judge
from bestarm_agent.judges.registry import JUDGES, create_judge

ScoreNow = Callable[[Judge, Example, Reply], Score]

ASKING = ("criteria", "g-eval", "pairwise", "reference-graded", "rubric")
SHIPPED = Catalog().names("judges")
# entries that hold another prompt for an adapter
PROMPTS = {
    "factuality": "reference-graded",
    "llm-rubric": "criteria",
    "model-graded-fact": "reference-graded",
    "model-graded-qa": "reference-graded",
    "prometheus": "rubric",
}
REQUIRED = {"regex": {"pattern"}, "ensemble": {"members"}, "python": {"function"}}


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "judges").mkdir()
    return tmp_path


def declare(study: Path, name: str, text: str) -> Catalog:
    (study / "judges" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return Catalog(study)


@pytest.mark.parametrize("name", sorted(JUDGES.built_in))
def test_the_catalogue_states_only_options_that_differ_from_the_defaults(name: str) -> None:
    entry = Catalog().shipped("judges", name)
    assert entry.data["adapter"] == name
    declared = entry.data.get("options", {})
    assert isinstance(declared, dict)
    fields = JUDGES.load(name).options_type.model_fields
    assert all(fields[option].is_required() for option in declared)
    required = {option for option, field in fields.items() if field.is_required()}
    asks = "model" in fields and fields["model"].is_required()
    given = {"model"} if asks else REQUIRED.get(name, set())
    assert required == given | set(declared)


def test_every_shipped_judge_has_an_adapter() -> None:
    adapters = {name: Catalog().get("judges", name).data["adapter"] for name in SHIPPED}
    assert set(JUDGES.names()) == {name for name, adapter in adapters.items() if name == adapter}
    others = {name: adapter for name, adapter in adapters.items() if name != adapter}
    assert others == PROMPTS


def test_names_and_options_of_the_study_count_most(study: Path, score_now: ScoreNow) -> None:
    catalog = declare(
        study,
        "gsm",
        "adapter: regex\noptions: {pattern: '#### ([0-9]+)', group: 1}\n",
    )
    judge = create_judge("gsm", {}, catalog)
    assert judge.name == "gsm"
    example, reply = Example("e1", {}, "46"), Reply("#### 46: 6")
    assert score_now(judge, example, reply).value == 1.0
    digit = create_judge("gsm", {"pattern": "([0-9])$"}, catalog)
    assert score_now(digit, example, reply).value == 0.0


def test_a_study_may_change_a_shipped_judge_in_part(study: Path, score_now: ScoreNow) -> None:
    catalog = declare(study, "exact", "adapter: exact\noptions: {normalise: [strip]}\n")
    example, reply = Example("e1", {}, "Paris"), Reply("paris")
    assert score_now(create_judge("exact", {}, catalog), example, reply).value == 0.0
    assert score_now(create_judge("exact", {}, Catalog()), example, reply).value == 1.0


def test_the_digest_covers_adapter_and_options_but_not_the_name(study: Path) -> None:
    catalog = declare(study, "mine", "adapter: exact\ndescription: Mine.\n")
    exact = create_judge("exact", {}, catalog)
    assert create_judge("mine", {}, catalog).digest == exact.digest
    assert create_judge("contains", {}, catalog).digest != exact.digest
    assert create_judge("exact", {"max_chars": 200}, catalog).digest != exact.digest
    reordered = {"normalise": ["whitespace", "unicode", "case", "punctuation", "case"]}
    assert create_judge("exact", reordered, catalog).digest == exact.digest


def test_digests_stay_the_same_between_versions() -> None:
    """Scores of two digests never mix, so an unintended change would orphan stored scores."""
    catalog = Catalog()
    needed: dict[str, dict[str, Json]] = {
        "checks": {"checks": ["exact"]},
        "regex": {"pattern": "a"},
        "json-schema": {"json_schema": {"type": "object"}},
        "ensemble": {"members": [{"name": "exact"}, {"name": "numeric"}]},
        **{name: {"model": "openai/m"} for name in (*ASKING, *PROMPTS)},
    }
    # No run has recorded the digest of a scorer that is new: it needs no line here.
    recorded = {
        "bleu": "19922f1ef138c699",
        "checks": "af6f2e0e31e9e8e0",
        "chrf": "20224aeb00c9640f",
        "contains": "f855a8a32c07193f",
        "criteria": "b01b2655d035b027",
        "ensemble": "0c52ed672d51db3a",
        "exact": "8fabb583d0721ce3",
        "factuality": "2d1328ae911910fb",
        "g-eval": "d206df26094454d3",
        "json-schema": "40f09f51c0f9b0fc",
        "llm-rubric": "1e420285df1dbf3b",
        "math": "7d7bf40686ab414c",
        "model-graded-fact": "4a7cf69e3daa6993",
        "model-graded-qa": "90f47252ae76c527",
        "multiple-choice": "90ffa25fdce9801c",
        "numeric": "1cda33cea3a5c3c1",
        "pairwise": "a6a79fac5e8af351",
        "people": "ed599d0c44ffaeb9",
        "prometheus": "3d0a8804dbbb3427",
        "recorded": "44dabc172ba30efd",
        "reference-graded": "1b6f33fd7dda9ea8",
        "regex": "63f0dd465e25bf23",
        "rouge": "7e0bf4be6f404149",
        "rubric": "64433f991bf5e502",
        "squad-exact": "1143bd4efeef8a58",
        "token-f1": "f6b93cb7d445d3e5",
        "tool-call": "182070b54d24d114",
    }
    made = {name: create_judge(name, needed.get(name, {}), catalog) for name in recorded}
    assert {name: judge.digest for name, judge in made.items()} == recorded


def test_tolerances_of_equal_value_have_one_digest() -> None:
    catalog = Catalog()
    written = [create_judge("numeric", {"absolute_tolerance": t}, catalog) for t in (0.1, "0.10")]
    assert written[0].digest == written[1].digest


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("options: {}\n", {}, r"^judges/mine\.yaml: `adapter` is missing"),
        (
            "description: x\nadapter: exakt\n",
            {},
            r"^judges/mine\.yaml, line 2: there is no judge adapter `exakt`; did you mean `exact`",
        ),
        (
            "adapter: exact\nopts: {}\n",
            {},
            r"^judges/mine\.yaml, line 2: unknown option `opts`; did you mean `options`\?",
        ),
        (
            "adapter: exact\noptions:\n  normalize: []\n",
            {},
            r"^judge `mine` \(judges/mine\.yaml\), line 3: unknown option `normalize`; did you mea",
        ),
        (
            "adapter: exact\noptions:\n  normalise: [upper]\n",
            {},
            r"^judge `mine` \(judges/mine\.yaml\), line 3: `normalise\[0\]` must be 'unicode'",
        ),
        (
            "adapter: exact\noptions:\n  max_chars: none\n",
            {"max_chars": 10},
            r"^judge `mine` \(judges/mine\.yaml\): `max_chars` must be at least 100, got 10",
        ),
    ],
)
def test_mistakes_in_a_file_are_named_with_their_line(
    study: Path, text: str, options: dict[str, object], message: str
) -> None:
    catalog = declare(study, "mine", text)
    with pytest.raises(ConfigError, match=message):
        create_judge("mine", options, catalog)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("exat", {}, "no judge is called `exat`; did you mean `exact`?"),
        ("exact", {"normalize": []}, "judge `exact`: unknown option `normalize`; did you mean"),
        ("exact", {"max_chars": 10}, "judge `exact`: `max_chars` must be at least 100, got 10"),
        ("exact", {"after": " "}, "judge `exact`: `after` must match the pattern `"),
        ("numeric", {"absolute_tolerance": -1}, "`absolute_tolerance` must be at least 0, got -1"),
        ("numeric", {"absolute_tolerance": "NaN"}, "`absolute_tolerance` must be finite"),
        ("recorded", {"x": 1}, "judge `recorded`: unknown option `x`"),
    ],
)
def test_mistakes_in_the_study_are_explained(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        create_judge(name, options, Catalog())  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
