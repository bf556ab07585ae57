"""Reads Rollbook segments without Rollbook: python read_segment.py RUN [PART_OF_A_ROLLOUT_ID], or FILE.seg... for RUN

It needs msgspec (for MessagePack), zstandard and numpy, and follows docs/trace-format.md: files of version 1, folders
of version 2. What it gives is what a trainer takes: for each trainable branch of a trace the token ids, masks, float32
log-probabilities, policy versions and turn numbers, bit for bit as Rollbook itself reads them.
"""

import json
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zstandard

PREFIX = struct.Struct("<4sBBHIQII")
ROW = struct.Struct("<BBHIII")
FILE, TRACE = 1, 2
SECTIONS = {1: "head", 2: "text", 3: "tokens", 4: "calls", 5: "tail"}
FOLDER, FORMAT, WIRE, SAMPLED = 2, 1, 1, 2
ORIGINS = ("policy", "environment", "user", "harness", "subagent", "synthetic")
COLUMNS = {"tokens": 2, "runs": 3, "logprobs": 5, "rescored": 6, "versions": 7, "segments": 8}


def check(fine: bool, problem: str) -> None:
    """Stop where the file is not what the specification says."""
    if not fine:
        raise SystemExit(problem)


def frames(data: bytes) -> Iterator[tuple[int, bytes, dict[int, bytes]]]:
    """Kind, header and unpacked sections of each whole frame; an unfinished one at the end is left out."""
    offset = 0
    while offset + PREFIX.size <= len(data):
        magic, kind, wire, count, head_length, body_length, head_crc, prefix_crc = PREFIX.unpack_from(data, offset)
        check(magic == b"RBF1", f"no frame at byte {offset}")
        check(zlib.crc32(data[offset : offset + PREFIX.size - 4]) == prefix_crc, f"damaged prefix at byte {offset}")
        check(wire <= WIRE, f"written by a newer version ({wire})")
        body = offset + PREFIX.size + head_length
        if body + body_length > len(data):
            return
        head = data[body - head_length : body]
        check(zlib.crc32(head) == head_crc, f"damaged head at byte {offset}")
        sections: dict[int, bytes] = {}
        for name, codec, _, stored, raw, crc in ROW.iter_unpack(head[: count * ROW.size]):
            packed = data[body : body + stored]
            check(zlib.crc32(packed) == crc, f"damaged section {name} of the frame at byte {offset}")
            if codec == 1:
                check(zstandard.frame_content_size(packed) == raw, "a section is longer than declared")
                packed = zstandard.ZstdDecompressor().decompress(packed, max_output_size=raw)
            sections[name] = packed
            body += stored
        yield kind, head[count * ROW.size :], sections
        offset += PREFIX.size + head_length + body_length


def unpack(data: bytes) -> Any:
    """MessagePack, and the spelling of text that UTF-8 cannot hold."""
    plain = msgspec.msgpack.decode(data)
    return unescape(plain["wtf8"]) if isinstance(plain, dict) and plain.keys() == {"wtf8"} else plain


