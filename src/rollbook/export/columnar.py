"""Samples as batches of Arrow columns, for the forms that are made of such.

Rules: arrays are list columns of their own type (masks are bool); an absent logprob is NaN, as in the sample, so the
column is bit for bit the sample's; an array that a sample does not have is null; ``samplings`` is JSON text. A batch
has at most 512 rows, and fewer where they hold more than two million tokens, so that memory stays bounded.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.export.fields import arrays, scalars
from rollbook.trace.call import Sampling
from rollbook.trace.sample import Sample
from rollbook.trace.stored import SampleBlock

__all__ = ["MAX_ROWS", "Batches", "schema"]

# pyarrow comes without types; through Any the rest of the module is checked as strictly as the others
pa: Any = importlib.import_module("pyarrow")

MAX_ROWS = 512
_MAX_TOKENS = 2_000_000

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


def schema(*, maps: bool) -> Any:
    """The pyarrow schema. `maps`: ``reward_parts`` is a map; else a list of (part, value), for readers without maps."""
    parts = _SCALARS["reward_parts"] if maps else pa.list_(pa.struct([("part", pa.string()), ("value", pa.float64())]))
    fields = {**_SCALARS, "reward_parts": parts, **{name: pa.list_(kind) for name, kind in _ARRAYS.items()}}
    return pa.schema(list(fields.items()), metadata=_VERSION)


class Batches:
    """Collects samples and gives each full batch to `write`; holds one at most."""

    def __init__(self, write: Callable[[Any], None], *, maps: bool) -> None:
        self._write, self._maps, self._schema = write, maps, schema(maps=maps)
        self._rows: list[dict[str, Any]] = []
        self._pieces: list[Mapping[str, npt.NDArray[Any]]] = []
        self._lengths: list[Sequence[int]] = []
        self._tokens = 0

    def write(self, sample: Sample) -> None:
        """Take one sample."""
        self._take((sample,), arrays(sample), (len(sample),))

    def write_block(self, block: SampleBlock) -> None:
        """Take several."""
        self._take(block.samples, block.arrays, np.diff(block.offsets).tolist())

    def flush(self) -> None:
        """Give away what is held."""
        if self._rows:
            columns = {name: self._column(name) for name in _SCALARS}
            for name in _ARRAYS:
                columns[name] = self._lists(name, columns)
            self._write(pa.RecordBatch.from_arrays(list(columns.values()), schema=self._schema))
        self._rows, self._pieces, self._lengths, self._tokens = [], [], [], 0

    def _take(self, samples: Iterable[Sample], pieces: Mapping[str, npt.NDArray[Any]], lengths: Sequence[int]) -> None:
        rows = [self._row(sample) for sample in samples]
        tokens = sum(lengths)
        if self._rows and (self._tokens + tokens > _MAX_TOKENS or len(self._rows) + len(rows) > MAX_ROWS):
            self.flush()
        self._rows += rows
        self._pieces.append(pieces)
        self._lengths.append(lengths)
        self._tokens += tokens
        if len(self._rows) >= MAX_ROWS:
            self.flush()

    def _row(self, sample: Sample) -> dict[str, Any]:
        row = scalars(sample, samplings=_spell_samplings)
        _refuse_surrogates(row)
        parts = row["reward_parts"].items()
        row["turn_rewards"] = [{"turn": turn, "value": value} for turn, value in row["turn_rewards"]]
        row["reward_parts"] = list(parts) if self._maps else [{"part": part, "value": value} for part, value in parts]
        return row

    def _column(self, name: str) -> Any:
        return pa.array([row[name] for row in self._rows], self._schema.field(name).type)

    def _lists(self, name: str, columns: Mapping[str, Any]) -> Any:
        """One column of lists; a sample that lacks the array has null. `columns`: those that are made already."""
        found = [piece.get(name) for piece in self._pieces]
        if name == "loss_mask" and all(piece["sampled"] is piece[name] for piece in self._pieces):
            return columns["sampled"]
        given: list[npt.NDArray[Any]] = [array for array in found if array is not None]
        joined = np.concatenate(given) if given else np.zeros(0, np.float32)
        whole = len(given) == len(found)
        sizes = [
            np.asarray(lengths) if array is not None else np.zeros(len(lengths), np.int64)
            for array, lengths in zip(found, self._lengths, strict=True)
        ]
        offsets = np.concatenate(([0], np.concatenate(sizes).cumsum())).astype(np.int32)
        missing = (
            None
            if whole
            else pa.array([array is None for array, lengths in zip(found, self._lengths, strict=True) for _ in lengths])
        )
        return pa.ListArray.from_arrays(offsets, pa.array(joined, _ARRAYS[name], from_pandas=False), mask=missing)


@lru_cache(maxsize=4096)
def _spell_samplings(samplings: tuple[Sampling, ...]) -> str:
    return json.dumps([msgspec.to_builtins(sampling) for sampling in samplings])


def _refuse_surrogates(row: Mapping[str, Any]) -> None:
    texts = {name: row[name] for name in ("run", "group", "episode", "rollout")}
    texts |= {f"reward part {part!a}": part for part in row["reward_parts"]}
    for name, text in texts.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(
                f"rollout {row['rollout']!a}: {name} holds a lone surrogate, which Arrow and Parquet cannot; the form "
                "'jsonl' can"
            ) from error
