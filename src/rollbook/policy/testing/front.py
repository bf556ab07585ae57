"""From an HTTP request to an HTTP reply, without sockets: routes, the log, the plan of faults.

Rule: a request that its server would refuse is refused whatever is planned for it; a planned fault strikes after that,
and is in the log in either case.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

import msgspec

from rollbook.policy.testing.ask import Refused, Reply, Request, Transport
from rollbook.policy.testing.bodies import read_json
from rollbook.policy.testing.faults import Fault, FaultPlan
from rollbook.policy.testing.log import LogEntry
from rollbook.policy.testing.speech import Call, Engine, Speech

__all__ = ["Front"]

_PROMPTS = frozenset(("token_ids", "input_ids", "prompt", "messages"))
_REFUSALS = {
    Fault.BUSY: (429, "Too many requests"),
    Fault.BUSY_LATER: (429, "Too many requests"),
    Fault.UNAVAILABLE: (503, "The request queue is full."),
    Fault.SERVER_ERROR: (500, "internal error"),
}


class Front:
    """Answers requests."""

    def __init__(self, engine: Engine, speech: Speech, plan: FaultPlan) -> None:
        self.log: list[LogEntry] = []
        """One entry for each generation request, in the order of their arrival."""
        self.engine = engine
        self._speech = speech
        self._plan = plan
        self._counts: Counter[str] = Counter()
        self._began = time.monotonic()
        self._generations = dict(speech.generations)
        self._controls = dict(speech.controls)

    async def __call__(self, request: Request) -> Reply:
        """The reply, whatever came."""
        if request.path.startswith("/_fake/"):
            return self._own(request)
        try:
            if request.method == "POST" and request.path in self._generations:
                return await self._generation(request)
            control = self._controls.get((request.method, request.path))
            if control is None:
                raise Refused(404, f"there is no {request.method} {request.path}")
            return await control(request)
        except Refused as refused:
            return self._refusal(refused)

    async def _generation(self, request: Request) -> Reply:
        session = request.headers.get("x-session-id", "")
        number, self._counts[session] = self._counts[session], self._counts[session] + 1
        dialect = self.engine.settings.dialect
        fault = self._plan.fault(session, number, dialect)
        entry = LogEntry(
            session=session,
            number=number,
            dialect=dialect,
            route=request.path,
            fault=fault,
            started=time.monotonic() - self._began,
        )
        self.log.append(entry)
        try:
            reply = await self._answer(request, entry)
        except Refused as refused:
            reply = self._refusal(refused)
        except asyncio.CancelledError:
            entry.cancelled = True
            raise
        entry.seconds = time.monotonic() - self._began - entry.started
        entry.status = 0 if reply.transport is Transport.RESET else reply.status
        return reply

    async def _answer(self, request: Request, entry: LogEntry) -> Reply:
        fault = entry.fault
        body = read_json(request.body)
        entry.fields = {name: value for name, value in body.items() if name not in _PROMPTS}
        if fault is not None and fault in _REFUSALS:
            status, text = _REFUSALS[fault]
            headers = {"Retry-After": f"{self._plan.retry_after:g}"} if fault is Fault.BUSY_LATER else {}
            return self._refusal(Refused(status, text), headers)
        if fault is Fault.RESET:
            return Reply(transport=Transport.RESET)
        if fault is Fault.SLOW:
            await asyncio.sleep(self._plan.slow)
        answer = await self._generations[request.path](Call(entry, body, fault))
        transport = Transport.TRUNCATED if fault is Fault.TRUNCATED else Transport.WHOLE
        return Reply(_encode(answer, bare_nan=fault is Fault.NAN), transport=transport)

    def _refusal(self, refused: Refused, headers: dict[str, str] | None = None) -> Reply:
        return Reply(msgspec.json.encode(self._speech.error(refused)), refused.status, headers or {})

    def _own(self, request: Request) -> Reply:
        """The routes of the fake itself."""
        match request.method, request.path:
            case "GET", "/_fake/log":
                return Reply(msgspec.json.encode(self.log[int(request.query.get("from", "0")) :]))
            case "GET", "/_fake/state":
                scheduler = self.engine.scheduler
                state = {"running": scheduler.running, "paused": scheduler.paused, "version": scheduler.label}
                return Reply(msgspec.json.encode(state))
            case "POST", "/_fake/reset":
                self.reset()
                return Reply(b"{}")
            case _:
                return Reply(b"{}", 404)

    def reset(self) -> None:
        """Forget requests, counts, caches and weights; what runs goes on."""
        self.log.clear()
        self._counts.clear()
        self.engine.scheduler.reset()


def _encode(answer: Any, *, bare_nan: bool) -> bytes:
    """JSON. `bare_nan`: with NaN written as such where it is left; msgspec writes null."""
    return json.dumps(answer).encode() if bare_nan else msgspec.json.encode(answer)
