"""Objects under a URL, by key: the little that a mirrored run needs of an object store, and the only module that
imports obstore (extra ``objects``).

Rules: an object is written once and never again (`put_new`); keys are relative to the URL; credentials come from the
environment or from obstore's own configuration, so a URL that holds any is refused, and messages hold no query of a
URL, which may be signed.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rollbook.errors import ConfigError, StoreError

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError
    from obstore.store import MemoryStore, ObjectStore, from_url
except ModuleNotFoundError as missing:
    if missing.name is None or missing.name.partition(".")[0] != "obstore":
        raise
    raise ModuleNotFoundError(
        "an object store needs the extra objects (obstore is missing): run pip install '.[objects]' in Rollbook's "
        "checkout",
        name=missing.name,
    ) from missing

__all__ = ["Objects"]

_SCHEMES = ("s3", "s3a", "gs", "az", "adl", "abfs", "abfss", "file", "memory")
_SETTINGS = {
    "s3": "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT",
    "gs": "GOOGLE_SERVICE_ACCOUNT, GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
}
"""What says how a store is reached, by the first two letters of its scheme."""
_QUERY = re.compile(r"\?[^\s\"'>]*")


class Objects:
    """The objects under one URL. Safe to use from several threads."""

    __slots__ = ("_store", "conditional", "url")

    def __init__(self, url: str, *, make: bool = True) -> None:
        """`url`: ``s3://bucket/prefix`` and likewise ``gs``, ``az``; ``file:///folder`` and ``memory:///name`` for one
        machine and for one process. `make`: a folder that is not there is made. Raises `ConfigError`, and
        `StoreError` where a folder is not there that is not to be made."""
        self.url = url
        self.conditional = True
        """False: the store offers no conditional writes, so an object is looked for before it is written instead."""
        self._store = _open(url, make)

    def list(self, under: str = "") -> dict[str, int]:
        """Key -> size of all objects below `under`, sorted by key."""
        with self._told(f"list {under}"):
            listed = obstore.list(self._store, under or None)  # pyright: ignore[reportUnknownMemberType] (with pyarrow)
            rows = [(row["path"], row["size"]) for rows in listed for row in rows]
        return dict(sorted(rows))

    def get(self, key: str, size: int | None = None) -> bytes:
        """One object, or its first `size` bytes."""
        with self._told(f"read {key}"):
            if size is not None:
                return bytes(obstore.get_range(self._store, key, start=0, length=size))
            return bytes(obstore.get(self._store, key).bytes())

    def put_new(self, key: str, data: bytes) -> bool:
        """Write an object that is not there; False where it is there already, and then nothing was written."""
        with self._told(f"write {key}"):
            if self.conditional:
                try:
                    obstore.put(self._store, key, data, mode="create")
                except AlreadyExistsError:
                    return False
                except (NotSupportedError, NotImplementedError):
                    self.conditional = False
                else:
                    return True
            try:
                obstore.head(self._store, key)
            except FileNotFoundError:
                obstore.put(self._store, key, data, use_multipart=False)
                return True
            return False

    @contextmanager
    def _told(self, what: str) -> Generator[None]:
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            raise StoreError(f"{self.url}: cannot {what.strip()}: {_plain(error)}{_remedy(self.url)}") from None


def _open(url: str, make: bool) -> ObjectStore:
    if not url.isprintable():  # some would be dropped in silence, and another place be written to
        raise ConfigError("the URL of the object store cannot be read: it holds control characters")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"the URL of the object store cannot be read: {error}") from None
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{parts.scheme}://{parts.hostname or ''}{parts.path}: the URL of an object store holds no credentials, no "
            "query and no fragment; credentials come from the environment (AWS_ACCESS_KEY_ID ...)"
        )
    if parts.scheme not in _SCHEMES:
        raise ConfigError(f"'{url}' is no URL of an object store; known schemes: {', '.join(_SCHEMES)}")
    if parts.scheme == "file" and (parts.netloc not in ("", "localhost") or not parts.path.startswith("/")):
        raise ConfigError(f"{url} names no folder of this machine; write file:///folder, from the root on")
    if parts.scheme == "file" and not parts.path.strip("/"):
        raise ConfigError(f"{url} is the root of the file system; give a folder of its own")
    if parts.scheme == "file" and not make and not Path(unquote(parts.path)).is_dir():
        raise StoreError(f"{url} holds no run: there is no such folder; give the URL that a run was mirrored to")
    if parts.scheme == "memory":
        return _memory(url.rstrip("/"))
    try:
        return from_url(url, mkdir=make) if parts.scheme == "file" else from_url(url)
    except (BaseError, OSError, ValueError) as error:
        raise ConfigError(f"{url} cannot be used: {_plain(error)}") from None


@cache
def _memory(url: str) -> MemoryStore:
    """One store a URL, for the life of the process."""
    del url
    return MemoryStore()


def _remedy(url: str) -> str:
    """What to look at where a store does not do what it is asked; nothing for one on this machine."""
    scheme = urlsplit(url).scheme
    if scheme in ("file", "memory"):
        return ""
    settings = _SETTINGS.get(scheme[:2], _SETTINGS["az"])
    return (
        f"; check that the URL is right, that the store is reached from here, and that its credentials may list, read "
        f"and write there (environment: {settings})"
    )


def _plain(error: Exception) -> str:
    """The first paragraph of what obstore says, without queries of URLs."""
    return _QUERY.sub("?...", str(error).partition("\n\n")[0])[:500]
