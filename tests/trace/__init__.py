# ruff: noqa: A005 (named after the room that it tests, not after the module of the standard library)
