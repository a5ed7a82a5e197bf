from __future__ import annotations

import types
import typing
from dataclasses import is_dataclass, replace
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.domain.events import (
    Asked,
    Attempted,
    BudgetSet,
    CandidatesAdded,
    CandidatesBarred,
    Event,
    Proposed,
    Resumed,
    Settled,
    Started,
    Stopped,
    Told,
    ranges_of,
)
from bestarm_agent.domain.redaction import is_secret_name
from bestarm_agent.domain.spend import Budget, Spend, Usage
from bestarm_agent.domain.values import (
    Candidate,
    Example,
    Failure,
    Json,
    Outcome,
    Position,
    PromptTemplate,
    Reply,
    Score,
    Token,
    Vote,
    clean_text,
)
from bestarm_agent.errors import StoreError, StoreVersionError
from bestarm_agent.store.codec import dump_reply, event_of, line_of, load_reply
from tests.support.store_runs import (
    AT,
    asked,
    failed,
    grid,
    reply,
    small_run,
    started,
    told,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=8).map(clean_text)  # surrogates that stand alone are replaced
names = texts.filter(lambda name: not is_secret_name(name))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
st.register_type_strategy(float, finite)
st.register_type_strategy(str, texts)
objects = st.dictionaries(names, json_values, max_size=3)
shots = st.lists(st.builds(Example, id=texts, inputs=objects, reference=texts), max_size=2)
st.register_type_strategy(
    PromptTemplate,
    st.builds(PromptTemplate, texts, texts, messages=st.just(()), shots=shots.map(tuple)),
)
whole_caps = st.none() | st.integers(min_value=0)
second_caps = st.none() | st.floats(min_value=0, allow_nan=False, allow_infinity=False)
four_caps = (whole_caps,) * 4
st.register_type_strategy(Budget, st.builds(Budget, *four_caps, second_caps, second_caps))
counts = st.integers(0, 10**15)
amounts = st.floats(0, 1e15)
shares = st.floats(0, 1)
st.register_type_strategy(
    Usage, st.builds(Usage, counts, st.just(0), cache_write=counts, output=counts, reasoning=counts)
)
st.register_type_strategy(Vote, st.builds(Vote, texts, shares, texts, texts))
measures = st.lists(st.none() | shares, max_size=3).map(tuple)
votes = st.lists(st.from_type(Vote), max_size=3).map(tuple)
optional = st.none() | texts
st.register_type_strategy(
    Score, st.builds(Score, shares, optional, votes, st.none() | shares, measures)
)
st.register_type_strategy(Candidate, st.builds(Candidate, params=objects))
ends = st.tuples(st.from_type(Score), st.none()) | st.tuples(st.none(), st.from_type(Failure))
OUTCOMES = st.tuples(ends, st.builds(Outcome, score=st.just(Score(1.0)), failure=st.none())).map(
    lambda drawn: replace(drawn[1], score=drawn[0][0], failure=drawn[0][1])
)
st.register_type_strategy(Outcome, OUTCOMES)
strings = st.dictionaries(texts, texts, max_size=3)
st.register_type_strategy(Stopped, st.builds(Stopped, broken=strings))
REPLIES = st.builds(
    Reply,
    sent=objects,
    usd_nanos=st.none() | counts,
    seconds=amounts,
    gpu_seconds=amounts,
    score=st.none() | shares,
    calls=counts,
)
st.register_type_strategy(Started, st.builds(Started, config=objects, base=st.just("..")))
EVENTS = st.one_of([st.from_type(cls) for cls in get_args(Event)])


@given(EVENTS)
def test_every_event_comes_back_equal(event: Event) -> None:
    assert event_of(line_of(event)) == event


@given(REPLIES)
def test_every_reply_comes_back_equal(value: Reply) -> None:
    assert load_reply(dump_reply(value)) == value


@pytest.mark.parametrize("event", [*small_run(), *grid(3, 5)])
def test_sample_events_come_back_equal(event: Event) -> None:
    assert event_of(line_of(event)) == event


