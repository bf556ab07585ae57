"""Errors that come with status 200: some servers and proxies answer so once they have begun.

Rule: the error's own code is the status that the reply stands for; one without a code is a failure of the engine.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from rollbook.policy.http import HttpReply

__all__ = ["inner_error"]


class _Code(msgspec.Struct):
    code: int | str | None = None


class _Coded(msgspec.Struct):
    error: _Code | str


def inner_error(reply: HttpReply) -> HttpReply | None:
    """The reply that an error in the body stands for; None where the body is no error."""
    try:
        error = msgspec.json.decode(reply.body, type=_Coded).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    code = error.code if isinstance(error, _Code) else None
    status: int = HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(code, int) and HTTPStatus.BAD_REQUEST <= code < 600:
        status = code
    return HttpReply(status, reply.body, reply.retry_after)
