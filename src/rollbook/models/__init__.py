"""Model files: find, fetch and check them, and hand on tokenizer and template as bytes. Runs no model."""

from rollbook.models.bundle import ModelFiles, load_gguf, load_model
from rollbook.models.fetch import Phase, Progress, ProgressCallback, default_cache, fetch
from rollbook.models.folder import has_tokenizer, load_folder
from rollbook.models.gguf_tensors import read_tensors, write_gguf
from rollbook.models.hf_folder import write_hf_folder
from rollbook.models.names import CATALOGUE, SHIPPED, KnownModel, ShippedModel, parse_model_name
from rollbook.models.tiktoken_file import FAMILIES, TiktokenFamily

__all__ = [
    "CATALOGUE",
    "FAMILIES",
    "SHIPPED",
    "KnownModel",
    "ModelFiles",
    "Phase",
    "Progress",
    "ProgressCallback",
    "ShippedModel",
    "TiktokenFamily",
    "default_cache",
    "fetch",
    "has_tokenizer",
    "load_folder",
    "load_gguf",
    "load_model",
    "parse_model_name",
    "read_tensors",
    "write_gguf",
    "write_hf_folder",
]
