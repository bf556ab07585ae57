"""Errors that come with status 200: some servers and proxies answer so once they have begun.

Rule: a body is read as what was asked for; only where it is not that, as an error. The error's own code is the status
that the reply stands for; one without a code is a failure of the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import msgspec

from rollbook.policy.http import HttpReply
from rollbook.trace.ending import RolloutFailure

__all__ = ["read_body"]

_Type = TypeVar("_Type")


class _Code(msgspec.Struct):
    code: int | str | None = None


class _Coded(msgspec.Struct):
    error: _Code | str


def read_body(reply: HttpReply, kind: type[_Type], refusal_of: Callable[[HttpReply], Exception]) -> _Type:
    """The body of a reply of status 200. Raises what `refusal_of` makes of an error in it, else `RolloutFailure`
    (`engine_contract`) where it cannot be read."""
    try:
        return reply.decode(kind)
    except RolloutFailure as unreadable:
        error = _inner_error(reply)
        raise unreadable if error is None else refusal_of(error) from unreadable


def _inner_error(reply: HttpReply) -> HttpReply | None:
    """The reply that an error in the body stands for; None where the body is no error."""
    try:
        error = msgspec.json.decode(reply.body, type=_Coded).error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    code = error.code if isinstance(error, _Code) else None
    status: int = HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(code, int) and HTTPStatus.BAD_REQUEST <= code < 600:
        status = code
    return HttpReply(status, reply.body, reply.retry_after, reply.secret)
