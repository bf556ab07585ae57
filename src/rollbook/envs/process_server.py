"""The other side of `rollbook.envs.process_pool`: calls come in over a socket, one after the other, answers go out.

It ends where the parent is gone, also in the middle of a call.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import sys
import threading
from typing import Any

from rollbook.envs.foreign import one_line
from rollbook.envs.process_pool import LENGTH, ProcessLost
from rollbook.errors import boundary

HUNG_UP = select.POLLHUP | select.POLLERR | (select.POLLRDHUP if sys.platform == "linux" else 0)


def serve(link: socket.socket) -> None:
    """Serve until the parent hangs up."""
    threading.Thread(target=_end_with_parent, args=(link.fileno(),), daemon=True).start()
    stream = link.makefile("rb")
    while header := stream.read(LENGTH.size):
        (length,) = LENGTH.unpack(header)
        answer = _answer(stream.read(length))
        link.sendall(LENGTH.pack(len(answer)) + answer)


def _end_with_parent(link: int) -> None:
    poll = select.poll()
    poll.register(link, HUNG_UP)
    poll.poll()
    os._exit(1)


def _answer(data: bytes) -> bytes:
    answer: tuple[bool, Any]
    try:
        answer = (True, pickle.loads(data)())  # noqa: S301 (from our own parent)
    except BaseException as error:  # noqa: BLE001 (it is raised again in the parent)
        answer = (False, error)
    try:
        with boundary("its result cannot be sent back", ProcessLost):
            sent = pickle.dumps(answer)
            pickle.loads(sent)  # noqa: S301 (an exception with a constructor of its own may not come back whole)
            return sent
    except ProcessLost as error:
        text = one_line(f"{type(answer[1]).__name__}: {answer[1]}") if not answer[0] else str(error)
        return pickle.dumps((False, ProcessLost(text)))


if __name__ == "__main__":
    # What a scorer prints goes to the terminal of the run's errors, never into what a program reads.
    os.dup2(2, 1)
    # Ctrl-C reaches this process too; its parent hears it, and decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
