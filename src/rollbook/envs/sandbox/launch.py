"""The command lines of sandboxes in namespaces. Pure: what is known of the host comes in.

A sandbox is a *holder*, a process that does nothing but keep a mount namespace with the workspace in it (a tmpfs, so
that it is bounded and goes when the holder goes), and *commands*, each in namespaces of its own inside that one. The
first process of a command (`FIRST`) writes a mark to stderr right before it starts what was asked: what stands before
the mark is the launcher's, what stands behind is the command's. Only then it enters the workspace, whose owner may have
shut it. When it ends, so does all that the command started.

Rights: an owner that is root becomes uid 65534 first; then everything happens in a user namespace of its own
(`Rights.USER`). Where those are not to be had, root makes the namespaces and drops its rights last (`Rights.ROOT`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rollbook.envs.sandbox.result import Kind, SandboxLimits

__all__ = ["HELD_WORKSPACE", "OWN_PLACES", "WORKSPACE", "Host", "Launch", "Rights", "limited"]

NOBODY = 65534
SHELL = "/bin/sh"
WORKSPACE = "/workspace"
"""Where commands find it."""
HELD_WORKSPACE = f"/tmp{WORKSPACE}"  # noqa: S108 (the holder's own)
"""Where it is in the holder's mounts."""
OWN_PLACES = (WORKSPACE, "/tmp", "/proc", "/dev")  # noqa: S108 (inside)
"""Folders at the top that a sandbox has for itself."""
ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": WORKSPACE,
    "TMPDIR": "/tmp",  # noqa: S108 (inside)
    "LANG": "C.UTF-8",
}
"""All that a command finds in its environment."""

JOIN = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 > "$1/cgroup.procs" || exit 125; shift; n=$((n-1)); done; exec "$@"'
)
MAKE_WORKSPACE = (
    'set -e; mount -t tmpfs -o "size=$1,nr_inodes=$2,mode=0755,nosuid,nodev" tmpfs /tmp; '
    f"mkdir -m 0700 {HELD_WORKSPACE} /tmp/tmp /tmp/shm; "
    f'if [ -n "$3" ]; then chown "$3" {HELD_WORKSPACE} /tmp/tmp /tmp/shm; fi'
)
SYSTEM = f"""
mkdir /tmp/root
mount -t tmpfs -o size=1m,nr_inodes=500,mode=0755,nosuid,nodev tmpfs /tmp/root
cd /tmp/root
mkdir -p usr etc proc dev/shm .{WORKSPACE} tmp
mount --bind /usr usr
mount -o remount,bind,ro usr
for each in bin sbin lib lib32 lib64 libx32; do
  if [ -L "/$each" ]; then ln -s "$(readlink "/$each")" "$each"
  elif [ -d "/$each" ]; then mkdir "$each"; mount --bind "/$each" "$each"; mount -o remount,bind,ro "$each"; fi
done
for each in "$@"; do
  mkdir -p ".$each"; mount --bind "$each" ".$each"; mount -o remount,bind,ro ".$each"
done
if [ -e /etc/ld.so.cache ]; then cp /etc/ld.so.cache etc/; fi
if [ -e /etc/alternatives ]; then cp -r /etc/alternatives etc/; fi
for each in null zero full random urandom; do : > "dev/$each"; mount --bind "/dev/$each" "dev/$each"; done
ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr
mount --bind {HELD_WORKSPACE} .{WORKSPACE}; mount --bind /tmp/tmp tmp; mount --bind /tmp/shm dev/shm
mount -o remount,bind,ro /tmp/root
cd /
"""
HOLD = "echo ready; exec cat > /dev/null"
"""It reads from its owner, so it ends with it."""
FIRST = f'echo "$1" >&2; shift; cd {WORKSPACE} || exit 126; exec 3>&2 2>/dev/null; "$@" 2>&3 3>&-; exit $?'
CLOSE = 'echo 0 > /proc/sys/user/max_user_namespaces || exit 126; exec "$@"'
"""No user namespace in there: in one of its own, a command could mount memory that nothing bounds."""
PIVOT = (
    "mount -t proc -o nosuid,nodev,noexec proc /tmp/root/proc && cd /tmp/root && pivot_root . . && umount -l . "
    "|| exit 125; "
)


class Rights(StrEnum):
    """Whose rights make the namespaces."""

    USER = "user"
    """Those of a user namespace; outside of it the sandbox has none."""
    ROOT = "root"
    """Root's own; dropped before what was asked starts."""


