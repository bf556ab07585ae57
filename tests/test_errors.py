"""The boundary to foreign code."""

from __future__ import annotations

import pytest

from rollbook.errors import ModelError, boundary


def test_a_panic_of_a_rust_library_is_an_error_like_any_other() -> None:
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    with pytest.raises(ModelError, match="the library: PanicException: no entry"), boundary("the library", ModelError):
        raise panic("no entry")


def test_what_ends_the_process_passes() -> None:
    with pytest.raises(KeyboardInterrupt), boundary("the library", ModelError):
        raise KeyboardInterrupt
