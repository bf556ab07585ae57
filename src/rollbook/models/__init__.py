"""Model files: find, fetch and check them, and hand on tokenizer and template as bytes. Runs no model."""

from rollbook.models.bundle import ModelFiles, load_folder, load_gguf, load_model
from rollbook.models.fetch import Phase, Progress, ProgressCallback, default_cache, fetch
from rollbook.models.names import CATALOGUE, KnownModel, parse_model_name

__all__ = [
    "CATALOGUE",
    "KnownModel",
    "ModelFiles",
    "Phase",
    "Progress",
    "ProgressCallback",
    "default_cache",
    "fetch",
    "load_folder",
    "load_gguf",
    "load_model",
    "parse_model_name",
]
