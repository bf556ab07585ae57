"""Routed experts of a mixture-of-experts policy, beside the graph: kept by node, for its sampled tokens.

Rules: a node has them for all its sampled tokens or not at all, since a gap cannot be told from expert 0; numbers of
layers and of experts may differ between nodes (two policies), not within one; a trace holds at most `MAX_BYTES` of
them. They are stored in a section of their own and read only where that is asked for: a trace that was read without
them says so (`left_out`), and is then neither stored again nor asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError

__all__ = ["MAX_BYTES", "ExpertRows", "Experts", "RoutedExperts", "decode_experts", "encode_experts", "spread_experts"]

MAX_BYTES = 256 << 20
"""The most that one trace holds, so that the section fits its bound."""

Experts = npt.NDArray[np.uint16]
"""uint16, shape (tokens, layers, k)."""

_UINT16 = np.dtype(np.uint16)


class ExpertRows(msgspec.Struct, frozen=True, array_like=True):
    """The routed experts of one node, as they are stored in section ``experts``."""

    node: int
    layers: int
    k: int
    ids: memoryview
    """Little-endian uint16, shape (sampled tokens, layers, k)."""


class RoutedExperts:
    """Routed experts by node."""

    __slots__ = ("_by_node", "left_out", "nbytes")

    def __init__(self) -> None:
        self._by_node: dict[int, Experts] = {}
        self.nbytes = 0
        """Bytes held."""
        self.left_out = False
        """True: the stored trace has some and was read without them."""

    def __len__(self) -> int:
        return len(self._by_node)

    def __iter__(self) -> Iterator[int]:
        """The nodes that have them, as they were added."""
        return iter(self._by_node)

    def get(self, node: int) -> Experts | None:
        """Of the sampled tokens of a node; None where it has none, or where they were left out."""
        return self._by_node.get(node)

    def check(self, experts: Experts, sampled: int) -> None:
        """Raise `RecordError` where `experts` are not those of `sampled` tokens, or do not fit any more."""
        if experts.dtype != _UINT16 or experts.ndim != 3 or not sampled or len(experts) != sampled:
            shape = f"{experts.dtype} of shape {experts.shape}"
            raise RecordError(
                f"routed experts are {shape}; want uint16, (tokens, layers, k) for {sampled} sampled tokens"
            )
        if not experts.size:
            raise RecordError("routed experts name no layer, or no expert of it")
        if self.nbytes + experts.nbytes > MAX_BYTES:
            raise RecordError(f"routed experts of one trace take more than {MAX_BYTES >> 20} MiB; ask for none")

    def keep(self, node: int, experts: Experts) -> None:
        """Keep what was checked, as a copy that nobody changes."""
        kept = np.array(experts, dtype=np.uint16, order="C")
        kept.flags.writeable = False
        self._by_node[node] = kept
        self.nbytes += kept.nbytes


def encode_experts(experts: RoutedExperts, first: int) -> bytes | None:
    """Section ``experts`` of the nodes from `first` on; None where they have none."""
    if experts.left_out:
        raise RecordError("the trace was read without its routed experts; stored again it would lose them")
    rows = [_row(node, found) for node in experts if node >= first and (found := experts.get(node)) is not None]
    return msgspec.msgpack.encode(rows) if rows else None


def _row(node: int, experts: Experts) -> ExpertRows:
    _, layers, k = experts.shape
    return ExpertRows(node, layers, k, experts.astype("<u2", copy=False).data.cast("B"))


def decode_experts(data: bytes) -> Iterable[tuple[int, Experts]]:
    """(node, its routed experts); raises `RecordError` where the section is damaged."""
    try:
        rows = msgspec.msgpack.decode(data, type=list[ExpertRows])
        return [(row.node, np.frombuffer(row.ids, "<u2").reshape(-1, row.layers, row.k)) for row in rows]
    except (msgspec.MsgspecError, ValueError) as error:
        raise RecordError(f"section 'experts' is damaged: {error}") from error


def spread_experts(
    experts: RoutedExperts, nodes: Iterable[int], positions: Callable[[int], npt.NDArray[np.intp]], tokens: int
) -> tuple[Experts, npt.NDArray[np.bool_]] | None:
    """On a sequence of `tokens` ids: uint16 (tokens, layers, k), 0 where not known, and bool (tokens,): where they are.
    None where no node of the sequence has any. `positions`: where the sampled tokens of a node stand in it.

    Raises `RecordError` where they were left out, or where two nodes have other numbers of layers or experts.
    """
    if experts.left_out:
        raise RecordError("the trace was read without its routed experts; read it with them (experts=True)")
    held = [(node, found) for node in nodes if (found := experts.get(node)) is not None]
    shapes = {found.shape[1:] for _, found in held}
    if not held:
        return None
    if len(shapes) > 1:
        raise RecordError(
            f"turns of one branch have routed experts of shapes {sorted(shapes)}; no one array holds them"
        )
    full, known = np.zeros((tokens, *shapes.pop()), np.uint16), np.zeros(tokens, np.bool_)
    for node, found in held:
        places = positions(node)
        full[places], known[places] = found, True
    return full, known
