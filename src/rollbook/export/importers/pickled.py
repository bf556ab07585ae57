"""A reader of pickled plain data that runs nothing.

A pickle is a program for a stack machine, and Python's own reader imports and calls whatever the program names. This
one is a machine of its own: it knows the instructions that build containers, numbers and texts, and a short table of
names (`_KNOWN`) that stand for a fixed meaning here; every other name and instruction is refused, and nothing is ever
imported. References are shared and never copied, so what comes back may be larger to walk than it is to hold, by at
most `MOST_SHARED` (`rollbook.export.importers.unfolded`). Keys are texts and numbers, for the hash of a tuple walks it
whole.

Tensors come back as numpy views of their storage, which the caller's `storage` gives.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rollbook.export.importers.rows import BadRow
from rollbook.export.importers.unfolded import unfolded

__all__ = ["MOST_PICKLE", "Storage", "unpickle"]

MOST_PICKLE = 1 << 29
"""Bytes of a pickle: 512 MiB."""
MOST_SHARED = 16
"""Times as many values as a pickle and its storages have bytes, that its plain data may have when nothing is shared."""
ALWAYS_READ = 1 << 20
"""Values that the smallest pickle may have."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Storage:
    """What a tensor's values lie in: the name of its type (``torch FloatStorage``), its key and its length."""

    kind: str
    key: str
    length: int


@dataclass(frozen=True, slots=True)
class _Name:
    text: str


@dataclass(slots=True)
class _Dtype:
    """A numpy dtype on its way: its code, then its byte order."""

    code: str
    order: str = "="


_MARK = object()
_KEYS = (str, bytes, int, float)
_CODES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_STORAGES = {
    "torch DoubleStorage": "f8",
    "torch FloatStorage": "f4",
    "torch HalfStorage": "f2",
    "torch BFloat16Storage": "bf",
    "torch LongStorage": "i8",
    "torch IntStorage": "i4",
    "torch ShortStorage": "i2",
    "torch CharStorage": "i1",
    "torch ByteStorage": "u1",
    "torch BoolStorage": "b1",
}


def unpickle(data: bytes, storage: Callable[[Storage], bytes], order: str = "<") -> Any:
    """The plain data of one pickle. `storage`: the bytes that tensors lie in. `order`: their byte order, ``<`` or
    ``>``. Raises `BadRow`."""
    machine = _Machine(data, storage, order)
    try:
        plain = machine.run()
        size = unfolded(plain)
    except (IndexError, KeyError, ValueError, TypeError, struct.error, OverflowError, MemoryError) as error:
        raise BadRow(f"its pickle is damaged ({type(error).__name__}: {str(error)[:100]})") from error
    held = len(data) + sum(array.nbytes for array in machine.arrays.values())
    if size > max(ALWAYS_READ, MOST_SHARED * held):
        raise BadRow("its pickle repeats what it holds so often that it cannot be read as plain data")
    return plain


