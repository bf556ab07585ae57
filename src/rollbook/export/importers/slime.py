"""slime's debug rollout files (`--save-debug-rollout-data`), token-exact.

Source: THUDM/slime @ 624b824a (0.3.1), `slime/utils/types.py` (`Sample.to_dict`) and
`slime/observability/rollout_data_utils.py`: a `torch.save` of ``{"rollout_id", "samples": [dict]}``. Miles, its fork,
writes the same.

Convention: `tokens` is prompt and response; the last `response_length` of them are the response; `loss_mask` and
`rollout_log_probs` are about the response alone (R), unshifted, 0.0 off the mask; without a mask the whole response
trains. `weight_versions` has one entry for each request and not for each token, so a version is kept only where all
entries are the same whole number. Samples that share a `rollout_id` are branches of one rollout; `group_index` is the
group.

Endings: `completed` is ``submitted/final_answer``, unless the sample's metadata say that it was cut; `truncated` is
``length_cut/generation_limit``; `aborted` is ``error/cancelled``, for slime aborts what it does not need any more;
`failed` is ``error/harness``; `pending` is not recorded. `remove_sample` takes a sample out of the loss: its turns are
marked demoted. A reward of several parts has no total in the file, so it has none here. Sampling settings, routed
experts, kept top-p ids and teacher logprobs are not taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.export.importers.archive import Archive, opened_archive
from rollbook.export.importers.book import Book, content_id, numbers, reward_of
from rollbook.export.importers.messages import ChatMessage, chat_message
from rollbook.export.importers.pickled import MOST_PICKLE, Storage, unpickle
from rollbook.export.importers.rows import BadRow, Row, as_record
from rollbook.export.importers.spans import add_flat, add_prompt, float32s, int32s
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.node import Fork, ForkReason, Mark
from rollbook.trace.record import FinalState
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["rows", "traces"]

_ENDINGS = {
    "completed": Reason.FINAL_ANSWER,
    "truncated": Reason.GENERATION_LIMIT,
    "aborted": Reason.CANCELLED,
    "failed": Reason.HARNESS,
    "pending": Reason.NOT_RECORDED,
}


class _Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a `Sample` that are read."""

    tokens: list[int]
    response_length: int
    status: str
    prompt: str | list[ChatMessage] | None = None
    response: str = ""
    loss_mask: list[int] | None = None
    rollout_log_probs: list[float] | None = None
    reward: float | dict[str, Any] | None = None
    label: Any = None
    weight_versions: list[Any] | None = None
    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    remove_sample: bool = False
    metadata: dict[str, Any] | None = None


def rows(path: Path) -> Iterator[Row]:
    """One row for each rollout: a sample, or those that share a `rollout_id`."""
    with opened_archive(path) as archive:
        try:
            samples = _samples(archive)
        except BadRow as error:
            raise UsageError(f"{path} is no debug rollout file of slime: {error}") from error
    together: dict[object, list[int]] = {}
    for place, plain in enumerate(samples):
        fields = cast("dict[str, Any]", plain) if isinstance(plain, dict) else {}
        shared, group = fields.get("rollout_id"), fields.get("group_index")
        key = (group, shared) if isinstance(shared, int) and isinstance(group, int | None) else (place,)
        together.setdefault(str(key), []).append(place)
    for places in together.values():
        named = "sample" if len(places) == 1 else "samples"
        yield Row(f"{named} {', '.join(str(place + 1) for place in places)}", _Take([samples[at] for at in places]))


def traces(plain: Any, book: Book) -> Iterator[Trace]:
    """The trace of one rollout."""
    siblings = [as_record(_flat(each), _Sample) for each in cast("list[Any]", plain)]
    first, last = siblings[0], siblings[-1]
    messages = _prompt(first)
    key = [first.label if isinstance(first.label, str) else None, messages]
    head = book.head(
        task=Task(
            id=content_id(key),
            prompt=first.prompt if isinstance(first.prompt, str) else tuple(messages),
            target=first.label if isinstance(first.label, str | int | float | bool) else None,
        ),
        group=first.group_index,
        tokens=True,
        source={"index": first.index, "rollout_id": first.rollout_id, "group_index": first.group_index},
    )
    trace = Trace(head)
    turns = [turn for sample in siblings for turn in _branch(trace, sample)]
    if any(sample.remove_sample for sample in siblings):
        for turn in turns:
            trace.graph.mark(turn, Mark.DEMOTED)
    _finish(trace, siblings, last, turns)
    yield trace


