"""The table of forms: one row for each way in which samples are written.

Rules: a form's module is loaded only when the form is used, for it may need an extra; a form takes samples one at a
time and never sees a trace. A new form is a module with `open_writer` and one row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import BinaryIO, Protocol, cast, runtime_checkable

from rollbook.errors import UsageError, optional
from rollbook.trace.sample import Sample
from rollbook.trace.sample_block import SampleBlock

__all__ = ["FORMS", "BlockWriter", "Form", "Writer", "open_writer"]


class Writer(Protocol):
    """Writes samples into one open file."""

    def write(self, sample: Sample) -> None:
        """Take one sample."""
        ...

    def finish(self) -> None:
        """Write what is still held; the file is then complete. Not called after an error."""
        ...

    def release(self) -> None:
        """Let go of the file without another byte. Called last, also after `finish` and after an error; raises
        nothing."""
        ...


@runtime_checkable
class BlockWriter(Writer, Protocol):
    """A writer that takes several samples at once."""

    def write_block(self, block: SampleBlock) -> None:
        """Take the samples of a block, in their order."""
        ...


class _FormModule(Protocol):
    def open_writer(self, file: BinaryIO) -> Writer: ...


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write samples."""

    name: str
    about: str
    """One sentence."""
    module: str
    """Where its `open_writer` is."""
    needs: str | None = None
    """The package that an extra brings."""
    extra: str | None = None
    """The extra; None: nothing beyond the install."""


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        form.name: form
        for form in (
            Form("jsonl", "One sample per line, as JSON.", "rollbook.export.jsonl"),
            Form("arrow", "One sample per row, an Arrow stream.", "rollbook.export.arrow", "pyarrow", "parquet"),
            Form("parquet", "One sample per row, arrays as lists.", "rollbook.export.parquet", "pyarrow", "parquet"),
            Form("slime", "A debug rollout file, from which slime and Miles train.", "rollbook.export.slime_file"),
        )
    }
)
"""All forms by name."""


def find_form(name: str) -> Form:
    """A form by name; raises `UsageError` with the names there are."""
    form = FORMS.get(name)
    if form is None:
        raise UsageError(f"no form {name!a}; forms: {', '.join(sorted(FORMS))}")
    return form


def open_writer(form: Form, file: BinaryIO) -> Writer:
    """A writer of this form; raises `UsageError` where its extra is not installed."""
    says = (
        f"the form '{form.name}' needs {form.needs}, which is not installed: run pip install '.[{form.extra}]' in "
        "Rollbook's checkout"
    )
    packages = () if form.needs is None else (form.needs,)
    module = optional(form.module, *packages, says=lambda error: says)
    return cast("_FormModule", module).open_writer(file)
