"""Parquet: one sample per row, fields as in `rollbook.export.fields`.

Rules: arrays are list columns of their own type (masks are bool); an absent logprob is NaN, as in the sample, so the
column is bit for bit the sample's; ``reward_parts`` is a map, ``turn_rewards`` a list of structs, ``samplings`` JSON
text. A row group has at most 512 rows, and fewer where they hold more than two million tokens, so that memory stays
bounded. Logprobs are split by byte before compression; dictionaries are kept for the ids only.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.export.fields import arrays, scalars
from rollbook.trace.sample import Sample

__all__ = ["SCHEMA", "ParquetWriter", "open_writer"]

# pyarrow comes without types; through Any the rest of the module is checked as strictly as the others
pa: Any = importlib.import_module("pyarrow")
pq: Any = importlib.import_module("pyarrow.parquet")

_MAX_ROWS = 512
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
SCHEMA: Any = pa.schema(
    [*_SCALARS.items(), *((name, pa.list_(kind)) for name, kind in _ARRAYS.items())],
    metadata={"rollbook.samples": "2"},
)
"""The pyarrow schema of the file."""

_REPEATING = ["run", "group", "episode", "rollout", "ending_kind", "ending_reason", "samplings"]


class _Tap:
    """Passes bytes on until it is shut: pyarrow writes a footer whenever it closes, also after an error, and a shut
    tap lets that fall. It has what pyarrow asks of a file."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file: BinaryIO | None = file
        self._written = 0

    def write(self, data: bytes) -> int:
        if self._file is not None:
            self._file.write(data)
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        pass

    def shut(self) -> None:
        self._file = None


class ParquetWriter:
    """Writes row groups; holds the samples of one at most."""

    def __init__(self, file: BinaryIO) -> None:
        self._tap = _Tap(file)
        self._writer: Any = pq.ParquetWriter(
            self._tap,
            SCHEMA,
            compression="zstd",
            use_dictionary=_REPEATING,
            use_byte_stream_split=["logprobs.list.element"],
            write_statistics=_REPEATING,
        )
        self._held: list[Sample] = []
        self._rows: list[dict[str, Any]] = []
        self._tokens = 0

    def write(self, sample: Sample) -> None:
        row = scalars(sample)
        _refuse_surrogates(row)
        row["turn_rewards"] = [{"turn": turn, "value": value} for turn, value in row["turn_rewards"]]
        row["reward_parts"] = list(row["reward_parts"].items())
        row["samplings"] = json.dumps(row["samplings"])
        if self._held and self._tokens + len(sample) > _MAX_TOKENS:
            self._flush()
        self._held.append(sample)
        self._rows.append(row)
        self._tokens += len(sample)
        if len(self._held) == _MAX_ROWS:
            self._flush()

    def finish(self) -> None:
        if self._held:
            self._flush()
        self._writer.close()

    def release(self) -> None:
        self._tap.shut()
        self._writer.close()

    def _flush(self) -> None:
        columns = [pa.array([row[name] for row in self._rows], kind) for name, kind in _SCALARS.items()]
        columns += [self._lists(name, kind) for name, kind in _ARRAYS.items()]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), row_group_size=_MAX_ROWS)
        self._held, self._rows, self._tokens = [], [], 0

    def _lists(self, name: str, kind: Any) -> Any:
        """One column of lists; a sample that lacks the array has null."""
        found = [arrays(sample).get(name) for sample in self._held]
        given: list[npt.NDArray[Any]] = [array for array in found if array is not None]
        offsets = np.cumsum([0, *(0 if array is None else len(array) for array in found)], dtype=np.int32)
        missing = None if len(given) == len(found) else pa.array([array is None for array in found])
        joined = np.concatenate(given) if given else np.zeros(0, np.float32)
        return pa.ListArray.from_arrays(offsets, pa.array(joined, kind, from_pandas=False), mask=missing)


def open_writer(file: BinaryIO) -> ParquetWriter:
    """A writer into an open file."""
    return ParquetWriter(file)


def _refuse_surrogates(row: dict[str, Any]) -> None:
    texts = {name: row[name] for name in ("run", "group", "episode", "rollout")}
    texts |= {f"reward part {part!a}": part for part in row["reward_parts"]}
    for name, text in texts.items():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UsageError(
                f"rollout {row['rollout']!a}: {name} holds a lone surrogate, which Parquet cannot; the form 'jsonl' can"
            ) from error
