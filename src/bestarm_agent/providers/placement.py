"""Decides which devices each model gets, and which models have to take turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from bestarm_agent.errors import counted
from bestarm_agent.providers.devices import Device

Server: TypeAlias = tuple[Device, ...]  # the devices of one server, or of one worker


class PlacementError(Exception):
    """A model that no device can hold; ``option`` is the one to correct."""

    def __init__(self, model: str, option: str, text: str) -> None:
        self.model = model
        self.option = option
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Demand:
    """Devices that a model takes while it is loaded."""

    model: str
    gpus: int = 1  # devices of each server
    replicas: int = 1  # servers, all loaded at the same time, on different devices
    n_bytes: int | None = None  # memory of each of its devices; None: by ``share``
    share: float = 1.0  # of the memory of each of its devices, in (0, 1]
    devices: tuple[int, ...] | None = None  # numbers of those that it may take; None: any

    def memory(self, device: Device) -> int:
        """Return the bytes that it takes of a device."""
        return int(self.share * device.n_bytes) if self.n_bytes is None else self.n_bytes

    def allowed(self, devices: Sequence[Device]) -> list[Device]:
        """Return those devices that it may take."""
        return [one for one in devices if self.devices is None or one.number in self.devices]


@dataclass(frozen=True)
class Placement:
    """The devices of every model's servers."""

    demands: Mapping[str, Demand]  # by model
    servers: Mapping[str, tuple[Server, ...]]  # by model, one for each replica

    def fits(self, models: Collection[str]) -> bool:
        """Return True if models can be loaded together."""
        return all(taken <= device.n_bytes for device, taken in self._taken(models).items())

    def part(self, model: str) -> str:
        """Return the name of the part of the memory that a model lies in: its first model."""
        return next(models[0] for models in self._parts if model in models)

    @cached_property
    def turns(self) -> tuple[tuple[str, ...], ...]:
        """The models of every part that do not fit into it together."""
        return tuple(models for models in self._parts if not self.fits(models))

    def held(self, model: str) -> float:
        """Return how many devices a model holds; a shared one counts by the share of its memory.

        Shares are of the memory that is taken if all models are loaded, so they add up to 1.
        """
        taken = self._taken(self.servers)
        return sum(
            self.demands[model].memory(device) / min(device.n_bytes, taken[device])
            for server in self.servers[model]
            for device in server
        )

    @cached_property
    def _parts(self) -> list[tuple[str, ...]]:
        """Groups of models that are linked by devices on which not all have room."""
        taken = self._taken(self.servers)
        parts: list[tuple[set[Device], list[str]]] = []
        for model, servers in self.servers.items():
            own = {one for server in servers for one in server if taken[one] > one.n_bytes}
            near = [part for part in parts if part[0] & own]
            parts = [part for part in parts if part not in near]
            joined = [other for _, models in near for other in models]
            parts.append((own.union(*(devices for devices, _ in near)), [*joined, model]))
        order = list(self.servers)
        return [tuple(sorted(models, key=order.index)) for _, models in parts]

    def _taken(self, models: Collection[str]) -> Counter[Device]:
        taken: Counter[Device] = Counter()
        for model in models:
            for server in self.servers[model]:
                taken.update({device: self.demands[model].memory(device) for device in server})
        return taken


