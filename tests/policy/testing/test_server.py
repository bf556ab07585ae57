"""The fake engine over real sockets."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest

from rollbook.errors import UsageError
from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, Fault, FaultPlan, Latency, Pause
from tests.policy.testing.asking import send

LONG = EngineShape(stop_ids=(99,))


def body(tokens: int = 4, **more: Any) -> dict[str, Any]:
    return {"token_ids": [1, 3], "sampling_params": {"max_tokens": tokens, "seed": 1}, **more}


def ask(url: str, tokens: int = 4, session: str = "s") -> Any:
    return send(url, "/inference/v1/generate", body(tokens), session=session)


def faulty(fault: Fault, **plan: Any) -> FakeEngine:
    return FakeEngine(Dialect.VLLM, shape=LONG, faults=FaultPlan(requests={0: fault}, **plan))


def test_a_port_that_is_taken_is_an_error() -> None:
    with FakeEngine(Dialect.VLLM) as engine:
        port = int(engine.url.rsplit(":", 1)[1])
        with pytest.raises(UsageError, match="cannot listen"), FakeEngine(Dialect.VLLM, port=port):
            pass
    with FakeEngine(Dialect.VLLM, port=port) as again:
        assert again.url.endswith(str(port))


def test_it_must_run_to_be_controlled() -> None:
    with pytest.raises(UsageError, match="with statement"):
        FakeEngine(Dialect.VLLM).update("v1")


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.TRUNCATED])
def test_a_broken_connection_breaks(fault: Fault) -> None:
    with faulty(fault) as engine:
        with pytest.raises(aiohttp.ClientError):
            asyncio.run(ask(engine.url))
        assert asyncio.run(ask(engine.url))[0] == 200
        assert [entry.status for entry in engine.log] == [0 if fault is Fault.RESET else 200, 200]


def test_a_reset_is_a_reset() -> None:
    with faulty(Fault.RESET) as engine, pytest.raises((ConnectionResetError, aiohttp.ClientOSError)):
        asyncio.run(ask(engine.url))


def test_retry_after_is_sent() -> None:
    with faulty(Fault.BUSY_LATER, retry_after=1.5) as engine:
        status, _, headers = asyncio.run(ask(engine.url))
    assert (status, headers["Retry-After"]) == (429, "1.5")


def test_a_slow_first_byte_is_slow() -> None:
    with faulty(Fault.SLOW, slow=0.2) as engine:
        began = time.monotonic()
        assert asyncio.run(ask(engine.url))[0] == 200
        assert time.monotonic() - began >= 0.2


def test_times_are_taken() -> None:
    latency = Latency(queue=0.05, prefill=0.05, per_token=0.01)
    with FakeEngine(Dialect.VLLM, shape=LONG, latency=latency) as engine:
        began = time.monotonic()
        asyncio.run(ask(engine.url, 10))
        spent = time.monotonic() - began
    assert 0.2 <= spent < 0.5
    assert 0.2 <= engine.log[0].seconds < 0.5


async def _meanwhile(engine: FakeEngine, act: Any, tokens: int = 40) -> Any:
    """One generation of 0.4 s; `act` is done in a thread at its half."""
    task = asyncio.ensure_future(ask(engine.url, tokens))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(act)
    return (await task)[1]["choices"][0]


def engine() -> FakeEngine:
    return FakeEngine(Dialect.VLLM, shape=LONG, latency=Latency(per_token=0.01))


def test_new_weights_in_the_middle() -> None:
    with engine() as fake:
        choice = asyncio.run(_meanwhile(fake, lambda: fake.update("v9")))
    first, second = choice["weight_versions"]
    assert (first["version"], second["version"]) == ("default", "v9")
    assert 15 <= first["end"] <= 30
    assert first["end"] == second["start"]
    assert second["end"] == 40


def test_an_abort_in_the_middle() -> None:
    with engine() as fake:
        choice = asyncio.run(_meanwhile(fake, lambda: fake.abort("s")))
        assert fake.log[0].finish == "abort"
    assert choice["finish_reason"] == "abort"
    assert 15 <= len(choice["token_ids"]) <= 30


def test_a_pause_that_keeps_takes_no_time_of_the_generation() -> None:
    with engine() as fake:

        def pause() -> None:
            fake.pause(Pause.KEEP)
            time.sleep(0.3)
            fake.update("v2")
            fake.resume()

        choice = asyncio.run(_meanwhile(fake, pause))
        assert 0.65 <= fake.log[0].seconds < 1.2
    assert 15 <= choice["weight_versions"][0]["end"] <= 30


def test_a_pause_that_waits_lets_it_finish() -> None:
    with engine() as fake:
        choice = asyncio.run(_meanwhile(fake, lambda: fake.pause(Pause.WAIT)))
        assert (fake.running, choice["finish_reason"]) == (0, "length")


@pytest.mark.parametrize(("dialect", "left"), [(Dialect.SGLANG, 0), (Dialect.LLAMACPP, 1)])
def test_a_client_that_leaves_is_noticed_or_not(dialect: Dialect, left: int) -> None:
    paths = {
        Dialect.SGLANG: ("/generate", {"input_ids": [1], "sampling_params": {"max_new_tokens": 40}}),
        Dialect.LLAMACPP: ("/completion", {"prompt": [1], "n_predict": 40}),
    }

    async def leave(url: str) -> None:
        path, asked = paths[dialect]
        task = asyncio.ensure_future(send(url, path, asked))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.1)

    with FakeEngine(dialect, shape=LONG, latency=Latency(per_token=0.01)) as fake:
        asyncio.run(leave(fake.url))
        assert fake.log[0].cancelled
        assert fake.log[0].status is None
        assert fake.running == left
        time.sleep(0.4)
        assert fake.running == 0


def test_sglang_aborts_by_a_running_name_and_what_begins_like_it() -> None:
    shape = EngineShape(stop_ids=(99,))

    async def main(url: str) -> list[str]:
        asked = {"input_ids": [1], "sampling_params": {"max_new_tokens": 40}}
        names = ["a.1.", "a.1.2", "b.1."]
        tasks = [asyncio.ensure_future(send(url, "/generate", {**asked, "rid": name})) for name in names]
        await asyncio.sleep(0.1)
        await send(url, "/abort_request", {"rid": "a."})
        await send(url, "/abort_request", {"rid": "a.1."})
        return [(await task)[1]["meta_info"]["finish_reason"]["type"] for task in tasks]

    with FakeEngine(Dialect.SGLANG, shape=shape, latency=Latency(per_token=0.01)) as fake:
        assert asyncio.run(main(fake.url)) == ["abort", "abort", "length"]


def test_many_connections_at_once() -> None:
    async def main(url: str) -> list[int]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

            async def one() -> int:
                async with client.post(url + "/inference/v1/generate", json=body()) as reply:
                    await reply.read()
                    return reply.status

            return await asyncio.gather(*(one() for _ in range(400)))

    with FakeEngine(Dialect.VLLM, shape=LONG, latency=Latency(queue=0.5)) as fake:
        assert set(asyncio.run(main(fake.url))) == {200}
        started = [entry.started for entry in fake.log]
    assert max(started) - min(started) < 0.5
