"""The online router: choose candidates for a prompt, learn from what became of it, go on later.

1. ``choose``: the prompt's features give each candidate's context; the rule (``cppl`` or
   ``linucb``) names the k candidates of the largest index.
2. ``learn``: a record's scores, or places, less what the dollars weigh, become the feedback.
3. Until ``collect`` records are there, features of prompts cannot be made: choices are random, and
   records wait.
4. ``save``: settings, candidates and waiting records as JSON, features and rule as arrays, in one
   version of a state in the store.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from zipfile import BadZipFile

import numpy as np

from bestarm_agent.errors import ConfigError, StoreError, nearest
from bestarm_agent.preselection.features import PromptFeatures, contexts_of
from bestarm_agent.preselection.records import Record, RoutedCandidate, RouterSettings
from bestarm_agent.preselection.rule import (
    Arrays,
    FloatArray,
    Preselector,
    RankedArms,
    score_feedback,
)
from bestarm_agent.stats.keyed_random import KeyedRandom
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
        ...     names = [RoutedCandidate(name=name) for name in "abc"]
        ...     async with Router.open("demo", Store.in_memory(), names, settings) as router:
        ...         for i in range(20):
        ...             record = Record(prompt=f"add {i}", shown=("a", "b", "c"), ranking=("b",))
        ...             router.learn(record)
        ...         return router.choose("add 99", k=1)
        >>> asyncio.run(demo())
        ['b']
    """

    def __init__(
        self,
        name: str,
        store: Store,
        candidates: Sequence[RoutedCandidate],
        settings: RouterSettings,
    ) -> None:
        _check_apart(candidates)
        if len(candidates) < 2:
            raise ConfigError(
                f"a router chooses among at least 2 candidates, got {len(candidates)}"
            )
        unpriced = [candidate.name for candidate in candidates if candidate.usd is None]
        if settings.cost_weight and unpriced:
            raise ConfigError(
                f"cost_weight is set, but the price of {unpriced[0]!r} is not known, and an "
                f"unknown price is not $0; give every candidate `usd`"
            )
        self.name, self.candidates, self.settings = name, tuple(candidates), settings
        self.version = 0  # of the saved state it stands on; 0 before the first ``save``
        self._store = store
        self._row = {candidate.name: i for i, candidate in enumerate(candidates)}
        self._features = PromptFeatures(settings.n_components, seed=settings.seed)
        self._rule: Preselector | None = None  # made with the features
        self._early = KeyedRandom(settings.seed, "early choice")
        self._ties = KeyedRandom(settings.seed, "ties of scores")
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

        Candidates and settings may be left out for a router that exists. Prices that are given
        replace the ones that it has. A store can hold several routers.

        Raises:
            ConfigError: there is no such router and no candidates are given, it was made without
                one of those that are given, or with other settings.
            StoreError: the store cannot be used.
        """
        async with open_store(store, create=bool(candidates)) as opened:
            state = await opened.get_state(_STATE + name)
            if state is not None:
                router = cls._loaded(name, opened, *state)
                router._compare(candidates, settings)
            elif candidates:
                router = cls(name, opened, candidates, settings or RouterSettings())
            else:
                raise ConfigError(
                    f"there is no router {name!r} in this store; `preselect train` makes one, "
                    f"given its candidates"
                )
            try:
                yield router
            finally:
                await router.save()

    @property
    def ready(self) -> bool:
        """Return whether features have been made; choices are random before."""
        return self._rule is not None

    @property
    def n_learnt(self) -> int:
        """Records that taught the rule something."""
        return self._rule.n_learnt if self._rule else 0

    @property
    def n_waiting(self) -> int:
        """Records that wait until there are enough to make features from."""
        return len(self._waiting)

    def choose(self, prompt: str, k: int, *, among: Iterable[str] | None = None) -> list[str]:
        """Choose k candidates to run for a prompt, the most promising first.

        The same state chooses the same. ``among`` names those that can be run now, None if all can.

        Raises:
            ConfigError: a name is unknown, there are fewer than k, or the prompt is empty.
        """
        allowed = np.zeros(len(self.candidates), dtype=np.bool_)
        allowed[self._rows(self._row if among is None else among)] = True
        if not prompt:
            raise ConfigError(f"router {self.name!r} got an empty prompt; a prompt needs text")
        if not 1 <= k <= allowed.sum():
            raise ConfigError(
                f"k must be in 1..{allowed.sum()}, the candidates that can be run, got {k}"
            )
        # The number of the draw is made of the state and the prompt alone: two processes of one
        # router choose alike for one prompt, and two prompts in one state draw apart.
        text = zlib.crc32(prompt.encode("utf-8", "replace"))
        draw = (self.n_learnt + self.n_waiting) << 32 | text
        if self._rule is None:
            rows = self._early.at(draw).permutation(np.flatnonzero(allowed))[:k]
        else:
            rows = self._rule.choose(self._contexts(prompt), k, draw, allowed=allowed)
        return [self.candidates[row].name for row in rows]

    def learn(self, record: Record) -> bool:
        """Learn what became of a prompt; return whether it says anything.

        Fewer than two candidates, nobody who won, or equal scores say nothing about who is better.
        Raise ConfigError if it names an unknown candidate.
        """
        self._rows(record.shown)
        if len(record.shown) < 2 or not (record.scores or record.ranking):
            return False
        self._changed = True
        if self._rule is not None:
            return self._rule.learn(self._feedback(record))
        # Features come from the first prompts, so until there are ``collect`` of them choices are
        # random and records wait; they are learned afterwards in the order in which they came.
        self._waiting.append(record)
        if len(self._waiting) >= self.settings.collect:
            self.prepare()
        return True

    def prepare(self, prompts: Sequence[str] = ()) -> None:
        """Make features from these prompts now, and learn what has waited for it.

        The more alike the prompts are to those that will come, the better; without any, those that
        wait are used. Raise ConfigError if features were made before, or scikit-learn is missing.
        """
        if self._rule is not None:
            raise ConfigError(f"router {self.name!r} has its features already; they stay")
        prompts = prompts or [record.prompt for record in self._waiting]
        if not prompts:
            raise ConfigError(f"router {self.name!r} has no prompts to make features from")
        self._features.fit(prompts)
        self._rule = self._new_rule()
        self._changed = True
        waiting, self._waiting = self._waiting, []
        for record in waiting:
            self._rule.learn(self._feedback(record))

    async def save(self) -> int:
        """Store what was learnt since the last time, durably; return the version.

        Raises:
            StoreError: another process has saved the router meanwhile, or the store fails.
        """
        if self._changed:
            # ``after``: the version that this state grew from. If another process has saved
            # meanwhile, its feedback would be lost, so the store refuses.
            data = self._dumped()
            self.version = await self._store.put_state(_STATE + self.name, data, after=self.version)
            self._changed = False
        return self.version

    def _new_rule(self) -> Preselector:
        n_arms, n_features = len(self.candidates), self._features.n_features
        return self.settings.make_rule(n_arms, n_features, self.settings.seed)

    def _contexts(self, prompt: str) -> FloatArray:
        return contexts_of(self._features.vectors([prompt])[0], len(self.candidates))

    def _feedback(self, record: Record) -> RankedArms:
        rows, quality = self._rows(record.shown), record.scores or quality_by_place(record)
        prices = [self.candidates[row].usd or 0.0 for row in rows]
        usd = [record.usd.get(name, p) for name, p in zip(record.shown, prices, strict=True)]
        # A rule sees one number: quality less what the dollars weigh. Costs of the record itself
        # count before the listed price.
        utility = np.array([quality[name] for name in record.shown])
        utility -= self.settings.cost_weight * np.array(usd)
        ties = self._ties.at(self.n_learnt)
        return score_feedback(self._contexts(record.prompt), rows, utility, ties)

    def _rows(self, names: Iterable[str]) -> list[int]:
        """Return the rows of candidates; raise ConfigError if one is unknown."""
        names = list(names)
        for name in names:
            if name not in self._row:
                raise ConfigError(
                    f"router {self.name!r} knows no candidate {name!r}; "
                    f"{nearest(name, self._row)}; a candidate that joins needs a router of another "
                    f"name, trained with it"
                )
        return [self._row[name] for name in names]

    def _compare(
        self, candidates: Sequence[RoutedCandidate], settings: RouterSettings | None
    ) -> None:
        """Compare a router that was stored with what is given; take over prices."""
        if settings is not None and settings != self.settings:
            raise ConfigError(
                f"router {self.name!r} was made with other settings; leave them out, or give the "
                f"new router another name"
            )
        _check_apart(candidates)
        self._rows(model.name for model in candidates)  # refuses unknown ones
        priced = {model.name: model for model in candidates if model.usd is not None}
        now = tuple(priced.get(model.name, model) for model in self.candidates)
        self._changed |= now != self.candidates
        self.candidates = now

    def _dumped(self) -> bytes:
        """Return the router as arrays without pickle, so that reading them runs no code."""
        facts = {
            "settings": self.settings.model_dump(),
            "candidates": [model.model_dump() for model in self.candidates],
            "waiting": [record.model_dump(exclude_defaults=True) for record in self._waiting],
        }
        arrays: dict[str, Any] = {"facts": np.array(json.dumps(facts))}
        if self._rule is not None:
            arrays |= {f"rule/{key}": value for key, value in self._rule.state().items()}
            arrays |= {f"features/{key}": value for key, value in self._features.state().items()}
        file = io.BytesIO()
        np.savez_compressed(file, allow_pickle=False, **arrays)
        return file.getvalue()

    @classmethod
    def _loaded(cls, name: str, store: Store, version: int, data: bytes) -> Router:
        """Return the router that ``_dumped`` wrote."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                arrays = dict(file)
            facts = json.loads(str(arrays["facts"]))
            candidates = [RoutedCandidate.model_validate(row) for row in facts["candidates"]]
            settings = RouterSettings.model_validate(facts["settings"])
            router = cls(name, store, candidates, settings)
            router.version = version
            router._waiting = [Record.model_validate(row) for row in facts["waiting"]]
            if rule := _part(arrays, "rule/"):
                router._features.restore(_part(arrays, "features/"))
                router._rule = router._new_rule()
                router._rule.restore(rule)
        except (ValueError, KeyError, TypeError, OSError, EOFError, BadZipFile) as error:
            raise StoreError(
                f"the state of router {name!r} is damaged, or of another version of bestarm-agent "
                f"({type(error).__name__}); train a router of another name"
            ) from error
        return router


def quality_by_place(record: Record) -> dict[str, float]:
    """Turn a ranking into numbers in [0, 1]: 1 for the first, 0 for the last and the unranked.

    Example:
        >>> quality_by_place(Record(prompt="x", shown=("a", "b", "c"), ranking=("c", "a")))
        {'a': 0.5, 'b': 0.0, 'c': 1.0}
    """
    steps = min(len(record.ranking), len(record.shown) - 1)
    place = {name: j for j, name in enumerate(record.ranking)}
    return {name: 1.0 - place.get(name, steps) / steps for name in record.shown}


def _check_apart(candidates: Sequence[RoutedCandidate]) -> None:
    names = [candidate.name for candidate in candidates]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two candidates are called {twice[0]!r}; names must differ")


def _part(arrays: Arrays, prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}
