"""Objects: written once, never again; URLs and messages without secrets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from rollbook.errors import ConfigError, StoreError

pytest.importorskip("obstore")

from rollbook.store.objects import Objects, _plain, _remedy


@pytest.fixture(params=["memory", "file"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return Objects(f"memory://{tmp_path}" if request.param == "memory" else f"file://{tmp_path}/a b")


def test_an_object_is_written_once(objects: Objects) -> None:
    assert objects.put_new("annotations/a%2Fb.ann/1", b"one")
    assert not objects.put_new("annotations/a%2Fb.ann/1", b"two")
    assert objects.put_new("b/2", b"")
    assert objects.get("annotations/a%2Fb.ann/1") == b"one"
    assert objects.get("annotations/a%2Fb.ann/1", 2) == b"on"
    assert objects.list() == {"annotations/a%2Fb.ann/1": 3, "b/2": 0}
    assert objects.list("b/") == {"b/2": 0}
    assert objects.conditional


@pytest.mark.parametrize("key", ["../out", "a/../../out", "a/./b", "a\0b", "a\ud800b"])
def test_a_key_leads_nowhere_else(key: str, objects: Objects) -> None:
    for act in (lambda: objects.put_new(key, b""), lambda: objects.get(key)):
        with pytest.raises(StoreError, match="cannot"):
            act()
    assert objects.list() == {}


def test_of_many_who_write_one_object_one_does(objects: Objects) -> None:
    """Each wins or is told that it did not, and what is there is whole and the winner's."""
    ready = Barrier(8)

    def write(name: int, key: str) -> bool:
        ready.wait(10)
        return objects.put_new(key, bytes([name]) * 100_000)

    with ThreadPoolExecutor(8) as threads:
        for number in range(10):
            won = list(threads.map(write, range(8), [f"k/{number}"] * 8))
            assert won.count(True) == 1
            assert objects.get(f"k/{number}") == bytes([won.index(True)]) * 100_000
    assert objects.conditional


def test_a_store_without_conditional_writes_is_looked_into_first(objects: Objects) -> None:
    objects.conditional = False
    assert objects.put_new("a", b"one")
    assert not objects.put_new("a", b"two")
    assert objects.get("a") == b"one"


def test_what_is_not_there_is_told(objects: Objects) -> None:
    assert objects.list() == {}
    with pytest.raises(StoreError, match="cannot read nowhere"):
        objects.get("nowhere")


def test_one_url_is_one_store() -> None:
    assert Objects("memory:///same").put_new("a", b"1")
    assert Objects("memory:///same/").list() == {"a": 1}
    assert Objects("memory:///other").list() == {}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://key:hunter2@bucket/run", "holds no credentials"),
        ("s3://hunter2@bucket/run", "holds no credentials"),
        ("az://account/run?sig=hunter2", "holds no credentials"),
        ("s3://[key:hunter2/run", "cannot be read"),
        ("file:///runs/demo#hunter2", "no fragment"),
        ("ftp://host/run", "known schemes"),
        ("runs/demo", "known schemes"),
        ("file:runs/demo", "names no folder of this machine"),
        ("file://runs/demo", "names no folder of this machine"),
        ("file://./runs/demo", "names no folder of this machine"),
        ("file://", "names no folder of this machine"),
        ("file:///", "root of the file system"),
        ("file:////", "root of the file system"),
        ("file:///tmp/x%2F..%2F..%2Fhunter", "cannot be used"),
        ("file:///runs/demo?x", r"^file:///runs/demo: .*no query"),
        ("file:///runs/de\nmo", "control characters"),
        ("file:///runs/demo%00", "cannot be used"),
        ("s3://buck\tet/hunter2", "control characters"),
        ("s3://", "cannot be used"),
    ],
)
def test_urls_that_are_refused(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        Objects(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "names"),
    [("s3://bucket/run", "AWS_ENDPOINT"), ("gs://bucket/run", "GOOGLE_"), ("abfs://files@acc.dfs/run", "AZURE_")],
)
def test_a_store_that_refuses_says_what_to_look_at(url: str, names: str) -> None:
    assert names in _remedy(url)
    says = r"cannot list: no route; check that the URL is right, .* credentials"
    with pytest.raises(StoreError, match=says), Objects("s3://bucket/run")._told("list "):
        raise OSError("no route")


def test_of_a_store_on_this_machine_there_is_nothing_to_check() -> None:
    assert _remedy("file:///runs/demo") == _remedy("memory:///demo") == ""


def test_messages_hold_no_signed_url() -> None:
    assert _plain(ValueError('GET "https://x.net/c/run?sig=hunter2" failed\n\nDebug source: hunter2')) == (
        'GET "https://x.net/c/run?..." failed'
    )