def place(demands: Sequence[Demand], devices: Sequence[Device]) -> Placement:
    """Give every model its devices, so that as many as possible can be loaded together.

    Large models come first. They are spread over the emptiest devices; if that leaves models out,
    packing them tightly is tried. Those left out share the devices least taken: turns are needed.

    Raises:
        PlacementError: a model wants devices that are not there, more of them than there are, or
            more memory than they have.

    Example:
        >>> box = [Device(0, 80), Device(1, 80)]
        >>> placement = place([Demand("a"), Demand("b", n_bytes=30), Demand("c", n_bytes=30)], box)
        >>> {model: [d.number for d in one] for model, (one,) in placement.servers.items()}
        {'a': [0], 'b': [1], 'c': [1]}
        >>> placement.turns
        ()
    """
    for demand in demands:
        _check(demand, devices)
    ordered = sorted(demands, key=lambda demand: _size(demand, devices), reverse=True)
    tries = [_filled(ordered, devices, tightly) for tightly in (False, True)]
    seats, taken = max(tries, key=lambda tried: len(tried[0]))
    whole = {device: device.n_bytes for device in devices}
    for demand in ordered:
        if demand.model not in seats:
            found = _seat(demand, whole, taken)
            if found is not None:  # it is not None: ``_check`` found room on empty devices
                seats[demand.model] = found
                _take(demand, found, taken)
    return Placement(
        {demand.model: demand for demand in demands},
        {demand.model: seats[demand.model] for demand in demands},
    )


_Seats: TypeAlias = dict[str, tuple[Server, ...]]


def _size(demand: Demand, devices: Sequence[Device]) -> tuple[int, int]:
    most = max(demand.memory(device) for device in devices)
    return demand.gpus * demand.replicas, most


def _filled(
    ordered: Sequence[Demand], devices: Sequence[Device], tightly: bool
) -> tuple[_Seats, Counter[Device]]:
    """Return the servers of models that fit together, and the bytes taken of each device."""
    seats: _Seats = {}
    taken: Counter[Device] = Counter()
    for demand in ordered:
        room = {device: device.n_bytes - taken[device] for device in devices}
        found = _seat(demand, room, taken, tightly=tightly)
        if found is not None:
            seats[demand.model] = found
            _take(demand, found, taken)
    return seats, taken


def _seat(
    demand: Demand,
    room: Mapping[Device, int],
    taken: Mapping[Device, int],
    *,
    tightly: bool = False,
) -> tuple[Server, ...] | None:
    """Return devices for all servers of a model, the emptiest or fullest; None: no room."""

    def emptiness(device: Device) -> tuple[int, int]:
        free = device.n_bytes - taken.get(device, 0)
        return (free if tightly else -free), device.number

    roomy = [d for d in demand.allowed([*room]) if demand.memory(d) <= room[d]]
    if len(roomy) < demand.gpus * demand.replicas:
        return None
    chosen = sorted(roomy, key=emptiness)[: demand.gpus * demand.replicas]
    ordered = sorted(chosen, key=lambda device: device.number)
    return tuple(tuple(ordered[i : i + demand.gpus]) for i in range(0, len(ordered), demand.gpus))


def _take(demand: Demand, servers: Sequence[Server], taken: Counter[Device]) -> None:
    for server in servers:
        taken.update({device: demand.memory(device) for device in server})


def _check(demand: Demand, devices: Sequence[Device]) -> None:
    """Check that a model fits into empty devices."""
    numbers = [device.number for device in devices]
    shown = ", ".join(map(str, numbers)) or "none"
    absent = [number for number in demand.devices or () if number not in numbers]
    if absent:
        raise PlacementError(
            demand.model,
            "devices",
            f"device {absent[0]} does not exist or is not visible; visible devices: {shown}. Name "
            "one of these, or change CUDA_VISIBLE_DEVICES",
        )
    allowed = demand.allowed(devices)
    large = [device for device in allowed if demand.memory(device) <= device.n_bytes]
    if allowed and not large:
        most = max(device.n_bytes for device in allowed)
        raise PlacementError(
            demand.model,
            "memory_gb",
            f"takes {demand.memory(allowed[0]) / 1e9:.3g} GB of each device, and the largest has "
            f"{most / 1e9:.3g} GB; lower it, or spread the model over more devices with `gpus`",
        )
    if len(large) < demand.gpus * demand.replicas:
        servers = f"{demand.replicas} servers of " if demand.replicas > 1 else ""
        raise PlacementError(
            demand.model,
            "replicas" if demand.replicas > 1 else "gpus",
            f"wants {servers}{counted(demand.gpus, 'device')}, and only {len(large)} of the "
            f"visible devices ({shown}) can be used for it; lower `gpus` or `replicas`",
        )
