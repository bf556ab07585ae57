"""A filter of system calls that shuts the kernel's key store. Pure.

Keys are in no namespace: who starts a command hands its session keyring on, with what lies in it, and two sandboxes of
one owner could leave each other notes there. The three calls for keys, and all calls in the manner of another kind of
processor, come back as not known here (``ENOSYS``); the rest passes.
"""

from __future__ import annotations

import struct

__all__ = ["key_filter"]

MACHINES = {"x86_64": (0xC000003E, (248, 249, 250)), "aarch64": (0xC00000B7, (217, 218, 219))}
"""By name: the kernel's number of the processor, and those of ``add_key``, ``request_key`` and ``keyctl``."""
X32 = 0x40000000
"""From here on x86_64 has a second number for each call."""
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE = 0, 4
"""Where they stand in what a filter sees."""
ALLOW, UNKNOWN = 0x7FFF0000, 0x00050000 | 38


def key_filter(machine: str) -> bytes | None:
    """A program for the kernel, of eight bytes a step; None for a machine whose numbers are not known here."""
    if machine not in MACHINES:
        return None
    architecture, calls = MACHINES[machine]
    tests = [(AT_LEAST, X32), *((EQUAL, each) for each in calls)]
    steps = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 0, len(tests) + 2, architecture), (LOAD, 0, 0, NUMBER)]
    steps += [(code, len(tests) - place, 0, value) for place, (code, value) in enumerate(tests)]
    steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, UNKNOWN)]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
