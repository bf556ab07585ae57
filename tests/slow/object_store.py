"""SIGKILL workers that mirror their parts to an S3 server; then check that nothing which was mirrored is gone.

    python -m tests.slow.object_store [--venv FOLDER] [--kills N] [--seed N]

The server is moto's, installed into an environment of its own (by default ``.venv-moto`` in the checkout). Three
workers write into spool folders and mirror their own part, each saying a rollout only when it is mirrored; they are
killed at random moments and begun again on the same spool. All the while no object may change or go. Prints a JSON
report; exit code 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from rollbook.run import open_run
from rollbook.store import Manifest, RunWriter, StoreOptions, create_spool, read_manifest
from rollbook.store.mirror import ObjectMirror
from rollbook.store.objects import Objects
from tests.store.made import add_turn, content, finish, new_trace

ROOT = Path(__file__).resolve().parents[2]
MOTO = "moto[s3,server]==5.2.5"
OPTIONS = StoreOptions(segment_bytes=60_000, journal_bytes=60_000)
WORKERS = ("w0", "w1", "w2")
URL = "s3://rollbook-test/runs/demo"
PIECE = 20_000


def work(spool: Path, name: str, life: int) -> None:
    """The victim: repair what the last one left, then seal rollouts without end, saying each that is mirrored."""
    with RunWriter.join(spool, name, options=OPTIONS) as writer:
        writer.seal_interrupted()
        mirror = ObjectMirror(spool, URL, part=name, piece_bytes=PIECE)
        say("ready", life)
        for number in range(10**9):
            trace = new_trace(f"{name}-{life}-{number}", number)
            writer.begin(trace)
            add_turn(trace, number, tokens=random.Random(number).choice((4, 400, 4000)))
            writer.turn(trace)
            if number % 4:
                writer.seal(finish(trace))
            mirror.sync()
            if number % 4:
                say("mirrored", trace.id)


def say(word: str, value: object) -> None:
    """One line, in one write."""
    os.write(1, f"{word} {value}\n".encode())


@contextmanager
def s3_server(environment: Path) -> Iterator[str]:
    """A server with one bucket; its address."""
    program = environment / "bin" / "moto_server"
    if not program.exists():
        venv.create(environment, with_pip=True)
        install = [environment / "bin" / "python", "-m", "pip", "--quiet", "install", MOTO]
        subprocess.run(install, check=True, stdout=sys.stderr)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        make_bucket(address)
        yield address
    finally:
        server.terminate()
        server.wait()


def make_bucket(address: str) -> None:
    """Wait for the server and make the bucket."""
    request = urllib.request.Request(f"{address}/rollbook-test", method="PUT")
    for _ in range(100):
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except urllib.error.URLError:
            time.sleep(0.2)
        else:
            return
    raise SystemExit("the S3 server did not start")


@dataclass
class Storm:
    """What the workers said, and what was found wrong."""

    folder: Path
    manifest: Manifest
    mirrored: set[str] = field(default_factory=set[str])
    objects: dict[str, bytes] = field(default_factory=dict[str, bytes])
    kills: int = 0
    problems: list[str] = field(default_factory=list[str])

    def life(self, life: int, seconds: float) -> None:
        """Let all workers write for a while behind their start, and kill them."""
        victims = [self._start(name, life) for name in WORKERS]
        for victim in victims:
            assert victim.stdout is not None
            if not victim.stdout.readline().startswith("ready"):
                self.problems.append(f"a worker did not start in life {life}")
        time.sleep(seconds)
        for victim in victims:
            victim.kill()
            self.kills += 1
            assert victim.stdout is not None
            lines = victim.stdout.readlines()
            self.mirrored |= {line.split()[1] for line in lines if line.startswith("mirrored") and line.endswith("\n")}
            victim.wait()
            victim.stdout.close()
        self.look()

    def _start(self, name: str, life: int) -> subprocess.Popen[str]:
        spool = self.folder / name
        create_spool(spool, self.manifest)
        command = [sys.executable, "-m", "tests.slow.object_store", "--worker", str(spool), name, str(life)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True)

    def look(self) -> None:
        """No object that was there before is gone or another one."""
        store = Objects(URL)
        now = {key: self.objects.get(key) or store.get(key) for key in store.list()}
        self.problems += [f"{key} is gone" for key in self.objects.keys() - now.keys()]
        self.objects = now

    def check(self) -> None:
        """Mirror the rest, fetch the whole run, and compare it with the spools and with what was said."""
        store = Objects(URL)
        self.problems += [f"{key} changed" for key, data in self.objects.items() if store.get(key) != data]
        if store.put_new(next(iter(self.objects)), b"other") or not store.conditional:
            self.problems.append("an object was written twice, or the store offers no conditional writes")
        sealed: dict[str, tuple[bytes, ...]] = {}
        for name in WORKERS:
            spool = self.folder / name
            with RunWriter.join(spool, name, options=OPTIONS) as writer:
                writer.seal_interrupted()
            ObjectMirror(spool, URL, part=name, piece_bytes=PIECE).sync()
            sealed |= {trace.id: content(trace) for trace in open_run(spool).traces()}
        reader = open_run(URL, cache=self.folder)
        found = {trace.id: content(trace) for trace in reader.traces()}
        self.problems += [f"mirrored {rollout} is gone" for rollout in self.mirrored - found.keys()]
        self.problems += [f"{rollout} differs" for rollout in sealed if sealed[rollout] != found.get(rollout)]
        self.problems += map(str, reader.report.damages)


def storm(environment: Path, lives: int, seed: int) -> dict[str, object]:
    """Kill all workers `lives` times; the report."""
    started, moments = time.monotonic(), random.Random(seed)
    with s3_server(environment) as address, tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
        }
        with RunWriter.create(Path(folder) / "run") as owner:
            ObjectMirror(owner.folder, URL).sync()
            found = Storm(Path(folder), read_manifest(owner.folder))
            for life in range(lives):
                found.life(life, moments.uniform(0.0, 0.6))
            found.check()
        return {
            "server": MOTO,
            "obstore": version("obstore"),
            "workers": len(WORKERS),
            "kills": found.kills,
            "seed": seed,
            "rollouts_mirrored": len(found.mirrored),
            "objects": len(found.objects),
            "bytes": sum(map(len, found.objects.values())),
            "problems": found.problems,
            "seconds": round(time.monotonic() - started, 1),
        }


def main() -> int:
    """The entry points of the storm and of its workers."""
    if sys.argv[1:2] == ["--worker"]:
        work(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return 0
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--venv", type=Path, default=ROOT / ".venv-moto")
    words.add_argument("--kills", type=int, default=10, help="of all workers at once")
    words.add_argument("--seed", type=int, default=0)
    asked = words.parse_args()
    report = storm(asked.venv, asked.kills, asked.seed)
    print(json.dumps(report, indent=2))  # noqa: T201 - the report is the output
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