# A change here makes existing stores unreadable: the version of the layout has to rise.
FORMAT: list[tuple[Event, str, str]] = [
    (
        started(),
        "started",
        '{"name":"study","at":"2026-11-21T09:30:15.250000Z","version":"0.1.0","config":'
        '{"selector":{"name":"ucb-e","seed":7}},"base":"..","judge":"d1"}',
    ),
    (
        grid(2, 1)[0],
        "candidates-added",
        '{"candidates":[{"provider":"hf","model":"model-0","prompt":{"name":"plain","text":'
        '"{{ question }}="},"params":{"temperature":0.0},"label":"model 0"},{"provider":"hf",'
        '"model":"model-1","prompt":{"name":"chat","messages":[{"role":"user","content":'
        '"{{ question }}"}]},"params":{"temperature":0.1},"label":"model 1"}],'
        '"costs":[0.25,null],"prices":["study",null]}',
    ),
    (grid(2, 1)[1], "examples-added", '{"ids":["example-0"],"digests":["0000000000000000"]}'),
    (
        BudgetSet(Budget(usd_nanos=5, seconds=60.5)),
        "budget-set",
        '{"budget":{"usd_nanos":5,"seconds":60.5}}',
    ),
    (
        asked(7),
        "asked",
        '{"seq":7,"candidate":0,"example":7,"reason":"ucb","excluded":[[1,1]]}',
    ),
    (
        told(7),
        "told",
        '{"seq":7,"outcome":{"score":{"value":1.0,"answer":"46","votes":[{"by":"openai/m","value":1.0,'
        '"said":"7","why":"right"}],"gold":0.5},"spend":{"answers":1,"calls":1,"tokens":12,'
        '"usd_nanos":1500,"gpu_seconds":0.125},"judge_spend":{"calls":1,"tokens":5,"usd_nanos":'
        '700},"lost_spend":{"calls":1,"usd_nanos":200},"reply_key":"key-7","usage":{"input":9,'
        '"cached":4,"output":3,"reasoning":1},"seconds":0.5,"usd_nanos":600},"score":1.0}',
    ),
    (
        failed(8),
        "told",
        '{"seq":8,"outcome":{"failure":{"kind":"timeout","blame":"provider","message":"no answer"},'
        '"spend":{"calls":3},"seconds":1.5},"score":null}',
    ),
    (
        CandidatesBarred((1,), "too dear"),
        "candidates-barred",
        '{"candidates":[1],"reason":"too dear"}',
    ),
    (
        Stopped(AT, "budget", 2.5, ("p/m ignores it",)),
        "stopped",
        '{"at":"2026-11-21T09:30:15.250000Z","reason":"budget","seconds":2.5,'
        '"remarks":["p/m ignores it"]}',
    ),
    (
        Resumed(AT, "0.1.0"),
        "resumed",
        '{"at":"2026-11-21T09:30:15.250000Z","version":"0.1.0"}',
    ),
    (
        Attempted(None, "key", Spend(calls=1, tokens=9), priced=False),
        "attempted",
        '{"seq":null,"key":"key","cost":{"calls":1,"tokens":9},"priced":false}',
    ),
    (
        Settled(3, "", Spend(calls=1)),
        "settled",
        '{"seq":3,"key":"","cost":{"calls":1}}',
    ),
    (Proposed(2), "proposed", '{"rounds":2}'),
]


@pytest.mark.parametrize(("event", "tag", "text"), FORMAT)
def test_the_format_is_what_stored_runs_hold(event: Event, tag: str, text: str) -> None:
    assert line_of(event) == (tag, text)
    assert event_of((tag, text)) == event


def test_the_format_of_replies() -> None:
    assert dump_reply(reply()) == (
        '{"text":"46","finish":"length","usage":{"input":9,"output":3},"usd_nanos":1500,'
        '"seconds":0.5,"gpu_seconds":0.125,"model":"model-0-2026","request_id":"req-1",'
        '"score":0.5}'
    )
    with_logprobs = Reply("m", logprobs=(Position(Token("m", -0.5), (Token("M", -1.0),)),))
    assert dump_reply(with_logprobs) == (
        '{"text":"m","logprobs":[{"chosen":{"text":"m","logprob":-0.5},'
        '"alternatives":[{"text":"M","logprob":-1.0}]}]}'
    )
    assert load_reply('{"text": "46"}') == Reply("46")


def test_a_usual_pair_takes_few_bytes() -> None:
    outcome = Outcome(
        Score(1.0, "46"),
        spend=Spend(answers=1, calls=1, tokens=419, usd_nanos=54_321),
        reply_key="0123456789abcdef0123456789abcdef",
        usage=Usage(input=412, output=7),
        seconds=0.8312,
        usd_nanos=54_321,
    )
    ask = Asked(12_345, 123, 4_567, "lead against challenger")
    sizes = [len("".join(line_of(event))) for event in (ask, Told(12_345, outcome, 1.0, 1234.5))]
    assert sum(sizes) <= 400, sizes


