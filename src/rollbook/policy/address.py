"""What may stand in an engine's URL and in its key.

Rules: a URL is recorded and shown, so it holds no secret: no user, no password, no query; a key is sent in a header and
is shown nowhere, not even where it is refused. Both are plain ASCII, for the clients spell everything else differently.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from rollbook.errors import ConfigError

__all__ = ["check_key", "redacted", "url_problem"]

KEY = "give a key in ROLLBOOK_API_KEY (api_key= in Python)"
"""The remedy where a secret stands in the wrong place, or none is given."""
_SECRETS = (re.compile(r"//.*@", re.DOTALL), re.compile(r"\?[^#]*"))


def redacted(text: str) -> str:
    """`text` without what may be a secret of a URL in it: user and password, and the query."""
    user, query = _SECRETS
    return query.sub("?...", user.sub("//...@", text))


def url_problem(url: str) -> str | None:
    """Why `url` cannot be an engine's, in words that hold nothing of it; None: it can."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        fine = parts.scheme in ("http", "https") and bool(host) and parts.port != 0
        if ":" not in host:  # IPv6 has no labels
            host.encode("idna")
    except ValueError:
        fine = False
    if "@" in url:
        return f"holds a user or a password, which would be recorded: {KEY}"
    if "?" in url:
        return f"holds a query, which would be recorded: {KEY}"
    if not fine or not (url.isascii() and url.isprintable() and " " not in url):
        return "is not a URL; it starts with http:// or https:// and a host, and is plain ASCII"
    return None


def check_key(key: str | None) -> None:
    """Raise `ConfigError` for a key that no header can hold; its text stays out of the error."""
    if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError("the engine's key is empty or holds a space, a line end or a character beyond ASCII")
