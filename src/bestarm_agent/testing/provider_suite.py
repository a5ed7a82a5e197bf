"""Conformance suite of providers; inherit ``ProviderSuite`` and say how to build yours.

::

    class TestMyProvider(ProviderSuite):
        @pytest.fixture
        def case(self, tmp_path: Path) -> ProviderCase:
            return ProviderCase(build=lambda: MyProvider(...), requests=[...])
"""
# ruff: noqa: D102 - what a test checks is its name

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from bestarm_agent.domain.concurrent import together
from bestarm_agent.domain.spend import Spend
from bestarm_agent.domain.values import Finish, Reply, Request
from bestarm_agent.errors import Blame, ConfigError, ProviderError
from bestarm_agent.providers.base import Provider
from bestarm_agent.providers.failures import failure


@dataclass(frozen=True, slots=True)
class ProviderCase:
    """A provider to be tried, and what to try it with."""

    build: Callable[[], Provider]  # makes a new provider, not entered, over the same models
    requests: Sequence[Request]  # at least three that differ, each always answered alike
    failing: Sequence[Request] = ()  # must fail with a ``ProviderError``
    nonsense: Sequence[str] = ("no/such model",)  # model names that ``check`` must refuse
    run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run  # runs a coroutine to its end


async def answer_all(provider: Provider, requests: Sequence[Request]) -> list[Reply]:
    """Send all requests at once and return the replies in the same order."""
    return await together(provider.generate(request) for request in requests)


class ProviderSuite:
    """Contract of ``Provider``; a subclass in a test module gives the fixture ``case``."""

    @pytest.fixture
    def case(self) -> ProviderCase:
        """The provider under test."""
        raise NotImplementedError("a subclass of ProviderSuite must define the fixture `case`")

    def _with(self, case: ProviderCase, use: Callable[[Provider], Coroutine[Any, Any, Any]]) -> Any:  # noqa: ANN401
        async def main() -> Any:  # noqa: ANN401
            async with case.build() as provider:
                return await use(provider)

        return case.run(main())

    def test_it_has_a_name_and_knows_its_models(self, case: ProviderCase) -> None:
        provider, again = case.build(), case.build()
        assert provider.name
        assert "/" not in provider.name
        for request in case.requests:
            provider.check(request.model)
            assert provider.fingerprint(request.model)
            assert provider.fingerprint(request.model) == again.fingerprint(request.model)
            capabilities = provider.capabilities(request.model)
            assert capabilities.in_flight >= 1
            assert capabilities.chat or not request.messages

    def test_check_refuses_nonsense(self, case: ProviderCase) -> None:
        provider = case.build()
        for model in case.nonsense:
            with pytest.raises(ConfigError) as caught:
                provider.check(model)
            assert model in str(caught.value)

    def test_replies_are_sound_and_within_their_bounds(self, case: ProviderCase) -> None:
        provider = case.build()
        replies = self._with(case, lambda used: answer_all(used, [*case.requests] * 2))
        for request, reply in zip([*case.requests] * 2, replies, strict=True):
            usage = reply.usage
            assert min(usage.input, usage.output, usage.cached) >= 0
            assert min(reply.seconds, reply.gpu_seconds, reply.usd_nanos or 0) >= 0
            assert isinstance(reply.finish, Finish)
            assert reply.score is None or 0 <= reply.score <= 1
            bound = provider.bound(request)
            spent = Spend(0, reply.calls, usage.total, reply.usd_nanos or 0, reply.gpu_seconds)
            assert bound.calls >= 1
            assert bound.answers == 0
            # Each resource by itself: a bound that is too low in one of them lets a run pass its
            # cap.
            assert spent.capped(bound) == spent, f"{request}: {spent} is above {bound}"
            capabilities = provider.capabilities(request.model)
            assert (reply.usd_nanos is not None) >= capabilities.priced

    def test_concurrent_calls_do_not_mix(self, case: ProviderCase) -> None:
        async def main(provider: Provider) -> None:
            # One by one first, as the truth; then five times each at once, in which a provider that
            # keeps state per model or per batch would mix up replies, or their costs.
            apart = [await provider.generate(request) for request in case.requests]
            at_once = await answer_all(provider, [*case.requests] * 5)
            for busy, alone in zip(at_once, apart * 5, strict=True):
                assert (busy.text, busy.score, busy.usage) == (alone.text, alone.score, alone.usage)

        self._with(case, main)

    def test_failures_are_typed_and_leave_the_others_alone(self, case: ProviderCase) -> None:
        async def main(provider: Provider) -> None:
            for bad in case.failing:
                with suppress(ConfigError):
                    assert provider.bound(bad).calls >= 1
            failing = asyncio.create_task(together(_failure(provider, bad) for bad in case.failing))
            assert len(await answer_all(provider, case.requests)) == len(case.requests)
            for error in await failing:
                assert str(error).strip()
                assert not (error.transient and error.fatal)
                # The candidate is blamed, and scored, for just those kinds of failure that are its
                # own. Otherwise a provider's trouble would count as a wrong answer, or a wrong
                # answer as trouble.
                implied = failure(error.kind, str(error)).blame
                assert (error.blame is Blame.CANDIDATE) == (implied is Blame.CANDIDATE)

        self._with(case, main)

    def test_cancellation_propagates(self, case: ProviderCase) -> None:
        async def main(provider: Provider) -> None:
            cancelled, *others = case.requests
            task = asyncio.create_task(provider.generate(cancelled))
            beside = asyncio.create_task(answer_all(provider, others))
            await asyncio.sleep(0)
            if task.cancel():  # else it was answered at once
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert len(await beside) == len(others)
            assert len(await answer_all(provider, case.requests)) == len(case.requests)

        self._with(case, main)

    def test_leaving_with_calls_in_flight_ends_them(self, case: ProviderCase) -> None:
        async def main() -> None:
            async with case.build() as provider:
                calls = [asyncio.create_task(provider.generate(r)) for r in case.requests]
                await asyncio.sleep(0)
                for call in calls:
                    call.cancel()
            await asyncio.wait(calls)
            # What a provider leaves behind would go on to call, and to cost, after a run has ended.
            assert asyncio.all_tasks() == {asyncio.current_task()}

        case.run(main())


async def _failure(provider: Provider, request: Request) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await provider.generate(request)
    return caught.value
