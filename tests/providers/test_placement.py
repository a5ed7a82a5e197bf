"""Placement is one pure function: what fits, what takes turns, what can never be."""

from __future__ import annotations

from collections import Counter

import pytest

from bestarm_agent.providers.devices import Device
from bestarm_agent.providers.placement import Demand, Placement, PlacementError, place
from bestarm_agent.stats.keyed_random import KeyedRandom

GB = 10**9


def box(*gigabytes: float) -> list[Device]:
    return [Device(number, int(size * GB)) for number, size in enumerate(gigabytes)]


def gb(model: str, gigabytes: float, gpus: int = 1, replicas: int = 1) -> Demand:
    return Demand(model, gpus, replicas, int(gigabytes * GB))


def numbers(placement: Placement) -> dict[str, list[list[int]]]:
    return {
        model: [[device.number for device in server] for server in servers]
        for model, servers in placement.servers.items()
    }


def test_models_that_take_whole_devices_get_one_each() -> None:
    placement = place([Demand("a"), Demand("b")], box(80, 80))
    assert numbers(placement) == {"a": [[0]], "b": [[1]]}
    assert placement.turns == ()
    assert placement.fits({"a", "b"})
    assert placement.part("a") != placement.part("b")


def test_the_large_get_theirs_first_and_the_order_of_models_is_kept() -> None:
    placement = place([gb("small", 16), Demand("large", gpus=2)], box(80, 80, 80))
    assert numbers(placement) == {"small": [[2]], "large": [[0, 1]]}
    assert list(placement.servers) == ["small", "large"]


def test_replicas_lie_on_different_devices() -> None:
    placement = place([Demand("a", gpus=2, replicas=2), gb("b", 30, replicas=2)], box(*[80] * 6))
    assert numbers(placement) == {"a": [[0, 1], [2, 3]], "b": [[4], [5]]}


def test_small_models_share_a_device_by_stated_memory() -> None:
    placement = place([gb(name, 20) for name in "abcd"], box(80))
    assert numbers(placement) == {name: [[0]] for name in "abcd"}
    assert placement.turns == ()
    assert placement.fits("abcd")
    assert [placement.held(name) for name in "abcd"] == [0.25] * 4


def test_those_that_do_not_fit_take_turns_where_it_is_least_crowded() -> None:
    placement = place([gb("a", 70), gb("b", 60), gb("c", 20), gb("d", 50)], box(80, 80))
    assert numbers(placement) == {"a": [[0]], "b": [[1]], "c": [[1]], "d": [[0]]}
    assert placement.turns == (("a", "d"),)
    assert placement.fits({"a", "b", "c"})
    assert not placement.fits({"a", "d"})
    assert placement.part("a") == placement.part("d") == "a"
    assert [placement.part(name) for name in "bc"] == ["b", "c"], "they never wait"


def test_models_that_share_no_device_may_still_wait_for_one_that_takes_both() -> None:
    placement = place([Demand("both", gpus=2), Demand("a"), Demand("b")], box(80, 80))
    assert numbers(placement) == {"both": [[0, 1]], "a": [[0]], "b": [[1]]}
    assert placement.turns == (("both", "a", "b"),)
    assert placement.fits({"a", "b"})
    assert not placement.fits({"both", "b"})


def test_devices_are_packed_tightly_where_spreading_leaves_some_out() -> None:
    """The emptiest first: 5 and 3 on one, 4 and 2 on the other, and the last 2 has no room."""
    sizes = {"a": 5, "b": 4, "c": 3, "d": 2, "e": 2}
    placement = place([gb(name, size) for name, size in sizes.items()], box(9, 7))
    assert numbers(placement) == {"a": [[1]], "b": [[0]], "c": [[0]], "d": [[0]], "e": [[1]]}
    assert placement.turns == ()


def test_shares_are_of_each_device_and_allowed_devices_are_kept_to() -> None:
    demands = [Demand("a", share=0.5, devices=(1,)), Demand("b", share=0.5), Demand("c", share=0.5)]
    placement = place(demands, box(80, 24))
    assert numbers(placement) == {"a": [[1]], "b": [[0]], "c": [[0]]}
    assert placement.turns == ()
    assert placement.held("a") == 1.0, "nobody else is there: the whole device is its own"


def test_devices_that_are_shared_in_turns_count_by_memory() -> None:
    placement = place([gb("a", 60), gb("b", 60)], box(80))
    assert placement.turns == (("a", "b"),)
    assert placement.held("a") == placement.held("b") == 0.75


@pytest.mark.parametrize(
    ("demand", "option", "message"),
    [
        (Demand("m", gpus=3), "gpus", "wants 3 devices, and only 2 of the visible devices (0, 1)"),
        (Demand("m", 1, 3), "replicas", "wants 3 servers of 1 device, and only 2"),
        (Demand("m", 2, 2), "replicas", "wants 2 servers of 2 devices, and only 2"),
        (Demand("m", devices=(0, 7)), "devices", "device 7 does not exist or is not visible"),
        (Demand("m", 2, devices=(0,)), "gpus", "wants 2 devices, and only 1"),
        (gb("m", 90), "memory_gb", "takes 90 GB of each device, and the largest has 80 GB"),
        (gb("m", 50, gpus=2), "gpus", "wants 2 devices, and only 1"),
    ],
)
def test_what_can_never_be_names_the_option(demand: Demand, option: str, message: str) -> None:
    with pytest.raises(PlacementError) as caught:
        place([Demand("other"), demand], box(80, 40))
    assert (caught.value.model, caught.value.option) == ("m", option)
    assert message in str(caught.value)


def random_box(trial: int) -> tuple[list[Demand], list[Device]]:
    draw = KeyedRandom(7, "boxes").at(trial)
    devices = box(*(24 + 56 * draw.integers(0, 2, size=draw.integers(1, 9))).tolist())
    demands = [
        Demand(
            f"m{number}",
            gpus=int(draw.integers(1, 3)),
            replicas=int(draw.integers(1, 3)),
            n_bytes=None if draw.random() < 0.3 else int(draw.integers(1, 24) * GB),
        )
        for number in range(draw.integers(1, 9))
    ]
    return demands, devices


def test_every_placement_keeps_the_rules() -> None:
    """500 boxes: distinct devices for a model, every model fits alone, turns where told."""
    n_placed = n_turns = 0
    for trial in range(500):
        demands, devices = random_box(trial)
        try:
            placement = place(demands, devices)
        except PlacementError as error:
            (demand,) = [one for one in demands if one.model == error.model]
            with pytest.raises(PlacementError):
                place([demand], devices)
            continue
        n_placed += 1
        n_turns += bool(placement.turns)
        in_turns = {model for models in placement.turns for model in models}
        for demand in demands:
            servers = placement.servers[demand.model]
            assert [len(server) for server in servers] == [demand.gpus] * demand.replicas
            devices_used = [device for server in servers for device in server]
            assert len(set(devices_used)) == len(devices_used)
            assert placement.fits({demand.model})
        assert placement.fits([d.model for d in demands if d.model not in in_turns])
        assert placement.fits([d.model for d in demands]) == (not placement.turns)
        held = sum(placement.held(demand.model) for demand in demands)
        used = Counter(d for s in placement.servers.values() for server in s for d in server)
        if not placement.turns:
            assert held == pytest.approx(len(used))
        assert placement == place(demands, devices)
    assert min(n_placed, n_turns, n_placed - n_turns) > 30
