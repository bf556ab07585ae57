"""The filter, run step by step as the kernel would."""

from __future__ import annotations

import struct

import pytest

from rollbook.envs.sandbox.syscalls import key_filter

X86, ARM, I386 = 0xC000003E, 0xC00000B7, 0x40000003
ALLOW, UNKNOWN = 0x7FFF0000, 0x00050026


def verdict(program: bytes, architecture: int, number: int) -> int:
    steps, at, held = list(struct.iter_unpack("<HBBI", program)), 0, 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x20:
            held = {0: number, 4: architecture}[value]
        elif code == 0x15:
            at += yes if held == value else no
        elif code == 0x35:
            at += yes if held >= value else no
        else:
            assert code == 0x06
            return value


@pytest.mark.parametrize(
    ("machine", "architecture", "shut"), [("x86_64", X86, {248, 249, 250}), ("aarch64", ARM, {217, 218, 219})]
)
def test_three_calls_are_shut_and_the_rest_passes(machine: str, architecture: int, shut: set[int]) -> None:
    program = key_filter(machine)
    assert program is not None
    assert {n for n in range(600) if verdict(program, architecture, n) != ALLOW} == shut
    assert {verdict(program, architecture, n) for n in shut} == {UNKNOWN}
    assert verdict(program, architecture, 0x40000000 + 250) == UNKNOWN
    assert {verdict(program, I386, n) for n in range(400)} == {UNKNOWN}


def test_an_unknown_machine_has_none() -> None:
    assert key_filter("riscv64") is None
