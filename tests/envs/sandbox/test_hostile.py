"""What runs inside can harm neither the host nor its neighbours, and each way to blow up has its cause."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.envs.sandbox import Cause, ExecResult, Sandbox
from rollbook.envs.sandbox.namespaces import Namespaces, this_host
from tests.envs.sandbox.made import LIMITS, MIB, SHELL, TAG, provider, use

Inside = Callable[..., Any]


def shell(inside: Inside, script: str, *, seconds: float = 20.0, **more: Any) -> ExecResult:
    async def work(box: Sandbox) -> ExecResult:
        return await box.exec([*SHELL, script], seconds=seconds)

    return inside(work, **more)


def commands() -> str:
    """The command lines of everything that runs on this machine."""
    found: list[str] = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(each.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def test_the_network_is_off(inside: Inside) -> None:
    done = shell(inside, "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '")
    assert done.stdout == b"lo\n"


def test_a_service_of_the_host_is_not_reached(inside: Inside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 3)"
        done = shell(inside, f'python3 -c "{code}"')
        assert done.status == 1, done
        assert b"OSError" in done.stderr or b"Error" in done.stderr
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_network_is_there_when_asked_for(inside: Inside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        got: list[bytes] = []

        def serve() -> None:
            with server.accept()[0] as peer:
                got.append(peer.recv(5))

        thread = threading.Thread(target=serve)
        thread.start()
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 3).sendall(b'hello')"
        done = shell(inside, f'python3 -c "{code}"', network=True)
        thread.join()
    assert done.ok, done
    assert got == [b"hello"]


def test_nothing_outside_the_workspace_can_be_written(inside: Inside, tmp_path: Path) -> None:
    outside = tmp_path / "open" / "host"
    outside.parent.mkdir()
    outside.parent.chmod(0o777)
    outside.write_text("mine")
    outside.chmod(0o666)
    places = ["/x", "/usr/x", "/etc/x", "/dev/x", "/proc/x", "/root/x", "/home/x", "/var/x", str(outside)]
    script = "; ".join(f"( : > {place} ) 2>/dev/null && echo wrote {place}" for place in places)
    done = shell(inside, f"{script}; : > /workspace/a && : > /tmp/b && : > /dev/shm/c && echo done")
    assert done.stdout == b"done\n"
    assert outside.read_text() == "mine"
    assert not Path("/tmp/b").exists()


def test_the_kernels_settings_cannot_be_written(inside: Inside) -> None:
    own = Path("/proc/sys/kernel/core_pattern").read_text()
    done = shell(
        inside, "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do echo h 2>/dev/null >> $f; done"
    )
    assert not done.ok
    assert Path("/proc/sys/kernel/core_pattern").read_text() == own


def test_the_hosts_files_environment_and_processes_are_not_seen(inside: Inside) -> None:
    os.environ["ROLLBOOK_TEST_SECRET"] = "s3cret"
    try:
        done = shell(
            inside,
            "ls -d /home /root /var /etc/passwd /sys 2>/dev/null; ls /proc | grep -c '^[0-9]'; env; "
            "cat /proc/1/environ /proc/self/environ",
        )
    finally:
        del os.environ["ROLLBOOK_TEST_SECRET"]
    assert b"/etc/passwd" not in done.stdout
    assert b"/home" not in done.stdout
    assert b"/root" not in done.stdout
    assert b"s3cret" not in done.stdout
    assert int(done.stdout.split()[0]) < 8


def test_there_are_no_rights_and_none_to_be_had(inside: Inside) -> None:
    done = shell(
        inside,
        "id -u; grep -E '^(CapPrm|CapEff|NoNewPrivs)' /proc/self/status; "
        "unshare -Ur mount --bind /tmp /usr && echo mounted; mount -o remount,rw /usr && echo remounted; "
        "chroot / true && echo chrooted; true",
    )
    lines = done.stdout.decode().split("\n")
    assert lines[0] == "65534"
    assert [line.split() for line in lines[1:4]] == [["CapPrm:", "0" * 16], ["CapEff:", "0" * 16], ["NoNewPrivs:", "1"]]
    assert lines[4:] == [""]


def test_a_namespace_in_the_namespace_gives_no_memory_that_nothing_bounds(usual: Namespaces, tmp_path: Path) -> None:
    async def work(box: Sandbox) -> ExecResult:
        return await box.exec(
            [*SHELL, "unshare -Urm sh -c 'mount -t tmpfs -o size=1m tmpfs /workspace && echo mounted'"]
        )

    done = use(tmp_path, usual, work)
    assert (done.stdout, done.status) == (b"", 1)


KEYS = """
import ctypes
call = ctypes.CDLL(None, use_errno=True).syscall
number = dict(x86_64=(248, 250), aarch64=(217, 219))[__import__('os').uname().machine]
print(call(number[0], b'user', b'note', b'x', 1, -3), ctypes.get_errno(), call(number[1], 0, -3, 1), ctypes.get_errno())
"""


def test_the_keys_of_the_owner_are_shut(tmp_path: Path) -> None:
    made = provider("bubblewrap-user")
    if made is None or this_host().sieve is None:
        pytest.skip("bubblewrap with user namespaces does not work here, or the machine's system calls are not known")

    async def work(box: Sandbox) -> bytes:
        return (await box.exec(["python3", "-c", KEYS])).stdout

    assert use(tmp_path, made, work) == b"-1 38 -1 38\n"


def test_a_memory_bomb_is_told_by_its_groups(inside: Inside) -> None:
    async def work(box: Sandbox) -> tuple[bool, ExecResult, ExecResult]:
        bomb = await box.exec(["python3", "-c", f"x = bytearray({400 * MIB}); print(len(x))"], seconds=20.0)
        return box.info.groups, bomb, await box.exec(["true"])

    groups, bomb, after = inside(work)
    assert bomb.cause is (Cause.MEMORY if groups else Cause.EXITED), bomb
    assert bomb.stdout == b""
    assert after.ok


def test_a_fork_bomb(inside: Inside) -> None:
    script = f"i=0; while [ $i -lt 200 ]; do sleep 31.{TAG} & i=$((i+1)); done; echo all"

    async def work(box: Sandbox) -> tuple[ExecResult, ExecResult, str]:
        bomb = await box.exec([*SHELL, script], seconds=20.0)
        return bomb, await box.exec(["true"]), commands()

    bomb, after, running = inside(work)
    assert bomb.cause is Cause.PROCESSES, bomb
    assert b"all" not in bomb.stdout
    assert after.ok
    assert f"31.{TAG}" not in running


FULL = (
    "i=0; while [ $i -lt 40 ]; do head -c 1M /dev/zero > f$i || exit 1; i=$((i+1)); done",
    "cd /tmp; i=0; while [ $i -lt 40 ]; do head -c 1M /dev/zero > f$i || exit 1; i=$((i+1)); done",
    "cd /dev/shm; i=0; while [ $i -lt 40 ]; do head -c 1M /dev/zero > f$i || exit 1; i=$((i+1)); done",
    "i=0; while [ $i -lt 1000 ]; do : > f$i || exit 1; i=$((i+1)); done",
    "exec head -c 40M /dev/zero > big",
)


def test_a_full_disk(inside: Inside) -> None:
    async def work(box: Sandbox) -> list[ExecResult]:
        found: list[ExecResult] = []
        for script in FULL:
            found.append(await box.exec([*SHELL, script], seconds=20.0))
            assert (await box.exec([*SHELL, "rm -rf /workspace/* /tmp/* /dev/shm/*"])).ok
        return found

    before = os.statvfs("/")
    for script, done in zip(FULL, inside(work), strict=True):
        assert done.cause is Cause.DISK, (script, done)
    assert before.f_bavail - os.statvfs("/").f_bavail < 64 * MIB / before.f_frsize


def test_a_flood_of_output_is_cut_counted_and_ended(inside: Inside) -> None:
    done = shell(inside, "head -c 200M /dev/zero")
    assert done.cause is Cause.OUTPUT, done
    assert len(done.stdout) == LIMITS.output
    assert LIMITS.flood <= len(done.stdout) + done.stdout_lost < 80 * MIB
    assert done.status is None


def test_more_output_than_is_kept_is_counted_exactly(inside: Inside) -> None:
    done = shell(inside, "head -c 100000 /dev/zero | tr '\\0' a; head -c 5000 /dev/zero | tr '\\0' b >&2")
    assert (done.ok, done.cut) == (True, True)
    assert done.stdout == b"a" * LIMITS.output
    assert done.stdout_lost == 100000 - LIMITS.output
    assert done.stderr == b"b" * LIMITS.output
    assert done.stderr_lost == 5000 - LIMITS.output


def test_who_ignores_every_signal_is_ended_in_time(inside: Inside) -> None:
    script = f"trap '' TERM INT HUP QUIT; (trap '' TERM HUP; setsid sleep 41.{TAG}) & while :; do sleep 0.05; done"

    async def work(box: Sandbox) -> tuple[ExecResult, str]:
        return await box.exec([*SHELL, script], seconds=0.5), commands()

    started = time.monotonic()
    done, running = inside(work)
    assert time.monotonic() - started < 5
    assert (done.cause, done.status, done.signal) == (Cause.TIME, None, 9)
    assert f"41.{TAG}" not in running


def test_what_runs_on_in_the_background_ends_with_its_command(inside: Inside) -> None:
    async def work(box: Sandbox) -> tuple[ExecResult, str]:
        done = await box.exec([*SHELL, f"sleep 51.{TAG} & setsid sleep 51.{TAG} > /dev/null 2>&1 & echo started"])
        return done, commands()

    done, running = inside(work)
    assert (done.ok, done.stdout) == (True, b"started\n")
    assert done.seconds < 5
    assert f"51.{TAG}" not in running


def test_processor_time_is_bounded(usual: Namespaces, tmp_path: Path) -> None:
    async def work(box: Sandbox) -> ExecResult:
        limits = msgspec.structs.replace(LIMITS, cpu=1)
        return await box.exec([*SHELL, "while :; do :; done"], seconds=20.0, limits=limits)

    done = use(tmp_path, usual, work)
    assert (done.cause, done.signal) == (Cause.CPU, 24)
    assert 0.5 < done.cpu < 3


def test_killing_the_first_process_inside_changes_nothing(inside: Inside) -> None:
    done = shell(inside, "kill -9 1; kill -9 -1; kill -STOP 1; exit 7")
    assert done.status == 7 or done.signal == 9, done


def test_who_shuts_its_own_workspace_loses_no_host(inside: Inside) -> None:
    async def work(box: Sandbox) -> ExecResult:
        await box.exec([*SHELL, "chmod 0 /workspace /tmp /dev/shm"])
        return await box.exec([*SHELL, "chmod 700 /workspace"])

    done = inside(work)
    assert done.cause is Cause.EXITED
    assert done.status in (0, 126)  # the first process of one kind may enter everything
