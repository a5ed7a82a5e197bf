"""The online router: choose candidates for a prompt, learn from what became of it, go on later."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from bestarm_agent.errors import ConfigError, nearest
from bestarm_agent.preselection.feedback import Record, check_scores, parse_record
from bestarm_agent.preselection.learner import Learner
from bestarm_agent.preselection.prompt_features import Prompt
from bestarm_agent.preselection.router_state import Snapshot, dump, load
from bestarm_agent.preselection.rules.types import BoolArray
from bestarm_agent.preselection.settings import (
    RoutedCandidate,
    RouterSettings,
    as_json,
    check_candidates,
    parse_candidates,
)
from bestarm_agent.store.store import Store, StorePlace, open_store

_STATE = "router/"  # what a router's name in the store begins with


class Router:
    """Chooses which k candidates to run for a prompt.

    Until ``settings.collect`` prompts have been learnt, nothing describes prompts yet: choices are
    random, and what is learnt waits. Made by ``Router.open``; not for several threads.

    Example:
        >>> import asyncio
        >>> from bestarm_agent.store.store import Store
        >>> async def demo() -> list[str]:
        ...     settings = RouterSettings(collect=2)
        ...     names = [RoutedCandidate("a"), RoutedCandidate("b"), RoutedCandidate("c")]
        ...     async with Router.open("demo", Store.in_memory(), names, settings) as router:
        ...         for i in range(20):
        ...             router.learn(Record(f"add {i}", ("a", "b", "c"), ranking=("b",)))
        ...         return router.choose("add 99", k=1)
        >>> asyncio.run(demo())
        ['b']
    """

    def __init__(
        self,
        name: str,
        candidates: Sequence[RoutedCandidate],
        settings: RouterSettings,
        n_first: int | None = None,
    ) -> None:
        check_candidates(candidates, settings)
        self.name = name
        self.candidates = tuple(candidates)
        self.settings = settings
        self.version = 0  # of the saved state it stands on; 0 before the first ``save``
        self._store: Store | None = None
        self._n_first = len(candidates) if n_first is None else n_first
        self._row = {candidate.name: i for i, candidate in enumerate(candidates)}
        self._learner = Learner(candidates, settings, self._n_first)
        self._waiting: list[Record] = []
        self._changed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        name: str,
        store: StorePlace,
        candidates: Sequence[RoutedCandidate] = (),
        settings: RouterSettings | None = None,
    ) -> AsyncIterator[Router]:
        """Open a router, or make one; what it has learnt is saved at the end, also after an error.

        Candidates and settings may be left out for a router that exists; a store can hold several.

        Raises:
            ConfigError: there is no such router and no candidates are given, or what is given
                differs from what the router was made with.
            StoreError: the store cannot be used.
        """
        async with open_store(store, create=bool(candidates)) as opened:
            router = await cls._found(name, opened, candidates, settings)
            try:
                yield router
            finally:
                await router.save()

    @staticmethod
    async def exists(name: str, store: Store) -> bool:
        """Return whether a store holds a router of this name."""
        return await store.get_state(_STATE + name) is not None

    @classmethod
    async def _found(
        cls,
        name: str,
        store: Store,
        candidates: Sequence[RoutedCandidate],
        settings: RouterSettings | None,
    ) -> Router:
        found = await store.get_state(_STATE + name)
        if found is None:
            if not candidates:
                raise ConfigError(
                    f"there is no router {name!r} in this store; `preselect train` makes one, "
                    f"given its candidates"
                )
            router = cls(name, candidates, settings or RouterSettings())
        else:
            router = cls._from_snapshot(name, load(found[1], name))
            router.version = found[0]
            router._check_same(candidates, settings)
        router._store = store
        return router

    @classmethod
    def _from_snapshot(cls, name: str, snapshot: Snapshot) -> Router:
        facts = snapshot.facts
        settings = RouterSettings(**facts["settings"])
        candidates = parse_candidates(facts["candidates"])
        router = cls(name, candidates, settings, facts.get("n_first", len(candidates)))
        router._waiting = [parse_record(row, f"router {name!r}") for row in facts["waiting"]]
        if snapshot.encoder is not None and snapshot.rule is not None:
            router._learner.restore(snapshot.rule, snapshot.encoder)
        return router

    @property
    def ready(self) -> bool:
        """Return whether features have been made; choices are random before."""
        return self._learner.ready

    @property
    def n_learnt(self) -> int:
        """Records that taught the rule something."""
        return self._learner.n_learnt

    @property
    def n_waiting(self) -> int:
        """Records that wait until there are enough to make features from."""
        return len(self._waiting)

    def choose(
        self,
        prompt: str,
        k: int,
        *,
        features: Sequence[float] = (),
        among: Iterable[str] | None = None,
    ) -> list[str]:
        """Choose k candidates to run for a prompt, the most promising first.

        The same state chooses the same. ``features`` describe the prompt, for source "given";
        ``among`` names those that can be run now, None if all can.

        Raises:
            ConfigError: a name is unknown, there are fewer than k, or features are missing.
        """
        allowed = self._mask(self._row if among is None else among)
        described = (prompt, tuple(features))
        self._learner.check(described)
        text = zlib.crc32(prompt.encode("utf-8", "replace"))
        draw = (self.n_learnt + self.n_waiting) << 32 | text
        try:
            chosen = self._learner.choose(described, k, allowed, draw)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return [self.candidates[row].name for row in chosen]

    def learn(self, record: Record) -> bool:
        """Learn what became of a prompt; return whether it says anything.

        Fewer than two candidates, nobody who won, or equal scores say nothing about who is better.
        Raise ConfigError if it names an unknown candidate, or lacks features.
        """
        self._check(record)
        if len(record.shown) < 2 or not (record.scores or record.ranking):
            return False
        self._changed = True
        if self._learner.ready:
            return self._learner.learn(record)
        self._waiting.append(record)
        if len(self._waiting) >= self.settings.collect:
            self.prepare()
        return True

    def prepare(self, prompts: Sequence[Prompt] = ()) -> None:
        """Make features from these prompts now, and learn what has waited for it.

        The more alike the prompts are to those that will come, the better; without any, those that
        wait are used. Raise ConfigError if features were made before, or scikit-learn is missing.
        """
        if self._learner.ready:
            raise ConfigError(f"router {self.name!r} has its features already; they stay")
        prompts = prompts or [(r.prompt, r.features) for r in self._waiting]
        if not prompts:
            raise ConfigError(f"router {self.name!r} has no prompts to make features from")
        self._learner.prepare(prompts)
        self._changed = True
        waiting, self._waiting = self._waiting, []
        for record in waiting:
            self._learner.learn(record)

    def add_candidates(self, candidates: Sequence[RoutedCandidate]) -> None:
        """Let candidates join; what was learnt about the others stays.

        Nothing is known of a new one but what its price, size and family share with the others, so
        rules that explore run it often at first. ``cppl``, ``max-theta`` and ``epsilon-greedy``
        take ever smaller steps and learn about a late one slowly. Raise ConfigError if a name is
        there already, or a price is missing that ``cost_weight`` needs.
        """
        grown = (*self.candidates, *candidates)
        check_candidates(grown, self.settings)
        learner = Learner(grown, self.settings, self._n_first)
        learner.take_over(self._learner)
        self.candidates, self._learner = grown, learner
        self._row = {candidate.name: i for i, candidate in enumerate(grown)}
        self._changed = True

    async def save(self) -> int:
        """Store what was learnt since the last time, durably; return the version.

        Raises:
            StoreError: another process has saved the router meanwhile, or the store fails.
        """
        if self._store is None:
            raise ValueError("a router is saved in the store that Router.open was given")
        if self._changed:
            data = dump(self._snapshot())
            self.version = await self._store.put_state(_STATE + self.name, data, after=self.version)
            self._changed = False
        return self.version

    def _snapshot(self) -> Snapshot:
        waiting = [record.as_json() for record in self._waiting]
        facts: dict[str, Any] = {**as_json(self.settings, self.candidates), "waiting": waiting}
        facts["n_first"] = self._n_first
        return Snapshot(facts, *(self._learner.state() or ()))

    def _check(self, record: Record) -> None:
        self._learner.check((record.prompt, record.features))
        check_scores(record, f"router {self.name!r}")
        self._mask(record.shown)

    def _mask(self, names: Iterable[str]) -> BoolArray:
        mask = np.zeros(len(self.candidates), dtype=np.bool_)
        for name in names:
            if name not in self._row:
                raise ConfigError(
                    f"router {self.name!r} knows no candidate {name!r}; {nearest(name, self._row)}"
                )
            mask[self._row[name]] = True
        return mask

    def _check_same(
        self, candidates: Sequence[RoutedCandidate], settings: RouterSettings | None
    ) -> None:
        if candidates and tuple(candidates) != self.candidates:
            there = ", ".join(candidate.name for candidate in self.candidates)
            raise ConfigError(
                f"router {self.name!r} was made for other candidates ({there}); leave them out, or "
                f"give the new router another name"
            )
        if settings is not None and settings != self.settings:
            raise ConfigError(
                f"router {self.name!r} was made with other settings; leave them out, or give the "
                f"new router another name"
            )
