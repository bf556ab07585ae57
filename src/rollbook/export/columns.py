"""One batch of Arrow columns from samples, or from a block of them, which has its columns ready.

Rules: as in `rollbook.export.columnar`; both ways give the same batch, and the arrays of a block are not copied.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.export.fields import arrays, block_scalars, plain_samplings, scalars
from rollbook.trace.call import SamplingFields
from rollbook.trace.sample import Sample
from rollbook.trace.sample_block import SampleBlock

__all__ = ["block_batch", "refuse_surrogates", "sample_batch", "schema"]

# pyarrow comes without types; through Any the rest of the module is checked as strictly as the others
pa: Any = importlib.import_module("pyarrow")

_ARRAYS = {
    "token_ids": pa.int32(),
    "sampled": pa.bool_(),
    "loss_mask": pa.bool_(),
    "logprobs": pa.float32(),
    "policy_version": pa.int32(),
    "turn_id": pa.int32(),
    "advantages": pa.float32(),
}
_SCALARS = {
    "run": pa.string(),
    "group": pa.string(),
    "episode": pa.string(),
    "rollout": pa.string(),
    "branch": pa.int32(),
    "is_last_branch": pa.bool_(),
    "prompt_len": pa.int32(),
    "reward": pa.float64(),
    "reward_parts": pa.map_(pa.string(), pa.float64()),
    "turn_rewards": pa.list_(pa.struct([("turn", pa.int32()), ("value", pa.float64())])),
    "advantage": pa.float64(),
    "rollout_trained": pa.int32(),
    "weight": pa.float64(),
    "ending_kind": pa.string(),
    "ending_reason": pa.string(),
    "truncated": pa.bool_(),
    "min_version": pa.int32(),
    "max_version": pa.int32(),
    "logprob_kinds": pa.list_(pa.string()),
    "logprobs_fit": pa.bool_(),
    "samplings": pa.string(),
}
_VERSION = {"rollbook.samples": "2"}
_PARTS = pa.list_(pa.struct([("part", pa.string()), ("value", pa.float64())]))


def schema(*, maps: bool) -> Any:
    """The pyarrow schema. `maps`: ``reward_parts`` is a map; else a list of (part, value), for readers without maps."""
    parts = _SCALARS["reward_parts"] if maps else _PARTS
    fields = {**_SCALARS, "reward_parts": parts, **{name: pa.list_(kind) for name, kind in _ARRAYS.items()}}
    return pa.schema(list(fields.items()), metadata=_VERSION)


def sample_batch(samples: Sequence[Sample], schema: Any) -> Any:
    """The record batch of some samples, at least one."""
    rows = [scalars(sample, samplings=_spell) for sample in samples]
    found = [arrays(sample) for sample in samples]
    columns = _scalar_columns({name: [row[name] for row in rows] for name in rows[0]}, schema)
    for name in _ARRAYS:
        given = [each[name] for each in found if name in each]
        sizes = np.array([len(each[name]) if name in each else 0 for each in found])
        missing = None if len(given) == len(found) else pa.array([name not in each for each in found])
        columns[name] = _lists(name, np.concatenate(given) if given else None, _offsets(sizes), missing)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def block_batch(block: SampleBlock, schema: Any) -> Any:
    """The record batch of a block."""
    columns = _scalar_columns(block_scalars(block, samplings=_spell), schema)
    offsets = pa.array(block.offsets)
    for name in _ARRAYS:
        same = name == "loss_mask"  # all that was sampled trains
        columns[name] = columns["sampled"] if same else _lists(name, block.arrays.get(name), offsets, None)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _scalar_columns(found: Mapping[str, Any], schema: Any) -> dict[str, Any]:
    """The columns of scalars: `found` has for each name a value a row."""
    pairs: dict[str, Callable[[Any], Any]] = {"reward_parts": dict[str, float].items, "turn_rewards": list}
    return {
        name: _pairs(list(map(pairs[name], found[name])), schema.field(name).type)
        if name in pairs
        else pa.array(found[name], schema.field(name).type)
        for name in _SCALARS
    }


def _pairs(rows: Sequence[Sequence[tuple[Any, float]]], kind: Any) -> Any:
    """A column whose rows are some pairs each: a map, or a list of structs."""
    pairs = list(chain.from_iterable(rows))
    offsets = _offsets(np.array([len(row) for row in rows]))
    first, second = (
        (kind.key_type, kind.item_type) if pa.types.is_map(kind) else [each.type for each in kind.value_type]
    )
    firsts, seconds = pa.array([pair[0] for pair in pairs], first), pa.array([pair[1] for pair in pairs], second)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(offsets, firsts, seconds)
    structs = pa.StructArray.from_arrays([firsts, seconds], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(offsets, structs)


def _offsets(sizes: npt.NDArray[np.int64]) -> Any:
    """Where the rows of a list column begin."""
    return pa.array(np.concatenate(([0], sizes.cumsum())), pa.int32())


def _lists(name: str, values: npt.NDArray[Any] | None, offsets: Any, missing: Any) -> Any:
    """One column of lists. `missing`: which rows are null; `values` None: all of them."""
    kind = _ARRAYS[name]
    if values is None:
        return pa.nulls(len(offsets) - 1, pa.list_(kind))
    held = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    column = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(held)])
    return pa.ListArray.from_arrays(offsets, column, mask=missing)


def _spell(samplings: Sequence[SamplingFields]) -> str:
    """Samplings as JSON text."""
    try:
        return msgspec.json.encode(samplings).decode()
    except UnicodeEncodeError:  # a lone surrogate, which json escapes
        return json.dumps(plain_samplings(samplings), separators=(",", ":"))


def refuse_surrogates(sample: Sample) -> None:
    """Raise `UsageError` where a text of the sample cannot be in a column."""
    texts = {name: getattr(sample, name) for name in ("run", "group", "episode", "rollout")}
    texts |= {f"reward part {part!a}": part for part in sample.reward_parts}
    for name, text in texts.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(
                f"rollout {sample.rollout!a}: {name} holds a lone surrogate, which Arrow and Parquet cannot; the form "
                "'jsonl' can"
            ) from error
