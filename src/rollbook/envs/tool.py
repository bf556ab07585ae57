"""Tools: typed async functions that an agent may call.

Order of the checks of one call; the first that fails is what the policy sees next, and nothing runs: the call parsed
(status ``ok``); the arguments are plain JSON and fit the schema; they convert strictly to the parameters' types. Then
the function runs, within its time. Whose fault a failure was goes with the result: the policy's for the checks above
and for `ToolRefused`, the environment's for a tool that raises, returns too late, or returns what has no text. A
`RolloutFailure` and a cancellation pass.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar, overload
from weakref import WeakKeyDictionary

import jsonschema
import msgspec

from rollbook.envs.convert import NotConvertible, cut_text, plain_json, to_text
from rollbook.envs.foreign import ForeignError, call_foreign
from rollbook.envs.outcome import ToolOutcome, ToolRefused, error_observation, failed
from rollbook.envs.protocol import StepResult
from rollbook.envs.signature import arguments_of, describe, parameters_schema, takes_self
from rollbook.errors import UsageError
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Fault, Message, ParseStatus, Role, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["Tool", "is_tool", "tool"]

TOOL_SECONDS = 60.0
"""How long a tool may take unless it says otherwise."""
MAX_OUTPUT = 20_000
"""How many characters of a result the policy sees unless the tool says otherwise."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")

ToolFunction = Callable[..., Awaitable[Any]]
Function = TypeVar("Function", bound=ToolFunction)


@dataclass(frozen=True, slots=True)
class _Declared:
    spec: ToolSpec
    arguments: type[msgspec.Struct]
    validator: jsonschema.Draft202012Validator
    is_method: bool
    timeout: float | None
    limit: int | None


_declared: WeakKeyDictionary[ToolFunction, _Declared] = WeakKeyDictionary()


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(
    *, name: str | None = None, stop: bool = False, timeout: float | None = ..., limit: int | None = ...
) -> Callable[[Function], Function]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    stop: bool = False,
    timeout: float | None = TOOL_SECONDS,
    limit: int | None = MAX_OUTPUT,
) -> Function | Callable[[Function], Function]:
    """Mark a typed async function or method as a tool; it stays an ordinary function otherwise.

    A first parameter called ``self`` makes it a method. `name`: the function's own if None. `stop`: a call that
    succeeds ends the rollout (`stop_tool`). `timeout`: seconds, None for no limit. `limit`: the most characters of
    a result, more are left out visibly (`rollbook.envs.convert.cut_text`), None for no limit. Raises `UsageError` for
    a function that cannot be offered (`rollbook.envs.signature`).
    """

    def declare(function: Function) -> Function:
        called = function.__name__ if name is None else name
        if not _NAME.fullmatch(called):
            raise UsageError(f"tool name {called!r}: use 1 to 64 letters, digits, '_' and '-'")
        arguments = arguments_of(function, called)
        schema = parameters_schema(arguments, called)
        spec = ToolSpec(name=called, description=describe(function), parameters=schema, stop=stop)
        validator = jsonschema.Draft202012Validator(schema)
        _declared[function] = _Declared(spec, arguments, validator, takes_self(function), timeout, limit)
        return function

    return declare if function is None else declare(function)


def is_tool(function: object) -> TypeGuard[ToolFunction]:
    """True for what `tool` marked."""
    return callable(function) and function in _declared


class Tool:
    """A tool that can be called: what the model sees of it, and the function behind it."""

    __slots__ = ("_declared", "_function", "spec")

    def __init__(self, function: ToolFunction, owner: object | None = None) -> None:
        """`function` is marked with `tool`; `owner` is the instance that a method belongs to."""
        if not is_tool(function):
            raise UsageError(f"{function!r} is not a tool; mark it with @tool")
        self._declared = _declared[function]
        if self._declared.is_method and owner is None:
            raise UsageError(f"{function!r} is a method; collect it from an instance of its environment")
        self.spec = self._declared.spec
        self._function: ToolFunction = function.__get__(owner) if self._declared.is_method else function

    async def invoke(self, call: ToolCall) -> ToolOutcome:
        """Run one call. Raises nothing but `RolloutFailure` and cancellation."""
        if call.status is not ParseStatus.OK:
            return ToolOutcome(error_observation(call))
        try:
            arguments = self._read(call.arguments)
        except ToolRefused as refused:
            return ToolOutcome(failed(call, str(refused), Fault.POLICY))
        started = time.perf_counter()
        outcome = await self._run(call, arguments)
        return dataclasses.replace(outcome, seconds=time.perf_counter() - started)

    def _read(self, given: dict[str, Any] | None) -> dict[str, Any]:
        try:
            plain = plain_json(given, "arguments")
            self._declared.validator.validate(plain)  # pyright: ignore[reportUnknownMemberType] (a gap in jsonschema's stubs)
            read = msgspec.convert(plain, self._declared.arguments, strict=True, str_keys=True)
        except jsonschema.ValidationError as error:
            where = error.json_path.removeprefix("$").removeprefix(".")
            raise ToolRefused(f"bad arguments: {where}{': ' if where else ''}{error.message}") from error
        except (NotConvertible, msgspec.ValidationError) as error:
            raise ToolRefused(f"bad arguments: {error}") from error
        return msgspec.structs.asdict(read)

    async def _run(self, call: ToolCall, arguments: dict[str, Any]) -> ToolOutcome:
        try:
            value = await call_foreign(self._declared.timeout, self._answer, arguments)
            if isinstance(value, ToolRefused):
                return ToolOutcome(failed(call, str(value), Fault.POLICY))
            return self._outcome(call, value)
        except ForeignError as error:
            return ToolOutcome(failed(call, f"{self.spec.name}: {error}", Fault.ENVIRONMENT))
        except NotConvertible as error:
            problem = f"{self.spec.name} returned what has no text: {error}"
            return ToolOutcome(failed(call, problem, Fault.ENVIRONMENT))

    async def _answer(self, arguments: dict[str, Any]) -> Any:
        try:
            return await self._function(**arguments)
        except ToolRefused as refused:
            return refused

    def _outcome(self, call: ToolCall, value: Any) -> ToolOutcome:
        result = value if isinstance(value, StepResult) else StepResult(value)
        shown = to_text(result.observation)
        message = Message(
            role=Role.TOOL,
            content=cut_text(shown.text, self._declared.limit),
            call_id=call.id,
            name=self.spec.name,
            value_type=shown.value_type,
            raw=shown.raw,
        )
        ending = result.ending
        if ending is None and self.spec.stop:
            ending = Ending(Reason.STOP_TOOL, self.spec.name)
        return ToolOutcome(message, result.reward, ending)