@dataclass(frozen=True, slots=True)
class Host:
    """What is known of this machine."""

    root: bool
    """The owner is root."""
    links: tuple[tuple[str, str], ...]
    """Top-level folders of programs that are links, with their targets."""
    folders: tuple[str, ...]
    """Those that are folders of their own."""
    sieve: bytes | None = None
    """The filter of system calls that ``bwrap`` sets; None: none is known for this machine."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Command lines for one kind of sandbox on one machine."""

    kind: Kind
    rights: Rights
    host: Host

    def holder(self, limits: SandboxLimits, readonly: Sequence[str]) -> list[str]:
        """Makes the workspace and keeps it, until its stdin ends. Writes ``ready`` to stdout."""
        owner = f"{NOBODY}:{NOBODY}" if self.rights is Rights.ROOT else ""
        script = f"{MAKE_WORKSPACE}\nshift 3\n{SYSTEM if self.kind is Kind.UNSHARE else ''}\n{HOLD}"
        sizes = [str(limits.disk), str(limits.files), owner, *readonly]
        user = ["--user", "--map-root-user"] if self.rights is Rights.USER else []
        return [*self._drop_first(), "unshare", *user, "--mount", SHELL, "-c", script, "sh", *sizes]

    def command(
        self,
        argv: Sequence[str],
        *,
        holder: int,
        mark: str,
        limits: Sequence[str],
        groups: Sequence[str],
        network: bool,
        readonly: Sequence[str],
        sieve: int | None = None,
    ) -> list[str]:
        """Runs `argv` beside the holder. `limits`: a prefix that sets limits of single processes (`limited`).
        `sieve`: the descriptor from which the filter of system calls is read; ``bwrap`` only."""
        enter = ["nsenter", f"--target={holder}", "--mount"]
        if self.rights is Rights.USER:
            enter += ["--user", "--preserve-credentials"]
        join = [SHELL, "-c", JOIN, "sh", str(len(groups)), *groups] if groups else []
        inside = [mark, *self._drop_last(), "env", "-i", *(f"{k}={v}" for k, v in ENV.items()), *limits, *argv]
        if self.kind is Kind.BUBBLEWRAP:
            script = [*([] if sieve is None else ["--seccomp", str(sieve)]), "--", SHELL, "-c", FIRST, "sh"]
            return [*join, *self._drop_first(), *enter, *self._bwrap(network, readonly), *script, *inside]
        return [*join, *self._drop_first(), *enter, *self._unshare(network), PIVOT + FIRST, "sh", *inside]

    def _drop_first(self) -> list[str]:
        if not self.host.root or self.rights is Rights.ROOT:
            return []
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]

    def _drop_last(self) -> list[str]:
        drop = ["setpriv", "--no-new-privs", "--inh-caps=-all"]
        if self.rights is Rights.ROOT:
            return [*drop, "--bounding-set=-all", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
        if self.kind is Kind.BUBBLEWRAP:
            return []  # it has done so
        # setfcap is asked of whoever maps the root of the namespace above; it ends with the exec
        user = ["unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--keep-caps", "--"]
        last = [SHELL, "-c", CLOSE, "sh", *drop, "--ambient-caps=-all", "--bounding-set=-all", "--"]
        return [*drop, "--bounding-set=-all,+setfcap", "--", *user, *last]

    def _unshare(self, network: bool) -> list[str]:
        spaces = ["--mount", "--pid", "--ipc", "--uts", "--cgroup", *([] if network else ["--net"])]
        return ["setpriv", "--pdeathsig=KILL", "--", "unshare", *spaces, "--fork", "--kill-child", SHELL, "-c"]

    def _bwrap(self, network: bool, readonly: Sequence[str]) -> list[str]:
        spaces = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        spaces += [] if network else ["--unshare-net"]
        if self.rights is Rights.USER:
            spaces += ["--unshare-user", "--disable-userns", "--uid", str(NOBODY), "--gid", str(NOBODY)]
        else:
            spaces += [word for cap in ("SETUID", "SETGID", "SETPCAP") for word in ("--cap-add", f"CAP_{cap}")]
        seen = ["--ro-bind", "/usr", "/usr"]
        for name, target in self.host.links:
            seen += ["--symlink", target, name]
        for name in (*self.host.folders, *readonly):
            seen += ["--ro-bind", name, name]
        for name in ("/etc/ld.so.cache", "/etc/alternatives", *(("/etc/resolv.conf", "/etc/ssl") if network else ())):
            seen += ["--ro-bind-try", name, name]
        own = ["--bind", HELD_WORKSPACE, WORKSPACE, "--bind", "/tmp/tmp", "/tmp"]  # noqa: S108 (the sandbox's own)
        last = ["--proc", "/proc", "--dev", "/dev", "--bind", "/tmp/shm", "/dev/shm"]  # noqa: S108
        ends = ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]
        lives = ["--die-with-parent", "--new-session", "--as-pid-1"]
        return ["bwrap", *lives, *spaces, *seen, *last, *own, *ends]


def limited(limits: SandboxLimits, grouped: bool) -> list[str]:
    """Limits of single processes. Where groups bound the whole, memory and processes are left to them."""
    bounds = {
        "cpu": f"{limits.cpu}:{limits.cpu + 1}",
        "fsize": str(limits.disk),
        "nofile": str(limits.open_files),
        "core": "0",
    }
    if not grouped:
        bounds |= {"as": str(limits.memory), "nproc": str(limits.processes)}
    return ["prlimit", *(f"--{name}={value}" for name, value in bounds.items()), "--"]
