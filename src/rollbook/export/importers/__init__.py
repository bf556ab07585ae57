"""Others' records as traces: one small module for each form, with its convention and source."""

from rollbook.export.importers.book import Book, file_hash
from rollbook.export.importers.reading import ReadReport, read_into
from rollbook.export.importers.rows import BadRow
from rollbook.export.importers.table import IMPORTERS, Importer, find_importer, guess_form

__all__ = [
    "IMPORTERS",
    "BadRow",
    "Book",
    "Importer",
    "ReadReport",
    "file_hash",
    "find_importer",
    "guess_form",
    "read_into",
]
