"""Mutants of the export: what no trainer may get, and files that appear whole or not at all."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the export; `test` is below ``tests/export``."""
    return Mutant(name, f"export/{file}.py", snippet, replacement, f"tests/export/test_{test}")


UNFIT = "batch.py::test_logprobs_of_another_distribution_stop_the_export_unless_allowed"
BROKEN_OFF = "files.py::test_whatever_goes_wrong_nothing_is_left_and_the_old_file_stays"
OWN = "files.py::test_a_runs_own_folder_takes_no_export"
NUMBERS = "fields.py::test_numbers_that_are_none_are_refused"
FIRST = "batch.py::test_the_caller_comes_before_the_record"

MUTANTS = [
    mutant("unfit logprobs go to a trainer", "batch", "if not self.allow_unfit:", "if False:", UNFIT),
    mutant("what was allowed is not said", "batch", "self.unfit += 1", "pass", UNFIT),
    mutant(
        "an export without rows is one",
        "batch",
        "if not self.written:",
        "if False:",
        "batch.py::test_an_export_without_rows_writes_nothing",
    ),
    mutant(
        "text engines are exported",
        "batch",
        "if not trace.head.tokens:",
        "if False:",
        "batch.py::test_a_rollout_without_trained_tokens_gives_no_row",
    ),
    mutant(
        "what nobody decided trains",
        "recorded",
        "decide(trace, self.rules) if recorded is None else recorded",
        "recorded",
        "batch.py::test_what_nobody_decided_goes_by_the_rules",
    ),
    mutant(
        "the recorded disposition comes first",
        "recorded",
        "{**recorded_dispositions(facts), **(dispositions or {})}",
        "{**(dispositions or {}), **recorded_dispositions(facts)}",
        FIRST,
    ),
    mutant(
        "a row without a trained token is written",
        "fields",
        "if not sample.loss_mask.any():",
        "if False:",
        "fields.py::test_a_sample_that_trains_nothing_is_refused",
    ),
    mutant(
        "arrays may differ in length",
        "fields",
        "any(len(array) != len(sample) for array in arrays(sample).values())",
        "False",
        "fields.py::test_arrays_of_another_length_are_refused",
    ),
    mutant(
        "a reward may be no number",
        "fields",
        "if not all(number is None or math.isfinite(number) for number in numbers):",
        "if False:",
        NUMBERS,
    ),
    mutant(
        "an advantage may be no number",
        "fields",
        "sample.advantage is not None and not math.isfinite(sample.advantage)",
        "False",
        NUMBERS,
    ),
    mutant(
        "an existing file is replaced",
        "files",
        "if path.exists() and not overwrite:",
        "if False:",
        "files.py::test_an_existing_file_is_refused_unless_told",
    ),
    mutant(
        "a file that came meanwhile is replaced",
        "files",
        "os.fsync(file.fileno())\n            _refuse_existing(path, overwrite)\n",
        "os.fsync(file.fileno())\n",
        "files.py::test_a_file_that_came_meanwhile_is_not_replaced",
    ),
    mutant(
        "a device is replaced",
        "files",
        "if path.exists() and not path.is_file():",
        "if False:",
        "files.py::test_what_is_no_plain_file_is_never_replaced",
    ),
    mutant(
        "a file is written in place",
        "files",
        '            with os.fdopen(handle, "wb") as file:\n                yield file\n',
        '            with os.fdopen(handle, "wb") as file, path.open("wb") as place:\n                yield place\n',
        BROKEN_OFF,
    ),
    mutant("half a file is left beside", "files", "temporary.unlink(missing_ok=True)", "pass", BROKEN_OFF),
    mutant(
        "a link is replaced",
        "files",
        "    with _failures(path):\n        path = Path(os.path.realpath(path))\n        _refuse_place(path)\n"
        "        _refuse_existing(path, overwrite)\n        handle",
        "    with _failures(path):\n        _refuse_place(path)\n"
        "        _refuse_existing(path, overwrite)\n        handle",
        "files.py::test_a_link_is_followed",
    ),
    mutant(
        "a run's own folder takes exports",
        "files",
        'if (folder / "run.json").exists() and (folder / "segments").is_dir():',
        "if False:",
        OWN,
    ),
    mutant("a run's segments take exports", "files", "(path.parent, path.parent.parent)", "(path.parent,)", OWN),
    mutant(
        "an absent logprob is a number that is none",
        "decimals",
        'b"null,"',
        'b"NaN,"',
        "jsonl.py::test_a_line_holds_the_sample",
    ),
    mutant(
        "a logprob is rounded",
        "decimals",
        "near.astype(np.float32) == values[left]",
        "near.astype(np.float16) == values[left].astype(np.float16)",
        "jsonl.py::test_a_logprob_comes_back_bit_for_bit",
    ),
    mutant(
        "a surrogate breaks a Parquet file late",
        "columnar",
        "        refuse_surrogates(sample)\n",
        "",
        "parquet.py::test_a_lone_surrogate_is_refused_and_leaves_nothing",
    ),
    mutant(
        "a footer follows an error",
        "parquet",
        "        self._tap.shut()\n",
        "",
        "parquet.py::test_letting_go_before_the_end_writes_nothing_more",
    ),
    mutant(
        "samples gather without end",
        "columnar",
        "if self._rows == MAX_ROWS:",
        "if False:",
        "parquet.py::test_a_full_row_group_is_not_kept_in_memory",
    ),
]
