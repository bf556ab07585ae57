"""Mutants of the sandboxes and of the coding world."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the sandboxes; `test` is below ``tests/envs/sandbox``."""
    return Mutant(name, f"envs/sandbox/{file}.py", snippet, replacement, f"tests/envs/sandbox/test_{test}")


LIFECYCLE = "lifecycle.py::"
HOSTILE = "hostile.py::"
CAUSES = "causes.py::"
FILES = "files.py::"

MUTANTS = [
    mutant(
        "a sandbox may be made without a ticket",
        "lifecycle",
        "            self.tickets.put(ticket)\n        except OSError as error:",
        "            pass\n        except OSError as error:",
        LIFECYCLE + "test_the_ticket_is_there_before_anything_is_made_and_gone_last",
    ),
    mutant(
        "a cancelled creation is left behind",
        "lifecycle",
        "        except BaseException:\n            await self._drop(provider, ticket)",
        "        except BaseException:",
        LIFECYCLE + "test_a_cancellation_in_any_step_leaves_nothing",
    ),
    mutant(
        "a failed removal is forgotten",
        "lifecycle",
        "                if self.tickets.has(ticket.id):\n",
        "                self.tickets.remove(ticket.id)\n                if False:\n",
        LIFECYCLE + "test_closing_says_what_could_not_be_removed",
    ),
    mutant(
        "an owner is known by its id alone",
        "lifecycle",
        "not is_running(ticket.owner, ticket.owner_started)",
        "started(ticket.owner) is None",
        LIFECYCLE + "test_what_a_sweep_takes_and_what_it_leaves",
    ),
    mutant(
        "nobody keeps a ticket alive",
        "lifecycle",
        "            self._lifecycle.tickets.write(self._ticket)",
        "            pass",
        LIFECYCLE + "test_a_healthy_one_is_kept_alive_for_as_long_as_it_is_open",
    ),
    mutant(
        "a launcher that failed is the policy's fault",
        "causes",
        "    if not started and not seen.killed and not seen.refused:",
        "    if False:",
        CAUSES + "test_a_lost_host_takes_evidence",
    ),
    mutant(
        "a sandbox that filled its memory is a lost host",
        "causes",
        "    if not started and not seen.killed and not seen.refused:",
        "    if not started:",
        CAUSES + "test_causes",
    ),
    mutant(
        "an argument that cannot be passed is a lost host",
        "child",
        "    if max(sizes) > MAX_ARGUMENT or sum(sizes) + 9 * len(sizes) > min(",
        "    if False and min(",
        "exec.py::test_a_command_that_cannot_be_passed_is_no_lost_host",
    ),
    mutant(
        "who shuts its own workspace loses a host",
        "launch",
        """'echo "$1" >&2; shift; cd {WORKSPACE} || exit 126; exec""",
        """'cd {WORKSPACE} || exit 126; echo "$1" >&2; shift; exec""",
        HOSTILE + "test_who_shuts_its_own_workspace_loses_no_host",
    ),
    mutant(
        "a link may be followed on the way",
        "files",
        "_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC",
        FILES + "test_tricks",
    ),
    mutant(
        "a link may be the file",
        "files",
        "_FILE = os.O_RDONLY | os.O_NOFOLLOW | ",
        "_FILE = os.O_RDONLY | ",
        FILES + "test_tricks",
    ),
    mutant(
        "a device is a file",
        "files",
        "    if not stat.S_ISREG(found.st_mode):",
        "    if False:",
        FILES + "test_a_device_is_no_file",
    ),
    mutant(
        "output is kept without a bound",
        "child",
        "self.kept += data[: max(0, self.keep - len(self.kept))]",
        "self.kept += data",
        "child.py::test_the_head_of_the_output_is_kept",
    ),
    mutant(
        "a flood is read for ever",
        "child",
        "if sum(each.total for each in both) > self._flood and not self._flooded:",
        "if False:",
        "child.py::test_late_and_flooding_ones_are_killed",
    ),
    mutant(
        "the network is on",
        "launch",
        'spaces += [] if network else ["--unshare-net"]',
        "spaces += []",
        HOSTILE + "test_the_network_is_off",
    ),
    mutant(
        "the environment of the owner is seen inside",
        "launch",
        '"env", "-i", *(f"{k}={v}" for k, v in ENV.items())',
        '"env", *(f"{k}={v}" for k, v in ENV.items())',
        "exec.py::test_its_environment_is_its_own",
    ),
    mutant(
        "processes of others with the same beginning are ended",
        "host_processes",
        'each.startswith(label + b"/")',
        "each.startswith(label)",
        "host_processes.py::test_a_label_is_found_whole_or_before_a_stroke",
    ),
    mutant(
        "a ticket says which processes are its own",
        "tickets",
        "        if ticket.label != label_of(ticket.id):",
        "        if False:",
        "tickets.py::test_a_ticket_that_names_what_is_not_its_own_is_shown_and_left",
    ),
    mutant(
        "a ticket says which folder is its own",
        "tickets",
        "        if ticket.workspace not in (None, str(self.workspace(ticket.id))):",
        "        if False:",
        "tickets.py::test_a_ticket_that_names_what_is_not_its_own_is_shown_and_left",
    ),
    mutant(
        "a ticket says which groups are its own",
        "removal",
        "if is_group_of(ticket.id, each)]",
        "if each]",
        "host_processes.py::test_a_group_that_is_none_of_its_own_is_left_alone",
    ),
    mutant(
        "a process without an id here is killed by id 0",
        "groups",
        "    return sorted(found - {0})",
        "    return sorted(found)",
        "groups.py::test_a_member_of_another_namespace_has_no_id_to_kill",
    ),
    mutant(
        "a dead owner that nobody waited for is alive",
        "host_processes",
        'None if state in (b"Z", b"X") else int(rest[18])',
        "int(rest[18])",
        "host_processes.py::test_a_process_is_known_by_its_start",
    ),
    mutant(
        "folders behind a link are opened up",
        "removal",
        "        if folder.is_symlink():",
        "        if False:",
        "host_processes.py::test_a_workspace_that_became_a_link_is_removed_as_a_link",
    ),
    mutant(
        "keys are shared",
        "namespaces",
        "data = self._launch.host.sieve if",
        "data = None if",
        HOSTILE + "test_the_keys_of_the_owner_are_shut",
    ),
    mutant(
        "user namespaces can be made inside",
        "launch",
        "'echo 0 > /proc/sys/user/max_user_namespaces || exit 126; exec",
        "'exec",
        HOSTILE + "test_a_namespace_in_the_namespace_gives_no_memory_that_nothing_bounds",
    ),
    Mutant(
        "code: a machine that is too slow is the solution's fault",
        "rewards/code_tests.py",
        "    if done.seconds > times.idle:",
        "    if False:",
        "tests/worlds/test_code.py::test_a_machine_with_other_work_fails_no_solution",
    ),
    Mutant(
        "code: a result is compared with what it says of itself",
        "rewards/code_tests.py",
        "and done.stdout == _canonical(right)",
        "and bool(done.stdout)",
        "tests/worlds/test_code.py::test_tricks_get_nothing",
    ),
    Mutant(
        "code: tests go on after one that ran out of time",
        "rewards/code_tests.py",
        "if done.cause in (Cause.TIME, Cause.CPU) or cpu > times.cpu_in_all or",
        "if cpu > times.cpu_in_all or",
        "tests/worlds/test_code.py::test_an_endless_loop_is_the_solutions_fault_and_ends_the_tests",
    ),
]
