"""Servers on the accelerators of a machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bestarm_agent.providers.vllm.devices import Devices, Need

NEEDS = st.builds(Need, st.integers(1, 3), st.sampled_from([0.25, 0.3, 0.5, 1.0]))
STEPS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["take", "sleep", "leave"])))


@given(n=st.integers(1, 4), needs=st.lists(NEEDS, min_size=5, max_size=5), steps=STEPS)
def test_no_device_holds_more_than_all_of_its_memory(
    n: int, needs: list[Need], steps: list[tuple[int, str]]
) -> None:
    by_name = {str(i): need for i, need in enumerate(needs)}
    devices = Devices([f"gpu{i}" for i in range(n)], by_name)
    awake: dict[str, tuple[str, ...]] = {}
    running: dict[str, tuple[str, ...]] = {}
    for number, step in steps:
        name = str(number)
        others = [other for other in awake if other != name]
        if step == "take":
            if not devices.fits(name, beside=others):
                assert others, "alone everybody fits"
                continue
            held = devices.take(name)
            assert held == running.get(name, held), "it wakes where it was started"
            assert len(set(held)) == min(by_name[name].n_devices, n)
            awake[name] = running[name] = held
        else:
            (devices.sleep if step == "sleep" else devices.leave)(name)
            awake.pop(name, None)
            if step == "leave":
                running.pop(name, None)
        for device in range(n):
            shares = [by_name[other].share for other in awake if f"gpu{device}" in awake[other]]
            assert sum(shares) <= 1 + 1e-6


def test_all_are_held_where_they_fit_and_the_fullest_device_is_filled_first() -> None:
    needs = {"a": Need(1, 0.5), "b": Need(1, 1.0), "c": Need(1, 0.5)}
    assert Devices(["0", "1"], needs).hold_all
    assert not Devices(["0"], needs).hold_all
    devices = Devices(["0", "1"], needs)
    assert [devices.take(name) for name in "abc"] == [("0",), ("1",), ("0",)]


def test_where_no_device_is_known_one_server_has_them_all() -> None:
    devices = Devices([], {"a": Need(1, 0.2), "b": Need(1, 0.2)})
    assert not devices.hold_all
    assert devices.take("a") == ()
    assert not devices.fits("b", beside=["a"])