class _Take:
    """Samples that are read already."""

    def __init__(self, samples: list[Any]) -> None:
        self._samples = samples

    def __call__(self) -> Any:
        return self._samples


def _samples(archive: Archive) -> list[Any]:
    pickles = [name for name in archive.names if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise BadRow("it is no archive of torch.save")
    root = pickles[0].removesuffix("data.pkl")
    order = archive.read(f"{root}byteorder", most=16) if f"{root}byteorder" in archive.names else b"little"

    def storage(asked: Storage) -> bytes:
        return archive.read(f"{root}data/{asked.key}", stored=True)

    data = archive.read(pickles[0], most=MOST_PICKLE, stored=True)
    plain = unpickle(data, storage, ">" if order.strip() == b"big" else "<")
    found: Any = cast("dict[Any, Any]", plain).get("samples") if isinstance(plain, dict) else None
    if not isinstance(found, list):
        raise BadRow("it holds no list 'samples'")
    return cast("list[Any]", found)


def _flat(plain: Any) -> Any:
    """Tensors of one dimension as lists."""
    if not isinstance(plain, dict):
        return plain
    fields = cast("dict[Any, Any]", plain)
    return {name: _listed(value) for name, value in fields.items() if name in _Sample.__struct_fields__}


def _listed(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    array = cast("npt.NDArray[Any]", value)
    return array.tolist() if array.ndim == 1 else array


def _prompt(sample: _Sample) -> list[Any]:
    if isinstance(sample.prompt, list):
        return [chat_message(msgspec.to_builtins(each)) for each in sample.prompt]
    return [chat_message({"role": "user", "content": sample.prompt})] if sample.prompt is not None else []


def _branch(trace: Trace, sample: _Sample) -> list[int]:
    """The nodes of one sample; returns its turns."""
    ids = int32s(sample.tokens, "tokens")
    count = sample.response_length
    if not 0 <= count <= len(ids):
        raise BadRow(f"its response has {count} of {len(ids)} tokens")
    mask = int32s(sample.loss_mask if sample.loss_mask is not None else [1] * count, "loss_mask")
    logprobs = None if sample.rollout_log_probs is None else float32s(sample.rollout_log_probs, "rollout_log_probs")
    start = len(ids) - count
    fork = Fork(reason=ForkReason.NEW_ROOT, detail="a further sample of the rollout") if len(trace.graph) else None
    leaf = add_prompt(trace, _prompt(sample), ids[:start], fork)
    version = _version(sample.weight_versions or ())
    return add_flat(trace, leaf, ids[start:], mask, logprobs, version=version, text=sample.response)


def _version(said: Sequence[Any]) -> int | None:
    """The one version that all requests name."""
    if not all(isinstance(each, str | int) for each in said) or len(set(map(str, said))) != 1:
        return None
    if not str(said[0]).isdecimal():
        return None
    version = int(str(said[0])[:12])
    return version if version < 2**31 else None


def _finish(trace: Trace, siblings: Sequence[_Sample], last: _Sample, turns: Sequence[int]) -> None:
    reason = _ENDINGS.get(last.status)
    if reason is None:
        raise BadRow(f"its status is {last.status[:40]!a}, which is none of {', '.join(_ENDINGS)}")
    if reason is Reason.FINAL_ANSWER and (last.metadata or {}).get("truncated") is True:
        reason = Reason.GENERATION_LIMIT
    trace.end(Ending(reason, f"status {last.status}"))
    divided = len(turns) > len(siblings)
    trace.update(final_state=FinalState(text=last.response) if divided and last.response else None)
    rewards = [sample.reward for sample in siblings]
    if isinstance(last.reward, dict):
        trace.score(None, numbers(last.reward))
    elif any(reward != rewards[0] for reward in rewards):
        trace.note("import", "its samples have different rewards, so the rollout has none")
    elif last.reward is not None:
        trace.score(reward_of(last.reward))