class _Machine:
    """Stack, memo and the place in the program."""

    def __init__(self, data: bytes, storage: Callable[[Storage], bytes], order: str) -> None:
        self.data, self.at, self.storage, self.order = data, 0, storage, order
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.arrays: dict[tuple[str, str], Array] = {}

    def run(self) -> Any:
        """Carry out the program up to its end; returns what it leaves."""
        data, stack, memo = self.data, self.stack, self.memo
        slow = _INSTRUCTIONS
        while True:
            code = data[self.at]
            self.at += 1
            # what lists of ids and logprobs are made of comes first
            if code == 0x4B:
                stack.append(data[self.at])
                self.at += 1
            elif code == 0x4D:
                stack.append(data[self.at] | data[self.at + 1] << 8)
                self.at += 2
            elif code == 0x4A:
                stack.append(int.from_bytes(self.take(4), "little", signed=True))
            elif code == 0x47:
                stack.append(struct.unpack(">d", self.take(8))[0])
            elif code == 0x71:
                memo[data[self.at]] = stack[-1]
                self.at += 1
            elif code == 0x2E:
                return stack.pop()
            elif (step := slow.get(code)) is not None:
                step(self)
            else:
                raise BadRow(f"its pickle has the instruction {code:#04x}, which plain data does not need")

    def take(self, count: int) -> bytes:
        """The next bytes of the program."""
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise BadRow("its pickle is cut off")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def sized(self, width: int) -> bytes:
        """Bytes behind their own length."""
        return self.take(int.from_bytes(self.take(width), "little"))

    def line(self) -> str:
        """Text up to the line's end."""
        end = self.data.index(b"\n", self.at)
        text = self.data[self.at : end].decode("utf-8")
        self.at = end + 1
        return text

    def since_mark(self) -> list[Any]:
        """What lies above the last mark; both leave the stack."""
        stack = self.stack
        place = len(stack) - 1
        while stack[place] is not _MARK:
            if place == 0:
                raise BadRow("its pickle misses a mark")
            place -= 1
        found = stack[place + 1 :]
        del stack[place:]
        return found

    def append(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise BadRow("its pickle appends to what is no list")
        cast("list[Any]", target).extend(values)

    def fill(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise BadRow("its pickle sets items of what is no mapping")
        if not all(key is None or isinstance(key, _KEYS) for key in pairs[::2]):
            raise BadRow("its pickle has a key that is neither text nor number")
        cast("dict[Any, Any]", target).update(zip(pairs[::2], pairs[1::2], strict=True))

    def reduce(self) -> None:
        args, called = self.stack.pop(), self.stack.pop()
        if not isinstance(called, _Name) or not isinstance(args, tuple):
            raise BadRow("its pickle calls what is no name")
        make = _KNOWN.get(called.text)
        if make is None:
            raise BadRow(f"its pickle calls {called.text[:80]!a}, which plain data does not need")
        self.stack.append(make(self, *cast("tuple[Any, ...]", args)))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, _Dtype) and isinstance(state, tuple):
            order = cast("tuple[Any, ...]", state)[1]
            known = isinstance(order, str) and order in ("<", ">", "=", "|")
            target.order = order if known else _refuse("byte order that no number has")
        elif not (isinstance(target, dict) and not state):
            raise BadRow("its pickle gives a state to what has none")

    def name(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise BadRow("its pickle names what is no text")
        text = f"{module} {name}"
        if text not in _KNOWN and text not in _STORAGES:
            raise BadRow(f"its pickle names {text[:80]!a}, which plain data does not need; it was not loaded")
        self.stack.append(_Name(text))

    def stack_name(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.name(module, name)

    def persistent(self) -> None:
        kind = self.stack.pop()
        match kind:
            case ("storage", _Name(text), str(key), str(_), int(length)) if text in _STORAGES:
                self.stack.append(Storage(text, key, length))
            case _:
                raise BadRow("its pickle refers to something outside that is no tensor's storage")

    def tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> Array:
        """A view of a storage, within it and without repeated values."""
        if not isinstance(storage, Storage):
            raise BadRow("its pickle makes a tensor of what is no storage")
        values = self.values(storage)
        reach = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
        numbers = (offset, *size, *stride)
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise BadRow("a tensor has a size, a stride or a place that is no whole number")
        total = 1
        for count in size:
            total *= count
        if total == 0:
            return values[:0].reshape(size)
        if reach >= len(values) or total > len(values):
            raise BadRow("a tensor reaches beyond its storage")
        steps = [step * values.itemsize for step in stride]
        return np.lib.stride_tricks.as_strided(values[offset:], size, steps, writeable=False)

    def values(self, storage: Storage) -> Array:
        known = self.arrays.get((storage.kind, storage.key))
        if known is not None:
            return known
        code = _STORAGES[storage.kind]
        raw = self.storage(storage)
        if code == "bf":
            wide = np.frombuffer(raw, f"{self.order}u2").astype(np.uint32) << 16
            array: Array = wide.view(np.float32)
        else:
            array = np.frombuffer(raw, f"{self.order}{code}")
        if len(array) != storage.length:
            raise BadRow(f"the storage {storage.key[:40]!a} holds {len(array)} values, not {storage.length}")
        return self.arrays.setdefault((storage.kind, storage.key), array)

    def tuple_of(self, count: int) -> None:
        items = self.stack[len(self.stack) - count :]
        if len(items) != count or any(item is _MARK for item in items):
            raise BadRow("its pickle makes a tuple of what is not there")
        del self.stack[len(self.stack) - count :]
        self.stack.append(tuple(items))

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.fill([key, value])


def _refuse(what: str) -> Any:
    raise BadRow(f"its pickle holds a {what}")


def _numpy_dtype(_: _Machine, code: Any, *flags: Any) -> _Dtype:
    return _Dtype(code) if isinstance(code, str) and code in _CODES else _refuse("dtype of no plain number")


def _numpy_scalar(_: _Machine, dtype: Any, raw: Any) -> Any:
    if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
        raise BadRow("its pickle holds a number of no known type")
    order = "<" if dtype.order in ("=", "|") else dtype.order
    return np.frombuffer(raw, f"{order}{dtype.code}", 1)[0].item()


def _latin1(_: _Machine, text: Any, coding: Any) -> bytes:
    if not isinstance(text, str) or coding != "latin1":
        raise BadRow("its pickle encodes what is no Latin-1 text")
    return text.encode("latin-1")


def _no_bytes(_: _Machine) -> bytes:
    return b""


def _mapping(_: _Machine) -> dict[Any, Any]:
    return {}


_KNOWN: dict[str, Callable[..., Any]] = {
    "collections OrderedDict": _mapping,
    "torch._utils _rebuild_tensor_v2": _Machine.tensor,
    "numpy dtype": _numpy_dtype,
    "numpy.core.multiarray scalar": _numpy_scalar,
    "numpy._core.multiarray scalar": _numpy_scalar,
    "_codecs encode": _latin1,
    "__builtin__ bytes": _no_bytes,
}
"""Names that a pickle may call, with what they mean here: none is imported."""


def _int(machine: _Machine, width: int) -> None:
    machine.stack.append(int.from_bytes(machine.sized(width), "little", signed=True))


def _text(machine: _Machine, width: int) -> None:
    machine.stack.append(machine.sized(width).decode("utf-8", "surrogatepass"))


_INSTRUCTIONS: dict[int, Callable[[_Machine], object]] = {
    ord("("): lambda m: m.stack.append(_MARK),
    ord("N"): lambda m: m.stack.append(None),
    0x88: lambda m: m.stack.append(True),
    0x89: lambda m: m.stack.append(False),
    0x8A: lambda m: _int(m, 1),
    0x8B: lambda m: _int(m, 4),
    ord("X"): lambda m: _text(m, 4),
    0x8C: lambda m: _text(m, 1),
    0x8D: lambda m: _text(m, 8),
    ord("B"): lambda m: m.stack.append(m.sized(4)),
    ord("C"): lambda m: m.stack.append(m.sized(1)),
    0x8E: lambda m: m.stack.append(m.sized(8)),
    ord("]"): lambda m: m.stack.append([]),
    ord("}"): lambda m: m.stack.append({}),
    ord(")"): lambda m: m.stack.append(()),
    ord("t"): lambda m: m.stack.append(tuple(m.since_mark())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("a"): lambda m: m.append([m.stack.pop()]),
    ord("e"): lambda m: m.append(m.since_mark()),
    ord("s"): lambda m: m.set_item(),
    ord("u"): lambda m: m.fill(m.since_mark()),
    ord("c"): lambda m: m.name(m.line(), m.line()),
    0x93: lambda m: m.stack_name(),
    ord("R"): lambda m: m.reduce(),
    ord("b"): lambda m: m.build(),
    ord("Q"): lambda m: m.persistent(),
    ord("r"): lambda m: m.memo.__setitem__(int.from_bytes(m.take(4), "little"), m.stack[-1]),
    0x94: lambda m: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    ord("h"): lambda m: m.stack.append(m.memo[m.take(1)[0]]),
    ord("j"): lambda m: m.stack.append(m.memo[int.from_bytes(m.take(4), "little")]),
    ord("0"): lambda m: m.stack.pop(),
    0x80: lambda m: m.take(1),
    0x95: lambda m: m.take(8),
}
"""Every instruction but the frequent ones of `_Machine.run`: containers, texts, numbers, memo and names."""
