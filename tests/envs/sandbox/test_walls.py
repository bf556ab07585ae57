"""Ways out of a sandbox that are none: other sockets than TCP, other processes' roots, descriptors, sums over many
processes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.envs.sandbox import Cause, ExecResult, FileRefused, Sandbox
from tests.envs.sandbox.made import LIMITS, MIB, SHELL, TAG

Inside = Callable[..., Any]


def run(inside: Inside, *argv: str, **more: Any) -> ExecResult:
    async def work(box: Sandbox) -> ExecResult:
        return await box.exec(argv, seconds=20.0)

    return inside(work, **more)


REACH = """
import socket, sys
name, port, there = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def tried(what, family, kind, address):
    try:
        with socket.socket(family, kind) as one:
            one.settimeout(2)
            one.connect(address)
            one.send(b"x")
            print(what, "sent")
    except OSError:
        pass
tried("abstract", socket.AF_UNIX, socket.SOCK_STREAM, chr(0) + name)
tried("path", socket.AF_UNIX, socket.SOCK_STREAM, there)
tried("udp", socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", port))
tried("tcp", socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", port))
tried("six", socket.AF_INET6, socket.SOCK_DGRAM, ("2001:db8::1", port))
try:
    print(socket.getaddrinfo("example.com", 80), "resolved")
except OSError:
    pass
print("done")
"""


def test_no_socket_leads_out(inside: Inside, tmp_path: Path) -> None:
    """Abstract names of the host, its sockets in folders, datagrams, names; a loopback of its own is all there is."""
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(f"\0rollbook-{TAG}")
        named.bind(str(tmp_path / "s"))
        for each in (abstract, named):
            each.listen()
            each.settimeout(0.1)
        done = run(inside, "python3", "-c", REACH, f"rollbook-{TAG}", "53", str(tmp_path / "s"))
        assert (done.ok, done.stdout) == (True, b"done\n"), done
        for each in (abstract, named):
            with pytest.raises(TimeoutError):
                each.accept()


ROOTS = """
for each in /proc/[0-9]*; do
    for way in root cwd; do
        for up in "" /.. /../..; do
            [ -e "$each/$way$up$1" ] && echo "$each/$way$up"
        done
    done
done
cd /proc/self/cwd/../../../.. && [ -e ".$1" ] && echo up
echo done
"""


def test_no_process_inside_has_a_root_outside(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    done = run(inside, *SHELL, ROOTS, "sh", str(tmp_path / "mine"))
    assert (done.ok, done.stdout) == (True, b"done\n"), done


def test_no_descriptor_of_the_host_is_open_inside(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("s3cret")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        done = run(inside, "python3", "-c", "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])")
    finally:
        os.close(descriptor)
    assert done.stdout == b"[0, 1, 2]\n", done


def test_a_link_that_takes_the_place_of_a_folder_is_not_followed(inside: Inside, tmp_path: Path) -> None:
    """While files are read and written, a command swaps the folder for a link to one outside."""
    (tmp_path / "f").write_text("s3cret")
    swap = f"while :; do mv d e; ln -s {tmp_path} d; rm d; mv e d; done"

    async def work(box: Sandbox) -> list[bytes]:
        await box.write("d/f", b"inside")
        command = asyncio.create_task(box.exec([*SHELL, swap], seconds=1.0))
        found: list[bytes] = []
        while not command.done():
            await asyncio.sleep(0)
            for act in (lambda: box.read("d/f", 99), lambda: box.write("d/f", b"inside")):
                try:
                    found.append(await act() or b"inside")
                except FileRefused:
                    continue
        assert (await command).cause is Cause.TIME
        return found

    assert set(inside(work)) == {b"inside"}
    assert (tmp_path / "f").read_text() == "s3cret"


PART = "import time; x = bytearray(b'+') * (16 << 20); time.sleep(3)"
PARTS = f"""
i=0; all=
while [ $i -lt 6 ]; do python3 -c "{PART}" & all="$all $!"; i=$((i+1)); done
for each in $all; do wait $each || exit 9; done
"""


def test_memory_is_bounded_over_all_processes(inside: Inside) -> None:
    """Each of them takes less than the bound; all together take more."""

    async def work(box: Sandbox) -> tuple[bool, ExecResult]:
        return box.info.groups, await box.exec([*SHELL, PARTS], seconds=20.0)

    groups, done = inside(work)
    if not groups:
        pytest.skip("this machine grants no control groups; each process is bounded by itself")
    assert done.cause is Cause.MEMORY, done


def test_a_flood_of_errors_is_bounded_as_one_of_output(inside: Inside) -> None:
    for script in ("head -c 200M /dev/zero >&2", "head -c 100M /dev/zero & head -c 100M /dev/zero >&2; wait"):
        done = run(inside, *SHELL, script)
        assert done.cause is Cause.OUTPUT, done
        assert max(len(done.stdout), len(done.stderr)) <= LIMITS.output
        assert done.stdout_lost + done.stderr_lost < 80 * MIB


def test_time_ends_a_command_that_reads_and_one_that_is_stopped(inside: Inside) -> None:
    async def work(box: Sandbox) -> list[ExecResult]:
        stopped = f"sleep 42.{TAG} & kill -STOP $$"
        return [await box.exec([*SHELL, each], seconds=0.5) for each in ("exec tail -f /dev/null", stopped)]

    for done in inside(work):
        assert (done.cause, done.status) == (Cause.TIME, None), done
        assert done.seconds < 5


def test_a_bound_of_one_command_holds_for_it(inside: Inside) -> None:
    async def work(box: Sandbox) -> list[ExecResult]:
        limits = msgspec.structs.replace(LIMITS, output=10)
        return [await box.exec(["printf", "%s", "z" * 50], limits=limits), await box.exec(["printf", "%s", "z" * 50])]

    small, usual = inside(work)
    assert (small.stdout, small.stdout_lost) == (b"z" * 10, 40)
    assert (usual.stdout, usual.stdout_lost) == (b"z" * 50, 0)
