"""The command line: thin commands over the public API."""

from rollbook.cli.app import app, main

__all__ = ["app", "main"]
