"""The boundary to foreign code."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.errors import ModelError, StoreError, UsageError, behind, boundary, optional, told


def test_a_panic_of_a_rust_library_is_an_error_like_any_other() -> None:
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    with pytest.raises(ModelError, match="the library: PanicException: no entry"), boundary("the library", ModelError):
        raise panic("no entry")


def test_what_ends_the_process_passes() -> None:
    with pytest.raises(KeyboardInterrupt), boundary("the library", ModelError):
        raise KeyboardInterrupt


def test_what_fails_behind_a_failure_is_noted_on_it() -> None:
    cause = StoreError("the disk is full")
    with behind(cause):
        raise StoreError("the run cannot be copied")
    assert told(cause) == "the disk is full\nBehind it, the run cannot be copied"
    assert told(StoreError("alone")) == "alone"


@pytest.mark.parametrize("cause", [None, asyncio.CancelledError(), KeyboardInterrupt()])
def test_what_fails_behind_no_failure_is_raised(cause: BaseException | None) -> None:
    with pytest.raises(StoreError, match="cannot be copied"), behind(cause):
        raise StoreError("the run cannot be copied")


def test_only_a_package_that_is_optional_may_be_missing() -> None:
    def says(error: ModuleNotFoundError) -> str:
        return f"{error.name} is missing; install it"

    assert optional("rollbook.errors", says=says).UsageError is UsageError
    with pytest.raises(UsageError, match=r"rollbook_none is missing; install it"):
        optional("rollbook_none.inner", "other", "rollbook_none", says=says)
    with pytest.raises(ModuleNotFoundError):
        optional("rollbook.none", "other", says=says)
