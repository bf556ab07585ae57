"""Which ids a generation gives, where they are not left to the model.

Rules. A function is asked for each request. Lists by session are given one after the other; a request whose prompt is
the last one's prompt and what was returned for it goes on with the same list (an aborted or cut generation that is
continued), every other request takes the next; running out is an error. The engine's stop id is added where a list
does not end with one. Requests that name no session (a client's greeting) are left to the model. What is refused or
lost on the way uses nothing up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from rollbook.policy.testing.ask import Ask, Refused
from rollbook.trace.call import Sampling

__all__ = ["Script", "ScriptFunction", "Scripted"]

ScriptFunction = Callable[[Sequence[int], Sampling, str], Sequence[int]]
"""(prompt ids, sampling, session) -> ids."""
Script = ScriptFunction | Mapping[str, Sequence[Sequence[int]]]
"""A function, or session -> the ids of its replies one after the other."""


@dataclass(slots=True)
class _Place:
    """Where a session is in its lists."""

    taken: int = 0
    """Lists that were begun."""
    rest: list[int] = field(default_factory=list[int])
    """Of the last list, what was not returned."""
    expected: list[int] = field(default_factory=list[int])
    """The prompt that would continue it."""


class Scripted:
    """A script in use."""

    def __init__(self, script: Script, stop: int) -> None:
        """`stop`: the id that ends a list."""
        self._stop = stop
        self._function: ScriptFunction | None = None
        self._lists: Mapping[str, Sequence[Sequence[int]]] = {}
        if isinstance(script, Mapping):
            self._lists = cast("Mapping[str, Sequence[Sequence[int]]]", script)
        else:
            self._function = script
        self._places: dict[str, _Place] = {}

    def ids(self, ask: Ask) -> list[int]:
        """All ids that answer `ask`, its limit aside."""
        if self._function is not None:
            return self._closed(self._function(ask.prompt, ask.sampling, ask.session), ask)
        place = self._places.setdefault(ask.session, _Place())
        if place.rest and place.expected == ask.prompt:
            return list(place.rest)
        lists = self._lists.get(ask.session)
        if lists is None or place.taken >= len(lists):
            have = "none" if lists is None else len(lists)
            raise Refused(400, f"the script has {have} replies for session {ask.session!r}, and request {ask.number}")
        return self._closed(lists[place.taken], ask)

    def delivered(self, ask: Ask, ids: list[int], whole: list[int]) -> None:
        """`ids` of `whole` are on their way to the client."""
        if self._function is not None:
            return
        place = self._places[ask.session]
        if not (place.rest and place.expected == ask.prompt):
            place.taken += 1
        place.rest = whole[len(ids) :]
        place.expected = ask.prompt + ids

    def clear(self) -> None:
        """Begin anew."""
        self._places.clear()

    def _closed(self, ids: Sequence[int], ask: Ask) -> list[int]:
        found = list(ids)
        return found if found and found[-1] in ask.stops else [*found, self._stop]
