"""The shipped environments. Importing this room gives them their names; a world's own module is imported when it is
made, so names are cheap.
"""

from rollbook.envs.registry import make, names, register

__all__ = ["WORLDS", "make", "names", "register"]

WORLDS: dict[str, str] = {
    "calculator": "rollbook.worlds.calculator:Calculator",
    "code": "rollbook.worlds.code:Code",
    "copy": "rollbook.worlds.copy_words:CopyWords",
    "guess": "rollbook.worlds.guess:Guess",
}
"""Shipped environments by name, as import strings."""

for _name, _target in WORLDS.items():
    register(_name, _target)