def unescape(value: Any) -> Any:
    """Undo the escapes of a ``wtf8`` section."""
    if isinstance(value, str):
        whole = value.startswith("\u0100")
        return int(value[1:]) if whole else value.encode("latin-1").decode("utf-8", "surrogatepass")
    if isinstance(value, dict):
        return {unescape(key): unescape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [unescape(item) for item in value]
    return value


def read_segment(path: str) -> Iterator[dict[str, Any]]:
    """All traces of a segment: ``summary``, ``head``, ``tail``, ``text``, ``calls`` and the arrays of ``tokens``."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}") from error
    for kind, header, sections in frames(data):
        if kind == FILE:
            info = unpack(header)
            check(info["format"] <= FORMAT, f"format version {info['format']} is newer than {FORMAT}")
            check(info["content"] == "segment", f"a {info['content']} file, not a segment")
        elif kind == TRACE:
            trace = {SECTIONS[name]: unpack(raw) for name, raw in sections.items() if name in SECTIONS}
            yield {**trace, "summary": unpack(header), "tokens": arrays(trace["tokens"])}


def arrays(tokens: dict[str, bytes]) -> dict[str, Any]:
    """The node table and the columns; pairs are (value, count)."""
    found: dict[str, Any] = {"counts": np.frombuffer(tokens["counts"], "<i4").reshape(-1, 9)}
    for name in COLUMNS:
        array = np.frombuffer(tokens[name], "<f4" if name == "logprobs" else "<i4")
        found[name] = array.reshape(-1, 2) if name in ("runs", "versions", "segments") else array
    return found


def nodes(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per message: parent, origin, message, mark, and its slices of the columns."""
    columns = trace["tokens"]
    ends = columns["counts"].cumsum(axis=0)
    rows = []
    for index, (counts, text) in enumerate(zip(columns["counts"], trace["text"]["nodes"], strict=True)):
        row = {"parent": int(counts[0]), "origin": ORIGINS[counts[1]], **text}
        row |= {name: columns[name][ends[index, n] - counts[n] : ends[index, n]] for name, n in COLUMNS.items()}
        row["sampled"] = np.repeat(*row["runs"].T) == SAMPLED
        rows.append(row)
    return rows


def on_mask(mask: np.ndarray, values: np.ndarray, absent: float) -> np.ndarray:
    """`values` where the mask is true; `absent` elsewhere, and everywhere where there are no values."""
    full = np.full(len(mask), absent, values.dtype)
    full[mask] = values if len(values) else absent
    return full


def samples(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """One row of full-length arrays for each branch that trains.

    Branches through a rejected or redacted message do not train. The earliest remaining branch that holds a message
    owns it; in the others it is context. Messages of an untrainable policy or marked demoted are never in the loss.
    """
    rows, head, calls = nodes(trace), trace["head"], trace["calls"]["calls"]
    turns = np.cumsum([row["origin"] == "policy" for row in rows]) - 1
    parents = {row["parent"] for row in rows}
    owned, found = set[int](), list[dict[str, Any]]()
    for leaf in (node for node in range(len(rows)) if node not in parents):
        path = [leaf]
        while rows[path[0]]["parent"] >= 0:
            path.insert(0, rows[path[0]]["parent"])
        if not head["agent"]["trainable"] or {rows[node].get("mark") for node in path} & {"rejected", "redacted"}:
            continue
        fresh = [node for node in path if node not in owned and rows[node]["sampled"].any()]
        owned |= set(path)
        if trained := {node for node in fresh if trains(rows[node], calls, head["policies"])}:
            found.append(sample([(node, rows[node]) for node in path], trained, turns))
    return found


def trains(row: dict[str, Any], calls: list[dict[str, Any]], policies: list[dict[str, Any]]) -> bool:
    """Whether a message may be in the loss."""
    used = {calls[call].get("policy", 0) for call in row["segments"][:, 0]}
    return row.get("mark") != "demoted" and all(policies[index]["trainable"] for index in used)


def sample(path: list[tuple[int, dict[str, Any]]], trained: set[int], turns: np.ndarray) -> dict[str, Any]:
    """The arrays of one branch; entry t is about token t."""
    parts = {
        "token_ids": [row["tokens"] for _, row in path],
        "sampled": [row["sampled"] for _, row in path],
        "loss_mask": [row["sampled"] & (node in trained) for node, row in path],
        "logprobs": [on_mask(row["sampled"], row["logprobs"], np.nan) for _, row in path],
        "policy_version": [on_mask(row["sampled"], np.repeat(*row["versions"].T), -1) for _, row in path],
        "turn_id": [np.where(row["sampled"], np.int32(turns[node]), np.int32(-1)) for node, row in path],
    }
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def run_files(run: Path) -> list[str]:
    """The segments of a run: its owner's, and those of the part of each worker."""
    manifest = json.loads((run / "run.json").read_bytes())
    check(manifest["format"] == "rollbook-run" and manifest["version"] <= FOLDER, f"{run}: unknown or newer format")
    named = {place for place in run.glob("writers/[A-Za-z0-9_-]*") if len(place.name) <= 100}
    parts = named.difference(run.glob("writers/*[!A-Za-z0-9_.-]*"))
    return [str(path) for place in (run, *parts) for path in place.glob("segments/*.seg")]


def order(path: str) -> tuple[bool, str, int, str]:
    """Files of one run as they count: the parts under writers/ by name, the run's own last; within each by number."""
    place, found = Path(path).absolute().parent.parent, Path(path).stem.rpartition("-")[2]
    part = place.parent.name == "writers" and not (place / "run.json").is_file()
    return not part, place.name, int(found) if found.isdecimal() else -1, Path(path).name


def main(words: list[str]) -> None:
    """One line per trace and one per sample. Of a rollout that several segments hold, the latest counts."""
    runs = [Path(word) for word in words[:1] if Path(word, "run.json").is_file()]
    paths = [path for run in runs for path in run_files(run)]
    paths, parts = paths + [w for w in words if w[-4:] == ".seg"], [w for w in words[len(runs) :] if w[-4:] != ".seg"]
    check(len(paths) > 0 and len(parts) < 2, "python read_segment.py RUN|FILE.seg... [PART_OF_A_ROLLOUT_ID]")
    lines: dict[str, list[str]] = {}
    for trace in (trace for path in sorted(paths, key=order) for trace in read_segment(path)):
        row = trace["summary"]
        told = [f"{row['rollout']}  {row['kind']}/{row['reason']}  reward {row['reward']}"]
        told += [f"  {len(one['token_ids'])} tokens, {one['loss_mask'].sum()} trained" for one in samples(trace)]
        lines[row["rollout"]] = told
    wanted = [told for rollout, told in lines.items() if parts == [] or parts[0] in rollout]
    check(len(wanted) > 0, f"no rollout with {parts[0]!r} in its id" if parts else "no sealed trace in these files")
    sys.stdout.writelines(f"{line}\n" for told in wanted for line in told)


if __name__ == "__main__":
    main(sys.argv[1:])
