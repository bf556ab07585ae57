"""Command lines, as they are asked for."""

from __future__ import annotations

import pytest

from rollbook.envs.sandbox import Kind, SandboxLimits
from rollbook.envs.sandbox.launch import Host, Launch, Rights, limited

ROOT = Host(True, (("/bin", "usr/bin"),), ("/lib64",))
USER = Host(False, (("/bin", "usr/bin"),), ())
KINDS = [Kind.BUBBLEWRAP, Kind.UNSHARE]


def command(
    kind: Kind, rights: Rights, host: Host, *, network: bool = False, groups: tuple[str, ...] = ()
) -> list[str]:
    return Launch(kind, rights, host).command(
        ["prog", "a b"],
        holder=7,
        mark="m",
        limits=["prlimit", "--"],
        groups=groups,
        network=network,
        readonly=("/opt",),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rights", Rights)
def test_what_was_asked_comes_last_with_a_cleared_environment(kind: Kind, rights: Rights) -> None:
    line = command(kind, rights, ROOT)
    assert line[-4:] == ["prlimit", "--", "prog", "a b"]
    assert line[line.index("env") + 1] == "-i"
    assert line.index("env") < line.index("prlimit")


@pytest.mark.parametrize("kind", KINDS)
def test_the_network_is_unshared_unless_it_is_asked_for(kind: Kind) -> None:
    for host, rights in ((ROOT, Rights.ROOT), (USER, Rights.USER)):
        assert any(word in ("--net", "--unshare-net") for word in command(kind, rights, host))
        assert not any(word in ("--net", "--unshare-net") for word in command(kind, rights, host, network=True))


@pytest.mark.parametrize("kind", KINDS)
def test_root_drops_its_rights_first_or_last_but_always(kind: Kind) -> None:
    first = command(kind, Rights.USER, ROOT)
    assert first[:3] == ["setpriv", "--reuid=65534", "--regid=65534"]
    last = command(kind, Rights.ROOT, ROOT)
    assert last[0] == "nsenter"
    place = last.index("--reuid=65534")
    assert last.index("m") < place < last.index("prog")
    assert "--bounding-set=-all" in last
    assert command(kind, Rights.USER, USER)[0] == "nsenter"
    holder = Launch(kind, Rights.ROOT, ROOT).holder(SandboxLimits(), [])
    assert "65534:65534" in holder
    assert "--user" not in holder


def test_groups_are_joined_before_anything_else() -> None:
    line = command(Kind.BUBBLEWRAP, Rights.USER, ROOT, groups=("/g/one", "/g/two"))
    assert line[:2] == ["/bin/sh", "-c"]
    assert line[3:7] == ["sh", "2", "/g/one", "/g/two"]
    assert line[7] == "setpriv"


def test_limits_of_processes_stand_in_for_groups() -> None:
    bare, grouped = limited(SandboxLimits(), grouped=False), limited(SandboxLimits(), grouped=True)
    assert {word.partition("=")[0] for word in bare} - {word.partition("=")[0] for word in grouped} == {
        "--as",
        "--nproc",
    }
    assert {"--core=0", "--nofile=256", "--cpu=60:61"} <= set(grouped)


def test_folders_of_programs_are_seen_as_they_are_on_the_host() -> None:
    line = " ".join(command(Kind.BUBBLEWRAP, Rights.USER, ROOT))
    assert "--symlink usr/bin /bin" in line
    assert "--ro-bind /lib64 /lib64" in line
    assert "--ro-bind /opt /opt" in line
