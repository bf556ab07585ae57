"""Which model files a name means: those at a path, or those of a policy. Text that is spelled like a policy (``local``,
or with a colon) is one, whatever lies in the working folder; a path that looks like that is given as a `Path`."""

from __future__ import annotations

from pathlib import Path

from rollbook.errors import UsageError
from rollbook.models import ModelFiles, ProgressCallback, has_tokenizer, load_folder, load_gguf, load_model
from rollbook.policy import LocalName, PolicyName, ScriptedName
from rollbook.policy.names import DEFAULT_MODEL

__all__ = ["files_at", "files_of", "spells_policy"]


def spells_policy(name: str | Path) -> bool:
    """True for ``local`` and for what has a colon."""
    return not isinstance(name, Path) and (name == "local" or ":" in name)


def files_at(path: Path, cache: Path) -> ModelFiles:
    """The tokenizer folder (or the tokenizer file) or the GGUF file at `path`. Raises `ModelError`."""
    return load_gguf(path, cache) if path.suffix == ".gguf" and not path.is_dir() else load_folder(path)


def files_of(name: PolicyName, cache: Path, progress: ProgressCallback | None) -> ModelFiles:
    """The model files of a policy, fetched into `cache` if need be. Raises `UsageError`."""
    match name:
        case LocalName(model):
            return load_model(model, cache, progress)
        case ScriptedName(path) if has_tokenizer(path.parent):
            return load_folder(path.parent)
        case ScriptedName():
            return load_model(DEFAULT_MODEL, cache, progress)
        case _:
            raise UsageError(f"policy '{name}' has no files of its own: its tokenizer is named beside it")
