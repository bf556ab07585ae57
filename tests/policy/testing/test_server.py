"""The fake engine over real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from rollbook.errors import UsageError
from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, Fault, FaultPlan, Latency
from rollbook.policy.weights import PauseMode
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
        assert time.monotonic() - began >= 0.2
    assert engine.log[0].seconds >= 0.2


TOKENS = 600


def engine() -> FakeEngine:
    """It takes six seconds for `TOKENS`, so that a busy machine finds it in the middle."""
    return FakeEngine(Dialect.VLLM, shape=LONG, latency=Latency(per_token=0.01))


async def _meanwhile(engine: FakeEngine, act: Callable[[], None], tokens: int = TOKENS) -> Any:
    """One generation; `act` is done in a thread once it has some tokens."""
    task = asyncio.ensure_future(ask(engine.url, tokens))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(act)
    return (await task)[1]["choices"][0]


def test_new_weights_in_the_middle() -> None:
    with engine() as fake:

        def act() -> None:
            fake.update("v9")
            time.sleep(0.1)
            fake.abort("s")

        choice = asyncio.run(_meanwhile(fake, act))
    first, second = choice["weight_versions"]
    assert (first["version"], second["version"]) == ("default", "v9")
    assert 0 < first["end"] == second["start"] < second["end"] == len(choice["token_ids"])


def test_an_abort_in_the_middle() -> None:
    with engine() as fake:
        choice = asyncio.run(_meanwhile(fake, lambda: fake.abort("s")))
        assert fake.log[0].finish == "abort"
    assert choice["finish_reason"] == "abort"
    assert 10 <= len(choice["token_ids"]) < TOKENS


def test_a_pause_that_keeps_takes_no_time_of_the_generation() -> None:
    kept = list[int]()
    with engine() as fake:

        def act() -> None:
            fake.pause(PauseMode.KEEP)
            time.sleep(0.3)
            fake.update("v2")
            time.sleep(0.3)
            fake.update("v3")
            kept.append(fake.running)
            fake.resume()
            time.sleep(0.1)
            fake.abort("s")

        choice = asyncio.run(_meanwhile(fake, act))
    assert kept == [1]
    assert [span["version"] for span in choice["weight_versions"]] == ["default", "v3"]


def test_a_pause_that_waits_lets_it_finish() -> None:
    with engine() as fake:
        choice = asyncio.run(_meanwhile(fake, lambda: fake.pause(PauseMode.WAIT), 40))
        assert (fake.running, choice["finish_reason"]) == (0, "length")


def soon(done: Callable[[], bool]) -> bool:
    """Whether `done` comes true."""
    for _ in range(1000):
        if done():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(("dialect", "left"), [(Dialect.SGLANG, 0), (Dialect.LLAMACPP, 1)])
def test_a_client_that_leaves_is_noticed_or_not(dialect: Dialect, left: int) -> None:
    paths = {
        Dialect.SGLANG: ("/generate", {"input_ids": [1], "sampling_params": {"max_new_tokens": 200}}),
        Dialect.LLAMACPP: ("/completion", {"prompt": [1], "n_predict": 200}),
    }

    async def leave(fake: FakeEngine) -> None:
        path, asked = paths[dialect]
        task = asyncio.ensure_future(send(fake.url, path, asked))
        assert await asyncio.to_thread(soon, lambda: fake.running == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with FakeEngine(dialect, shape=LONG, latency=Latency(per_token=0.01)) as fake:
        asyncio.run(leave(fake))
        assert soon(lambda: fake.log[0].cancelled)
        assert fake.log[0].status is None
        assert fake.running == left
        assert soon(lambda: fake.running == 0)


def test_sglang_aborts_by_a_running_name_and_what_begins_like_it() -> None:
    async def main(fake: FakeEngine) -> list[str]:
        asked = {"input_ids": [1], "sampling_params": {"max_new_tokens": 3000}}
        names = ["a.1.", "a.1.2", "b.1."]
        tasks = [asyncio.ensure_future(send(fake.url, "/generate", {**asked, "rid": name})) for name in names]
        assert await asyncio.to_thread(soon, lambda: fake.running == 3)
        await send(fake.url, "/abort_request", {"rid": "a."})
        assert fake.running == 3
        await send(fake.url, "/abort_request", {"rid": "a.1."})
        assert await asyncio.to_thread(soon, lambda: fake.running == 1)
        await send(fake.url, "/abort_request", {"abort_all": True})
        return [(await task)[1]["meta_info"]["finish_reason"]["type"] for task in tasks]

    with FakeEngine(Dialect.SGLANG, shape=LONG, latency=Latency(per_token=0.01)) as fake:
        assert asyncio.run(main(fake)) == ["abort"] * 3


def test_sglang_with_several_tokenizer_workers_aborts_by_any_prefix() -> None:
    async def main(fake: FakeEngine) -> str:
        asked = {"input_ids": [1], "sampling_params": {"max_new_tokens": 3000}, "rid": "a.1."}
        task = asyncio.ensure_future(send(fake.url, "/generate", asked))
        assert await asyncio.to_thread(soon, lambda: fake.running == 1)
        await send(fake.url, "/abort_request", {"rid": "a."})
        return (await task)[1]["meta_info"]["finish_reason"]["type"]

    shape = EngineShape(stop_ids=(99,), tokenizer_workers=2)
    with FakeEngine(Dialect.SGLANG, shape=shape, latency=Latency(per_token=0.01)) as fake:
        assert asyncio.run(main(fake)) == "abort"


def test_many_connections_at_once() -> None:
    async def main(fake: FakeEngine) -> list[int]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

            async def one() -> int:
                async with client.post(fake.url + "/inference/v1/generate", json=body()) as reply:
                    await reply.read()
                    return reply.status

            tasks = [asyncio.ensure_future(one()) for _ in range(400)]
            assert await asyncio.to_thread(soon, lambda: fake.running == 400)
            assert fake.connections == 400
            fake.abort("")
            return await asyncio.gather(*tasks)

    with FakeEngine(Dialect.VLLM, shape=LONG, latency=Latency(queue=60.0)) as fake:
        assert asyncio.run(main(fake)) == [200] * 400
