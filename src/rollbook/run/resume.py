"""A run's folder: new, or the one that is there where it was asked for the same.

Order: what stands in the folder is looked at before anything is fetched or started, so a wrong request costs nothing;
the folder is made, or opened for writing, last. What decides which rollouts a run holds (`FIXED`) never changes within
it, whatever is allowed: groups would compare what is not comparable.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import ConfigError
from rollbook.rewards import DEFAULT_ESTIMATOR
from rollbook.rollout import GroupRules
from rollbook.rollout.breaker import BreakerRules
from rollbook.rollout.staleness import StalenessBound
from rollbook.run.access import REQUEST_TIMEOUT
from rollbook.run.config import RunConfig, differences
from rollbook.run.resources import read_resources
from rollbook.store import Manifest, RunWriter, read_manifest, write_manifest
from rollbook.trace import ContextPolicy, EndingRules

__all__ = ["FIXED", "StreamSettings", "asked", "check_folder", "keep_stream", "open_folder", "refuse_stream"]

FIXED = ("environment", "options", "seed", "group")
"""What no resume can change."""
HALF_MADE = ".run.json.tmp"
"""What a process leaves that was killed while it made the folder."""


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What stood between the rollouts and a trainer; a resume may choose others."""

    queue: int
    """The most groups that run or wait to be taken."""
    bound: StalenessBound | None
    """The staleness that is allowed; None: any."""
    rounds: int | None
    """How often the task list is gone through; None: for ever."""


class _Groups(msgspec.Struct, frozen=True):
    resample: int = 0


class Planned(msgspec.Struct, frozen=True):
    """What of a stored configuration says how much was planned. Whoever only reads a run takes this: a run stays
    readable whose configuration today's `RunConfig` would refuse."""

    tasks: int
    group: int
    groups: _Groups = _Groups()
    rules: EndingRules = EndingRules()

    @property
    def resample(self) -> int:
        """Further tasks that may take the place of groups without a signal."""
        return self.groups.resample


class Stored(msgspec.Struct, frozen=True):
    """What a run keeps of itself in its manifest."""

    run: str
    """The run's id."""
    asked: dict[str, Any]
    """The configuration as plain data."""
    stream: StreamSettings | None = None
    """As it was opened last; None: nobody took its groups meanwhile."""

    def planned(self) -> Planned | None:
        """How much was planned; None where the configuration does not say."""
        try:
            return msgspec.convert(self.asked, Planned)
        except (ConfigError, msgspec.ValidationError):
            return None

    def tasks(self, folder: Path) -> int:
        """How many tasks it was asked for; raises `ConfigError` where the manifest does not say."""
        found = self.asked.get("tasks")
        if not isinstance(found, int):
            raise ConfigError(f"{folder / 'run.json'} is damaged: it names {found!r} tasks; restore it from a copy")
        return found


def asked(manifest: Manifest, folder: Path) -> Stored:
    """What the run in `folder` was asked to do; raises `ConfigError` where something else than `run` made it."""
    try:
        return msgspec.convert(manifest.config, Stored)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{folder} holds traces that no run of this kind made ({error}); it can be read, but not resumed"
        ) from error


def check_folder(config: RunConfig, folder: Path, *, resume: bool, allow_changed: bool) -> None:
    """Refuse what `open_folder` would refuse, without touching anything. Raises `UsageError` with the remedy."""
    try:
        _check_folder(config, folder, resume, allow_changed)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be a run's folder ({error.strerror}); choose another (--out)") from error


def _check_folder(config: RunConfig, folder: Path, resume: bool, allow_changed: bool) -> None:
    if allow_changed and not resume:
        raise ConfigError("a new run has nothing that could have changed: --allow-changed goes with --resume only")
    if resume:
        _check_same(config, asked(read_manifest(folder), folder), folder, allow_changed)
        read_resources(folder)  # what is left of them is added to it at the end
    elif (folder / "run.json").exists():
        raise ConfigError(f"{folder} holds a run already; go on with it (--resume), or choose another folder (--out)")
    elif folder.is_dir() and any(entry.name != HALF_MADE for entry in folder.iterdir()):
        raise ConfigError(f"{folder} is not empty and no run; choose a new folder (--out)")
    elif (file := next((path for path in (folder, *folder.parents) if path.is_file()), None)) is not None:
        raise ConfigError(f"{file} is a file, so {folder} cannot be a run; choose a new folder (--out)")


def open_folder(config: RunConfig, folder: Path, *, resume: bool, allow_changed: bool) -> tuple[str, RunWriter]:
    """The run's id and its writer. Raises `UsageError`, and then nothing is held open."""
    check_folder(config, folder, resume=resume, allow_changed=allow_changed)
    plain = config.plain()
    if not resume:
        stored = Stored(run=secrets.token_hex(4), asked=plain)
        return stored.run, RunWriter.create(folder, msgspec.to_builtins(stored))
    writer = RunWriter.open(folder)
    try:
        stored = asked(writer.manifest, folder)
        if differences(stored.asked, plain):
            kept = msgspec.to_builtins(msgspec.structs.replace(stored, asked=plain))
            writer.manifest = msgspec.structs.replace(writer.manifest, config=kept)
            write_manifest(folder, writer.manifest)
    except BaseException:
        writer.close()
        raise
    return stored.run, writer


def keep_stream(writer: RunWriter, settings: StreamSettings) -> None:
    """Keep how the run's stream is set."""
    stored = msgspec.structs.replace(asked(writer.manifest, writer.folder), stream=settings)
    writer.manifest = msgspec.structs.replace(writer.manifest, config=msgspec.to_builtins(stored))
    write_manifest(writer.folder, writer.manifest)


def refuse_stream(folder: Path) -> None:
    """Refuse to go on without a trainer with a run whose groups a trainer takes: those that close now would count as
    handed out, and no stream would ever hand them out again. Raises `ConfigError`."""
    if asked(read_manifest(folder), folder).stream is not None:
        raise ConfigError(
            f"a trainer takes the groups of the run in {folder}, and what closes without it would never reach it: go "
            "on with open_stream(..., resume=True), or start a new run in another folder (--out)"
        )


def _check_same(config: RunConfig, stored: Stored, folder: Path, allow_changed: bool) -> None:
    # What a run did that was stored before there was a choice.
    before: dict[str, Any] = {
        "context": ContextPolicy.KEEP.value,
        "template_variables": {},
        "request_timeout": REQUEST_TIMEOUT,
        "groups": msgspec.to_builtins(GroupRules()),
        "resources": {},
        "breaker": msgspec.to_builtins(BreakerRules()),
        "outcome_part": None,
        **stored.asked,
    }
    spread = before.pop("spread", False)
    before.setdefault("estimator", "grpo" if spread else DEFAULT_ESTIMATOR)
    before["limits"] = {"request_retries": 0, **before.get("limits", {})}
    changed = differences(before, config.plain())
    listed = "".join(f"\n  {line}" for line in changed)
    never = [line for line in changed if line.partition(":")[0].partition(".")[0] in FIXED]
    if config.tasks < stored.tasks(folder):
        never.append("tasks")
    if never:
        raise ConfigError(
            f"the run in {folder} was started with another configuration:{listed}\n"
            f"A run keeps its {', '.join(FIXED)}, and its tasks never become fewer: ask for the same, or start a new "
            "run in another folder (--out)."
        )
    if changed and not allow_changed:
        raise ConfigError(
            f"the run in {folder} was started with another configuration:{listed}\n"
            "Ask for the same, start a new run in another folder (--out), or allow the change (--allow-changed)."
        )
