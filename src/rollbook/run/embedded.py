"""The embedded engine for a model's files. Needs the extra ``local``, so it is imported when it is asked for."""

from __future__ import annotations

from rollbook.errors import ModelError
from rollbook.models import ModelFiles
from rollbook.policy import Policy
from rollbook.policy.local import LocalConfig, LocalPolicy

__all__ = ["open_embedded"]

CONTEXT_LENGTH = 4096
"""Tokens of context that the engine gets, or as many as the model was trained for where those are fewer."""


def open_embedded(name: str, files: ModelFiles) -> Policy:
    """The policy over `files`, not started yet. Raises `ModelError` where there are no weights."""
    if files.weights is None:
        raise ModelError(f"{files.name} holds no weights; give a model that has some")
    return LocalPolicy(
        LocalConfig(
            name=name,
            weights=files.weights,
            weights_hash=files.weights_hash or "",
            stop_ids=files.stop_ids,
            float32=files.float32,
            context_length=min(CONTEXT_LENGTH, files.context_length or CONTEXT_LENGTH),
        )
    )
