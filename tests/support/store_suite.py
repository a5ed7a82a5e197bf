"""What each run store must do: tests to inherit, as those of SQLite and PostgreSQL do."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bestarm_agent.domain.events import CandidatesAdded, Event, Started, Stopped
from bestarm_agent.domain.values import Candidate, Json, PromptTemplate, clean_text
from bestarm_agent.errors import RunNotFoundError, StoreError
from bestarm_agent.store.codec import events_in
from bestarm_agent.store.store import RunInfo
from tests.support.reply_suite import ReplySuite, must_get
from tests.support.store_runs import AT, asked, begin, reply, small_run, started, told

ODD_TEXTS = ("", "NUL \0 and \x1b", "lone surrogate \ud83d", "añ 答え 🎲", "x" * 1_000_000)


class StoreSuite(ReplySuite):
    """Conformance tests of one run store."""

    # logs

    async def test_what_is_flushed_is_there_after_reopening(self, tmp_path: Path) -> None:
        events = small_run()

        async with self.opened(tmp_path) as store:
            log = await store.create("study")
            for event in events:
                log.append(event)
            await log.flush()
            assert await store.events_of(log.run_id) == events
        async with self.opened(tmp_path) as store:
            assert await store.events_of("study") == events
            assert await store.events_of("latest") == events

    async def test_closing_flushes(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await store.create("study")
            log.append(started())
        async with self.opened(tmp_path) as store:
            assert await store.events_of("study") == [started()]

    async def test_a_log_goes_on_where_it_ended(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await begin(store)
            log.append(asked(0))
            await log.close()
            log = await store.open("study")
            log.append(told(0))
            await log.flush()
            assert await store.events_of(log.run_id) == [started(), asked(0), told(0)]

    async def test_events_can_be_read_from_a_number_on(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await begin(store)
            log.append(asked(0))
            await log.flush()
            for since in range(3):
                lines = [
                    line async for page in store.lines_of("study", since=since) for line in page
                ]
                assert events_in(lines) == [started(), asked(0)][since:]
            assert await store.outline_of("study") == [started()]

    async def test_two_runs_do_not_mix(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            one, other = await begin(store, "one"), await begin(store, "other")
            for seq in range(50):
                one.append(asked(seq))
                other.append(told(seq))
            await one.flush()
            await other.flush()
            assert (await store.events_of(one.run_id))[1:] == [asked(seq) for seq in range(50)]
            assert (await store.events_of(other.run_id))[1:] == [told(seq) for seq in range(50)]

    async def test_flushes_from_many_tasks_keep_the_order_of_appending(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            log = await begin(store)
            events: list[Event] = []

            async def work(worker: int) -> None:
                for turn in range(10):
                    events.append(asked(10 * worker + turn))
                    log.append(events[-1])
                    await log.flush()

            async with asyncio.TaskGroup() as group:
                for worker in range(40):
                    group.create_task(work(worker))
            assert await store.events_of(log.run_id) == [started(), *events]

    async def test_what_json_cannot_hold_is_refused_and_leaves_no_gap(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await begin(store)
            with pytest.raises(ValueError, match="told"):
                log.append(replace(told(0), elapsed=float("nan")))
            log.append(asked(0))
            await log.flush()
            assert await store.events_of(log.run_id) == [started(), asked(0)]

    async def test_a_closed_log_takes_nothing(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await begin(store)
            await log.close()
            await log.close()
            with pytest.raises(StoreError, match="closed"):
                log.append(asked(0))

    async def test_odd_texts_come_back_as_they_were(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await begin(store)
            for text in ODD_TEXTS[:4]:
                log.append(Stopped(AT, text, 0.0))
            await log.flush()
            for number, text in enumerate(ODD_TEXTS):
                await store.put_reply(str(number), reply(text))
            stops = [Stopped(AT, clean_text(text), 0.0) for text in ODD_TEXTS[:4]]
            assert (await store.events_of(log.run_id))[1:] == stops
            assert [(await must_get(store, str(i))).text for i in range(5)] == [
                reply(text).text for text in ODD_TEXTS
            ]

    # secrets and paths

    async def test_secrets_are_redacted_and_settings_kept(self, tmp_path: Path) -> None:
        params: dict[str, Json] = {
            "api_key": "sk-1",
            "max_tokens": 5,
            "extra": {"HF_TOKEN": "t", "top_p": 0.5},
        }
        config: dict[str, Json] = {
            "headers": [{"Authorization": "Bearer t"}],
            "db": {"password": "p", "port": 1},
        }
        candidate = Candidate("openai", "m", PromptTemplate("p", text="x"), params)

        async with self.opened(tmp_path) as store:
            log = await store.create("study")
            log.append(Started("study", AT, "0.1.0", config, "."))
            log.append(CandidatesAdded((candidate,)))
            await log.flush()
            first, second = await store.events_of(log.run_id)
            assert isinstance(first, Started)
            assert isinstance(second, CandidatesAdded)
            mark = "[redacted]"
            assert first.config == {
                "headers": [{"Authorization": mark}],
                "db": {"password": mark, "port": 1},
            }
            assert second.candidates[0].params == {
                "api_key": mark,
                "max_tokens": 5,
                "extra": {"HF_TOKEN": mark, "top_p": 0.5},
            }

    # the list of runs

    async def test_a_run_is_listed_once_it_has_durably_started(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await store.create("study")
            assert await store.runs() == []
            log.append(started())
            await log.flush()
            assert await store.runs() == [RunInfo(log.run_id, "study", AT, 0, 0, None)]

    async def test_the_list_says_how_far_a_run_is(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await store.create("study")
            seen = []
            for event in small_run():
                log.append(event)
                await log.flush()
                seen.append((await store.find("study")).stopped)
            assert seen == [None] * 8 + ["interrupted"] + [None] * 5 + ["budget"]
            await log.close()
            reopened = await store.open("study")
            reopened.append(asked(4))
            await reopened.flush()
            assert await store.runs() == [RunInfo(log.run_id, "study", AT, 5, 3, "budget")]

    async def test_ids_are_readable_and_runs_listed_in_order_of_beginning(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            ids = [(await begin(store, f"study {i}")).run_id for i in range(20)]
            assert [info.id for info in await store.runs()] == ids
            assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-z]{4}", run) for run in ids)
            assert len(set(ids)) == 20

    async def test_a_run_is_found_by_id_name_prefix_or_latest(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            ids = [(await begin(store, name)).run_id for name in ("a", "b", "a")]
            for ref, expected in {"a": 2, "b": 1, "latest": 2, ids[0]: 0, ids[1][:-1]: 1}.items():
                assert (await store.find(ref)).id == ids[expected]
            with pytest.raises(RunNotFoundError, match=rf"any of.*{ids[2]} \(a\).*{ids[0]} \(a\)"):
                await store.find(ids[0][:4])
            for read in (store.find, store.open, store.events_of):
                with pytest.raises(RunNotFoundError, match=r"no run 'c'; there is.*latest"):
                    await read("c")

    async def test_a_run_that_asked_for_nothing_is_the_latest_only_alone(
        self, tmp_path: Path
    ) -> None:
        async with self.opened(tmp_path) as store:
            refused = await begin(store, "study")
            assert (await store.find("latest")).id == refused.run_id
            log = await begin(store, "study")
            log.append(asked(0))
            await log.flush()
            other = await begin(store, "other")  # refused, too
            for ref in ("latest", "study", log.run_id):
                assert (await store.find(ref)).id == log.run_id
            assert (await store.find("other")).id == other.run_id

    async def test_an_empty_store_says_so(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            assert await store.runs() == []
            with pytest.raises(RunNotFoundError, match="empty"):
                await store.open("latest")

    # one writer at a time

    async def test_a_second_writer_is_refused_until_the_first_lets_go(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await begin(store)
            with pytest.raises(StoreError, match=rf"{log.run_id} is being written.*stop it"):
                await store.open("study")
            async with self.opened(tmp_path) as other:
                with pytest.raises(StoreError, match=rf"{log.run_id} is being written.*stop it"):
                    await other.open("study")
            await log.close()
            again = await store.open("study")
            assert again.run_id == log.run_id

    async def test_processes_that_meet_in_a_new_store_agree(self, tmp_path: Path) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.connect(tmp_path)) for _ in range(8)]
        stores = [task.result() for task in tasks]
        await stores[0].put_reply("key", reply())
        assert await stores[7].get_reply("key") == reply()
        for store in stores:
            await store.close()

    async def test_reading_and_other_runs_go_on_while_one_is_written(self, tmp_path: Path) -> None:
        async with self.opened(tmp_path) as store:
            log = await begin(store)
            async with self.opened(tmp_path) as other:
                log.append(asked(0))
                await log.flush()
                assert await other.events_of("study") == [started(), asked(0)]
                second = await begin(other, "second")
                second.append(asked(0))
                await second.flush()
                assert len(await store.runs()) == 2
