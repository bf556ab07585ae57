"""The real renderer that the audit's tests share with the cases."""

from __future__ import annotations

from tests.cases.conftest import qwen as qwen
