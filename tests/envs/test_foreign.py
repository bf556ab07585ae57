"""Running code that is not ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from rollbook.envs.foreign import ForeignError, call_foreign, one_line
from rollbook.errors import RecordError
from rollbook.trace.ending import Reason, RolloutFailure


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class Panic(BaseException):
    pass


async def give(value: object) -> object:
    return value


async def fail(error: BaseException) -> None:
    raise error


async def never() -> None:
    await asyncio.Event().wait()


async def stubborn() -> str:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "late"


def run(function: Callable[..., Awaitable[object]], *given: object, seconds: float | None = 5.0) -> object:
    return asyncio.run(call_foreign(seconds, function, *given))


def test_a_value_comes_back() -> None:
    assert run(give, 3) == 3
    assert run(give, 3, seconds=None) == 3


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad\n value"), "ValueError: bad value"),
        (KeyError(), r"KeyError: KeyError\(\)"),
        (TimeoutError("its own"), "TimeoutError: its own"),
        (RecordError("of ours"), "RecordError: of ours"),
        (SystemExit(0), "SystemExit: 0"),
        (Panic("compiled code"), "Panic: compiled code"),
        (Mute(), r"Mute: \(its text cannot be made\)"),
    ],
)
def test_what_it_raises_becomes_one_line(error: BaseException, text: str) -> None:
    with pytest.raises(ForeignError, match=f"^{text}$"):
        run(fail, error)


def test_the_text_is_bounded() -> None:
    assert one_line("a\r\n\tb  c") == "a b c"
    with pytest.raises(ForeignError) as caught:
        run(fail, ValueError("x" * 10_000))
    assert len(str(caught.value)) == 400
    assert str(caught.value).endswith("...")


@pytest.mark.parametrize("code", [never, stubborn])
def test_the_limit_of_time_holds_and_a_late_result_does_not_count(code: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(ForeignError, match=r"did not return within 0\.01 s"):
        run(code, seconds=0.01)


def test_a_rollout_failure_passes() -> None:
    with pytest.raises(RolloutFailure, match="the host is gone"):
        run(fail, RolloutFailure(Reason.SANDBOX_LOST, "the host is gone"))


def test_a_rollout_failure_passes_out_of_a_group() -> None:
    inner = ExceptionGroup("inner", [ValueError("x"), RolloutFailure(Reason.SANDBOX_LOST, "gone")])
    with pytest.raises(RolloutFailure, match="gone"):
        run(fail, ExceptionGroup("outer", [inner]))
    with pytest.raises(ForeignError, match="ExceptionGroup"):
        run(fail, ExceptionGroup("outer", [ValueError("x")]))


def test_a_cancellation_of_the_caller_passes_and_reaches_the_code() -> None:
    reached: list[str] = []

    async def code() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reached.append("code")

    async def main() -> None:
        task = asyncio.create_task(call_foreign(5.0, code))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert reached == ["code"]


def test_a_cancellation_that_the_code_brought_on_itself_is_its_failure() -> None:
    with pytest.raises(ForeignError, match="cancelled itself"):
        run(fail, asyncio.CancelledError())


def test_ctrl_c_passes() -> None:
    async def main() -> None:
        with pytest.raises(KeyboardInterrupt):
            await call_foreign(5.0, fail, KeyboardInterrupt())

    asyncio.run(main())
