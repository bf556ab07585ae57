"""Model files: find, fetch and check them, and hand on tokenizer and template as bytes. Runs no model."""

from rollbook.models.bundle import ModelFiles, load_gguf, load_model
from rollbook.models.fetch import Phase, Progress, ProgressCallback, default_cache, fetch
from rollbook.models.folder import has_tokenizer, load_folder
from rollbook.models.names import CATALOGUE, KnownModel, parse_model_name
from rollbook.models.tiktoken_file import FAMILIES, TiktokenFamily

__all__ = [
    "CATALOGUE",
    "FAMILIES",
    "KnownModel",
    "ModelFiles",
    "Phase",
    "Progress",
    "ProgressCallback",
    "TiktokenFamily",
    "default_cache",
    "fetch",
    "has_tokenizer",
    "load_folder",
    "load_gguf",
    "load_model",
    "parse_model_name",
]