def test_rows_that_cannot_be_asked_take_few_bytes() -> None:
    rows = [*range(200), 300, *range(400, 4000)]
    line = line_of(Asked(7, 200, 0, "ucb", ranges_of(rows)))
    assert line[1].endswith('"excluded":[[0,199],[300,300],[400,3999]]}')


def test_what_a_newer_version_wrote_is_named() -> None:
    with pytest.raises(StoreVersionError, match=r"newer version.*pip install --upgrade"):
        event_of(("teleported", "{}"))


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "7", "null", "{}", '{"seq": 1}'),
        line_of(asked(0))[1].replace("seq", "new_field"),
        line_of(asked(0))[1].replace('"ucb"', "7"),
    ],
)
def test_damage_is_named(text: str) -> None:
    with pytest.raises(StoreError, match=r"damaged, or a newer.*restore") as caught:
        event_of(("asked", text))
    assert not isinstance(caught.value, StoreVersionError)


def test_a_wrong_word_of_a_closed_list_is_damage() -> None:
    with pytest.raises(StoreError, match=r"damaged.*because"):
        load_reply('{"text": "46", "finish": "because"}')


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes"])
def test_what_json_has_no_word_for_is_refused(value: object) -> None:
    candidate = Candidate("hf", "m", PromptTemplate("p", text="x"), {"top": value})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'candidates-added' cannot be stored"):
        line_of(CandidatesAdded((candidate,)))


@pytest.mark.parametrize("reason", ["NaN", "-Infinity", 'a "quoted" one', "é 😀", "\ud800 alone"])
def test_events_of_pairs_come_back_whatever_their_texts_hold(reason: str) -> None:
    """What stands alone of a surrogate pair is replaced, as everywhere."""
    event = Asked(3, 1, 2, reason)
    assert event_of(line_of(event)) == replace(event, reason=reason.replace("\ud800", "?"))


SECRETS = (
    "api_key apiKey OPENAI_API_KEY x-api-key token hf_token accessToken secret client_secret "
    "password db-password Authorization bearer_token MY_KEY KEY X-Key"
)
SETTINGS = (
    "max_tokens max_new_tokens tokens tokenizer token_limit api_key_env eos_token pad_token "
    "stop_token temperature secretary key id_key MONKEY"
)


@pytest.mark.parametrize("name", SECRETS.split())
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", SETTINGS.split())
def test_names_of_settings(name: str) -> None:
    assert not is_secret_name(name)


def test_only_texts_and_containers_are_redacted() -> None:
    params: dict[str, Json] = {"token": 5, "secret": None, "password": True, "api_key": ["a"]}
    candidate = Candidate("hf", "m", PromptTemplate("p", text="x"), params)
    event = event_of(line_of(CandidatesAdded((candidate,))))
    assert isinstance(event, CandidatesAdded)
    assert event.candidates[0].params == params | {"api_key": "[redacted]"}
    stored = load_reply(dump_reply(Reply("46", sent={"api_key": "a", "top_p": 1})))
    assert stored.sent == {"api_key": "[redacted]", "top_p": 1}


def test_where_a_secret_is_may_be_stored() -> None:
    """A run is resumed with what its log says of the study."""
    config: dict[str, Json] = {
        "api_key": "${MY_KEY}",
        "env": {"HF_TOKEN": "${HF}", "MY_KEY": "$${x} 1234"},
    }
    event = event_of(line_of(Started("s", "2026-11-21T09:30:15Z", "0.1.0", config, ".")))
    assert isinstance(event, Started)
    assert event.config == {
        "api_key": "${MY_KEY}",
        "env": {"HF_TOKEN": "${HF}", "MY_KEY": "[redacted]"},
    }


def dataclasses_within(hint: object) -> set[type]:
    if get_origin(hint) in (tuple, types.UnionType, typing.Union):
        return set().union(*map(dataclasses_within, get_args(hint)))
    if not isinstance(hint, type) or not is_dataclass(hint):
        return set()
    return {hint}.union(*map(dataclasses_within, get_type_hints(hint).values()))


def test_every_stored_class_is_covered_by_the_round_trip() -> None:
    """Guards the strategies above: a class that joins the events is drawn too."""
    stored = dataclasses_within(Event) | dataclasses_within(Reply)
    expected = (
        "Started CandidatesAdded CandidatesBarred ExamplesAdded Asked Attempted Settled Told "
        "Proposed BudgetSet Stopped Resumed Outcome Score Vote Failure Usage "
        "Spend Budget Candidate PromptTemplate Message Reply Position Token Slice Example"
    )
    assert {cls.__name__ for cls in stored} == set(expected.split())
