"""Files go in and come out as bytes; what is no plain file, or lies behind a link, does not."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rollbook.envs.sandbox import FileRefused, Sandbox
from rollbook.envs.sandbox.files import parts_of, read_beneath
from tests.envs.sandbox.made import MIB, SHELL

Inside = Callable[..., Any]
TRICKS = {
    "a link to a file of the host": ("ln -s /etc/passwd it", "it"),
    "a link to a file inside": ("echo x > real; ln -s real it", "it"),
    "a link to a folder": ("ln -s / it", "it/etc/passwd"),
    "a link to a folder inside": ("mkdir real; echo x > real/f; ln -s real it", "it/f"),
    "a link through /proc": ("ln -s /proc/self/root it", "it/etc/passwd"),
    "a link to itself": ("ln -s it it", "it"),
    "a pipe": ("mkfifo it", "it"),
    "a folder": ("mkdir it", "it"),
    "a file as a folder": ("echo x > it", "it/f"),
    "a huge file with nothing in it": ("truncate -s 7G it 2>/dev/null || truncate -s 7M it", "it"),
    "a socket": (
        "python3 -c \"import socket; s = socket.socket(socket.AF_UNIX); s.bind('it')\"",
        "it",
    ),
    "nothing": ("true", "it"),
}
PATHS = ["", "/etc/passwd", "../it", "a/../../it", "a/..", ".", "./", "a\0b"]


def test_tricks(inside: Inside) -> None:
    async def work(box: Sandbox) -> None:
        script = "; ".join(f"(mkdir {n}; cd {n}; {trick}) || exit 1" for n, (trick, _) in enumerate(TRICKS.values()))
        assert (await box.exec([*SHELL, script])).ok
        for number, (trick, (_, path)) in enumerate(TRICKS.items()):
            with pytest.raises(FileRefused):
                raise AssertionError(trick, await asyncio.wait_for(box.read(f"{number}/{path}", MIB), 5))

    inside(work)


def test_bytes_go_in_and_come_out(inside: Inside) -> None:
    data = bytes(range(256)) * 4096

    async def work(box: Sandbox) -> None:
        await box.write("deep/er/-name with 'quotes'", data)
        assert await box.read("deep/er/-name with 'quotes'", len(data)) == data
        with pytest.raises(FileRefused, match="more than"):
            await box.read("deep/er/-name with 'quotes'", len(data) - 1)
        await box.write("empty", b"")
        assert await box.read("empty", 0) == b""
        assert (await box.exec(["cat", "deep/er/-name with 'quotes'"])).stdout == data[:4096]

    inside(work)


def test_a_file_of_the_workspace_stays_for_the_next_command(inside: Inside) -> None:
    async def work(box: Sandbox) -> bytes:
        await box.exec([*SHELL, "echo one > file"])
        return (await box.exec(["cat", "file"])).stdout

    assert inside(work) == b"one\n"


def test_writing_cannot_leave_the_workspace_or_overfill_it(inside: Inside) -> None:
    async def work(box: Sandbox) -> None:
        await box.exec([*SHELL, "ln -s /usr/lib/it it; ln -s / up"])
        for path in ("it", "up/it", *PATHS):
            with pytest.raises(FileRefused):
                await box.write(path, b"x")
        with pytest.raises(FileRefused, match="disk is full"):
            await box.write("big", bytes(12 * MIB))

    inside(work)
    assert not Path("/usr/lib/it").exists()


@pytest.mark.parametrize("path", PATHS)
def test_paths_that_lead_elsewhere(path: str, tmp_path: Path) -> None:
    (tmp_path / "it").write_text("x")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(FileRefused):
            read_beneath(folder, path, 10)
        with pytest.raises(FileRefused):
            parts_of(path) if path not in (".", "./") else read_beneath(folder, path, 10)
    finally:
        os.close(folder)


def test_a_device_is_no_file() -> None:
    folder = os.open("/dev", os.O_RDONLY)
    try:
        with pytest.raises(FileRefused, match="not a plain file"):
            read_beneath(folder, "zero", 10)
    finally:
        os.close(folder)


def test_a_file_that_grows_while_it_is_read_is_refused() -> None:
    folder = os.open("/proc/self", os.O_RDONLY)  # files there say that they are empty
    try:
        with pytest.raises(FileRefused, match="more than 3 bytes"):
            read_beneath(folder, "status", 3)
    finally:
        os.close(folder)


def test_a_path_of_many_folders_takes_two_descriptors(tmp_path: Path) -> None:
    path = "/".join("d" * 300)
    (tmp_path / path).mkdir(parents=True)
    (tmp_path / path / "f").write_bytes(b"x")
    folder = os.open(tmp_path, os.O_RDONLY)
    bounds = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 4, bounds[1]))
        assert read_beneath(folder, f"{path}/f", 1) == b"x"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)
        os.close(folder)


def test_a_file_is_not_written_into_a_pipe(inside: Inside) -> None:
    async def work(box: Sandbox) -> None:
        await box.exec(["mkfifo", "it"])
        with pytest.raises(FileRefused):
            await asyncio.wait_for(box.write("it", b"x"), 20)

    inside(work)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "f").write_bytes(b"x")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        before = len(os.listdir("/proc/self/fd"))
        assert read_beneath(folder, "a/b/f", 1) == b"x"
        for path in ("a/b/g", "a/c/f", "a/b"):
            with pytest.raises(FileRefused):
                read_beneath(folder, path, 1)
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        os.close(folder)
