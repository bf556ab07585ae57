"""Mutants of the sandboxes and of the coding world."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the sandboxes; `test` is below ``tests/envs/sandbox``."""
    return Mutant(name, f"envs/sandbox/{file}.py", snippet, replacement, f"tests/envs/sandbox/test_{test}")


KEEPER = "keeper.py::"
HOSTILE = "hostile.py::"
JUDGE = "judge.py::"
FILES = "files.py::"

MUTANTS = [
    mutant(
        "a sandbox may be made without a ticket",
        "keeper",
        "            self.registry.put(ticket)\n        except OSError as error:",
        "            pass\n        except OSError as error:",
        KEEPER + "test_the_ticket_is_there_before_anything_is_made_and_gone_last",
    ),
    mutant(
        "a cancelled creation is left behind",
        "keeper",
        "        except BaseException:\n            await self._drop(provider, ticket)",
        "        except BaseException:",
        KEEPER + "test_a_cancellation_in_any_step_leaves_nothing",
    ),
    mutant(
        "a failed removal is forgotten",
        "keeper",
        "            self.registry.put(msgspec.structs.replace(ticket, failed=str(error)))\n            raise",
        "            self.registry.remove(ticket.id)\n            raise",
        KEEPER + "test_closing_says_what_could_not_be_removed",
    ),
    mutant(
        "an owner is known by its id alone",
        "keeper",
        "not is_running(ticket.owner, ticket.owner_started)",
        "started(ticket.owner) is None",
        KEEPER + "test_what_a_sweep_takes_and_what_it_leaves",
    ),
    mutant(
        "nobody keeps a ticket alive",
        "keeper",
        "            self._keeper.registry.write(self._ticket)",
        "            pass",
        KEEPER + "test_a_healthy_one_is_kept_alive_for_as_long_as_it_is_open",
    ),
    mutant(
        "a launcher that failed is the policy's fault",
        "judge",
        "    if not started and not seen.killed and not seen.refused:",
        "    if False:",
        JUDGE + "test_a_lost_host_takes_evidence",
    ),
    mutant(
        "a sandbox that filled its memory is a lost host",
        "judge",
        "    if not started and not seen.killed and not seen.refused:",
        "    if not started:",
        JUDGE + "test_causes",
    ),
    mutant(
        "an argument that cannot be passed is a lost host",
        "child",
        "    if max(sizes) > MAX_ARGUMENT or sum(sizes) + 9 * len(sizes) > MAX_ARGUMENTS:",
        "    if False:",
        "exec.py::test_a_command_that_cannot_be_passed_is_no_lost_host",
    ),
    mutant(
        "who shuts its own workspace loses a host",
        "launch",
        """'echo "$1" >&2; shift; cd /work || exit 126; exec""",
        """'cd /work || exit 126; echo "$1" >&2; shift; exec""",
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
        "processes",
        'each.startswith(label + b"/")',
        "each.startswith(label)",
        "processes.py::test_a_label_is_found_whole_or_before_a_stroke",
    ),
    Mutant(
        "code: a result is compared with what it says of itself",
        "worlds/code_tests.py",
        "and done.stdout == _canonical(right)",
        "and bool(done.stdout)",
        "tests/worlds/test_code.py::test_tricks_get_nothing",
    ),
    Mutant(
        "code: tests go on after one that ran out of time",
        "worlds/code_tests.py",
        "if done.cause in (Cause.TIME, Cause.CPU) or used > in_all:",
        "if used > in_all:",
        "tests/worlds/test_code.py::test_an_endless_loop_is_the_solutions_fault_and_ends_the_tests",
    ),
]
