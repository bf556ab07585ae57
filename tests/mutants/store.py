"""Mutants of the store."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]

FRAME, SEGMENT, APPEND = "tests/store/test_frame.py", "tests/store/test_segment.py", "tests/store/test_append.py"
FOLDER, WRITER, JOURNAL = "tests/store/test_folder.py", "tests/store/test_writer.py", "tests/store/test_journal.py"
REPAIR, READER, NOTES = "tests/store/test_repair.py", "tests/store/test_reader.py", "tests/store/test_notes.py"
REDACT, PARTS = "tests/store/test_redact.py", "tests/store/test_parts.py"
MIRROR, PLAIN_FILE = "tests/store/test_mirror.py", "tests/store/test_plain_file.py"
VERSIONS = f"{SEGMENT}::test_other_versions_and_kinds_are_refused_by_name"
ONCE = f"{WRITER}::test_an_id_is_in_a_run_once"


def frame(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of frames."""
    return Mutant(f"frame: {name}", "store/frame.py", snippet, replacement, f"{FRAME}::{test}")


def scan(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of reading files."""
    return Mutant(f"scan: {name}", "store/scan.py", snippet, replacement, test)


def append(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of writing files."""
    return Mutant(f"append: {name}", "store/append.py", snippet, replacement, f"{APPEND}::{test}")


def folder(name: str, snippet: str, replacement: str, test: str, file: str = FOLDER) -> Mutant:
    """A rule of run folders."""
    return Mutant(f"folder: {name}", "store/folder.py", snippet, replacement, f"{file}::{test}")


def writer(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the writer."""
    return Mutant(f"writer: {name}", "store/writer.py", snippet, replacement, test)


def journal(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the journal."""
    return Mutant(f"journal: {name}", "store/journal.py", snippet, replacement, test)


def repair(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of repair."""
    return Mutant(f"repair: {name}", "store/repair.py", snippet, replacement, f"{REPAIR}::{test}")


def plain_file(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of opening what others may have made."""
    return Mutant(f"plain file: {name}", "store/plain_file.py", snippet, replacement, f"{PLAIN_FILE}::{test}")


def mirror(name: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of copying to an object store."""
    return Mutant(f"mirror: {name}", "store/mirror.py", snippet, replacement, test)


MUTANTS = [
    plain_file("a link is followed", " | os.O_NOFOLLOW", "", "test_nothing_is_made_where_a_dangling_link_leads"),
    plain_file("a pipe is opened", "if not S_ISREG(", "if not (", "test_the_way_is_looked_at_from_the_root_on"),
    plain_file(
        "folders may be links", "if way.is_symlink():", "if False:", "test_a_link_in_a_run_leads_nobody_out_of_it"
    ),
    Mutant(
        "append: a temporary file may be a link",
        "store/append.py",
        "try:\n        temporary.unlink(missing_ok=True)",
        "try:\n        pass",
        f"{PLAIN_FILE}::test_what_is_replaced_is_not_written_through_a_link",
    ),
    frame("the prefix's CRC is not looked at", "sound and fits)", "fits)", "test_the_prefix_has_its_own_crc"),
    frame(
        "the head's CRC is not looked at",
        "len(head) != prefix.head_length or crc32(head) != prefix.head_crc or table",
        "table",
        "test_a_flipped_bit_shows",
    ),
    frame("a section's CRC is not looked at", " or crc32(stored) != row.crc", "", "test_a_flipped_bit_shows"),
    frame(
        "the size within a zstd frame is believed",
        "and zstandard.frame_content_size(stored) == row.raw",
        "",
        "test_a_bomb_is_not_unpacked",
    ),
    frame(
        "bytes behind a zstd frame are ignored",
        "allow_extra_data=False",
        "allow_extra_data=True",
        "test_more_behind_a_packed_section_is_damage",
    ),
    frame(
        "absurd lengths are believed",
        "fits = head_length",
        "fits = True or head_length",
        "test_absurd_lengths_are_not_believed",
    ),
    frame("a section may claim any size", " or raw > MAX_SECTION", "", "test_rows_that_do_not_fit_are_damage"),
    frame(
        "sections need not fill the frame",
        "if place != prefix.length",
        "if False",
        "test_rows_that_do_not_fit_are_damage",
    ),
    frame(
        "the wire version is not looked at",
        "check_version(wire,",
        "check_version(0,",
        "test_newer_frames_are_refused_by_name",
    ),
    frame(
        "a newer magic is damage",
        "if sound and magic[:3] ==",
        "if False and magic[:3] ==",
        "test_newer_frames_are_refused_by_name",
    ),
    frame("a head of any length is written", "if len(head) > MAX_HEAD", "if False", "test_what_is_too_long_is_refused"),
    scan("a newer format is read", "versions.format > FORMAT_VERSION", "False", VERSIONS),
    scan("a newer wire form is read", "check_version(versions.wire, name)", "pass", VERSIONS),
    scan("a journal passes for a segment", "versions.content != content", "False", VERSIONS),
    scan(
        "another tool's file passes",
        "elif not ours and (",
        "elif False and (",
        f"{SEGMENT}::test_other_files_are_named",
    ),
    scan(
        "blank bytes are damage",
        "if self._is_blank(offset)",
        "if False",
        f"{REPAIR}::test_blank_bytes_at_the_end_are_cut",
    ),
    append(
        "a failed write leaves its first bytes",
        "            os.ftruncate(self._descriptor, offset)\n        except OSError",
        "            pass\n        except OSError",
        "test_a_write_that_fails_midway_leaves_nothing",
    ),
    append(
        "the length before a write is not looked at",
        "if os.fstat(self._descriptor).st_size != offset",
        "if False",
        "test_bytes_that_a_failed_cut_left_go_with_the_next_write",
    ),
    append("a new file may replace one", "os.O_EXCL if new else 0", "0", "test_a_new_file_never_replaces_one"),
    append(
        "a temporary file stays",
        "    with suppress(OSError):\n            temporary.unlink(missing_ok=True)",
        "    pass",
        "test_a_failed_replacement_leaves_the_old_file",
    ),
    folder(
        "another tool's run.json passes",
        'fields.get("format") != FORMAT_NAME',
        "False",
        "test_what_is_not_a_run_is_named",
    ),
    folder("a newer run is read", "found > FOLDER_VERSION", "False", "test_a_newer_run_is_refused"),
    folder(
        "a used folder is written into",
        "        if present:",
        "        if False:",
        "test_a_new_run_needs_an_empty_folder",
    ),
    folder("the lock is shared", "fcntl.LOCK_EX", "fcntl.LOCK_SH", "test_two_writers"),
    writer("a sealed id begins again", "if rollout in self._found.sealed:", "if False:", ONCE),
    writer("an id in flight begins again", "if rollout in self._found.in_flight:", "if False:", ONCE),
    writer("a running id begins again", "if trace.id in self._journal:", "if False:", ONCE),
    writer(
        "a trace without ending is written",
        "if trace.tail.ending is None:",
        "if False:",
        f"{WRITER}::test_a_trace_without_ending_is_refused_and_stays_open",
    ),
    writer(
        "a trace that does not hold together is written",
        "        trace.check()\n",
        "",
        f"{WRITER}::test_a_trace_that_does_not_hold_together_is_not_written",
    ),
    writer(
        "interrupted rollouts get no ending of that kind",
        "Reason.INTERRUPTED",
        "Reason.CANCELLED",
        f"{WRITER}::test_interrupted_means_error",
    ),
    writer(
        "journals of dead writers stay",
        "        found.drop_journals()",
        "        pass",
        f"{JOURNAL}::test_a_rollout_spread_over_generations_comes_back",
    ),
    writer("a closed writer writes", "if self._closed:", "if False:", f"{WRITER}::test_a_closed_writer_writes_nothing"),
    folder(
        "parts are passed over",
        "for place in (*part_folders(folder), folder)]",
        "for place in (folder,)]",
        "test_opening_a_run_finds_what_all_parts_left",
        PARTS,
    ),
    folder(
        "the record of a part counts before the owner's",
        "return place == folder, place.name,",
        "return place != folder, place.name,",
        "test_the_recovered_record_counts_before_the_damaged_one_of_the_part",
        PARTS,
    ),
    folder(
        "a part may lie anywhere",
        "if not _PART_NAME.fullmatch(name):",
        "if False:",
        "test_what_is_the_owners_is_refused_to_a_part",
        PARTS,
    ),
    writer(
        "parts are repaired while workers write them",
        "                self._parts.append(RunLock(folder))\n                stack.callback(self._parts[-1].release)",
        "                pass",
        f"{PARTS}::test_a_living_worker_keeps_its_part",
    ),
    writer(
        "parts stay locked",
        "            done = self._seal_flights(self._found, detail)\n            self._release_parts()",
        "            done = self._seal_flights(self._found, detail)",
        f"{PARTS}::test_opening_a_run_finds_what_all_parts_left",
    ),
    writer(
        "a run of one writer keeps its version",
        "if self.manifest.version < FOLDER_VERSION:",
        "if False:",
        f"{PARTS}::test_a_run_of_one_writer_becomes_one_of_many_when_it_is_opened",
    ),
    writer(
        "a part annotates",
        "        if self.part is not None:\n            raise StoreError(f\"writer '{self.part}' of {self.folder} has",
        "        if False:\n            raise StoreError(f\"writer '{self.part}' of {self.folder} has",
        f"{PARTS}::test_what_is_the_owners_is_refused_to_a_part",
    ),
    journal(
        "marks on older nodes are not stored",
        "list(islice(marks.items(), running.marks, None))",
        "[]",
        f"{WRITER}::test_marks_on_older_nodes_and_notes_are_durable",
    ),
    journal(
        "a changed tail is not stored",
        "        if trace.tail is not running.tail:\n            sections",
        "        if False:\n            sections",
        f"{WRITER}::test_the_first_cause_stays_when_it_was_stored",
    ),
    journal(
        "a turn writes everything again",
        "encode_part(trace, running.cursor)",
        "encode_part(trace)",
        f"{JOURNAL}::test_a_turn_writes_what_it_added",
    ),
    journal(
        "generations stay",
        "        path.unlink(missing_ok=True)",
        "        pass",
        f"{JOURNAL}::test_generations_go_when_no_running_rollout_needs_them",
    ),
    journal(
        "generations go while they are needed",
        "if self._pins[path] or (",
        "if (",
        f"{JOURNAL}::test_generations_go_when_no_running_rollout_needs_them",
    ),
    journal(
        "slow rollouts hold every generation",
        "if self._next - running.oldest >= self._allowed():",
        "if False:",
        f"{JOURNAL}::test_a_slow_rollout_does_not_hold_old_generations",
    ),
    Mutant(
        "repair: a damaged second beginning loses the first",
        "store/repair.py",
        "return self.load(flight.before) if flight.before is not None else None",
        "return None",
        f"{JOURNAL}::test_a_damaged_second_beginning_leaves_the_first",
    ),
    repair(
        "damaged journals are deleted",
        'path.rename(path.with_name(f"{path.name}.damaged"))',
        "path.unlink()",
        "test_a_damaged_turn_ends_the_recovery_of_its_rollout_alone",
    ),
    repair(
        "a damaged trace counts as sealed",
        "    folder.sealed |= sound\n",
        "    folder.sealed |= {entry.rollout for entry, _ in rows}\n",
        "test_a_damaged_trace_in_an_unsealed_segment_comes_back_from_the_journal",
    ),
    Mutant(
        "repair: sealed rollouts come back from the journal",
        "store/repair.py",
        "        if rollout in self.sealed:\n            return\n",
        "",
        f"{WRITER}::test_a_dead_writer_loses_nothing",
    ),
    Mutant(
        "tail: nothing is cut",
        "store/tail.py",
        "os.truncate(path, end)",
        "pass",
        f"{REPAIR}::test_blank_bytes_at_the_end_are_cut",
    ),
    Mutant(
        "tail: a file is written behind a lost rest",
        "store/tail.py",
        "return frames, not lost",
        "return frames, True",
        f"{REPAIR}::test_garbage_is_reported_and_kept",
    ),
    Mutant(
        "segment: the index is believed against the trace",
        "store/segment.py",
        "if trace.id != rollout:",
        "if False:",
        f"{SEGMENT}::test_an_index_that_lies_is_not_believed",
    ),
    Mutant(
        "segment: a damaged footer is not told",
        "store/segment.py",
        "                if not known.end:",
        "                if False:",
        f"{SEGMENT}::test_a_damaged_footer_is_told_and_nothing_is_lost",
    ),
    Mutant(
        "reader: strict does not raise",
        "store/reader.py",
        "if self._strict:",
        "if False:",
        f"{READER}::test_strict_raises_where_the_other_reports",
    ),
    Mutant(
        "reader: the earlier record counts",
        "store/reader.py",
        "if owner is not path and file_order(self.folder, owner) < file_order(self.folder, path):",
        "if False:",
        f"{READER}::test_the_later_of_two_records_counts",
    ),
    Mutant(
        "notes: two processes write one stream",
        "store/notes.py",
        "        if not _lock(self._file.descriptor):",
        "        if False:",
        f"{NOTES}::test_another_process_annotates_while_the_run_is_written",
    ),
    Mutant(
        "notes: any producer goes into a stream",
        "store/notes.py",
        "        if stray:",
        "        if False:",
        f"{NOTES}::test_a_stream_takes_its_own_producer_only",
    ),
    Mutant(
        "notes: a stream is cut while it is written",
        "store/notes.py",
        "        if _lock(file.descriptor):",
        "        if True:",
        f"{NOTES}::test_opening_the_run_leaves_a_stream_alone_that_is_being_written",
    ),
    Mutant(
        "redact: rollouts may be in flight",
        "store/redact.py",
        "        if writer.recovery.in_flight:",
        "        if False:",
        f"{REDACT}::test_it_is_refused_where_it_cannot_be_whole",
    ),
    Mutant(
        "redact: damaged frames are copied",
        "store/redact.py",
        "    file.verify(frame)\n",
        "",
        f"{REDACT}::test_a_damaged_segment_is_not_rewritten",
    ),
    Mutant(
        "experts: they are read by everybody",
        "store/segment.py",
        "file.sections(frame, None if experts else SectionId.EXPERTS)",
        "file.sections(frame)",
        "tests/store/test_experts.py::test_damage_in_them_does_not_reach_who_does_without",
    ),
    Mutant(
        "experts: left out is taken for absent",
        "store/segment.py",
        "trace.graph.experts.left_out = not experts and SectionId.EXPERTS in frame.sections",
        "pass",
        "tests/store/test_experts.py::test_they_are_read_where_they_are_asked_for",
    ),
    Mutant(
        "experts: a redaction loses all",
        "store/redact.py",
        "SegmentReader(path, experts=True)",
        "SegmentReader(path)",
        "tests/store/test_experts.py::test_a_redaction_keeps_those_of_other_nodes",
    ),
    Mutant(
        "experts: any shape fits",
        "trace/experts.py",
        "or not sampled or len(experts) != sampled:",
        "or not sampled:",
        "tests/trace/test_experts.py::test_what_does_not_fit_changes_nothing",
    ),
    Mutant(
        "experts: a trace takes any number of bytes",
        "trace/experts.py",
        "if self.nbytes + experts.nbytes > MAX_BYTES:",
        "if False:",
        "tests/trace/test_experts.py::test_a_trace_takes_so_many_bytes_and_no_more",
    ),
    Mutant(
        "experts: unknown is expert 0",
        "trace/experts.py",
        "full[places], known[places] = found, True",
        "full[places], known[:] = found, True",
        "tests/trace/test_experts.py::test_they_come_back_bit_by_bit_and_on_their_tokens",
    ),
    Mutant(
        "experts: a part holds those of earlier ones",
        "trace/experts.py",
        "if node >= first and (",
        "if (",
        "tests/trace/test_experts.py::test_a_trace_in_parts_has_each_part_once",
    ),
    mirror(
        "unfinished frames are sent",
        "                break\n",
        "                end += found.bytes\n",
        f"{MIRROR}::test_an_unfinished_frame_is_not_sent",
    ),
    mirror(
        "what was sent is not looked at again",
        "if not fits(sent.crc, sent.start, last):",
        "if False:",
        f"{MIRROR}::test_two_mirrors_of_one_part_that_differ_are_told",
    ),
    mirror(
        "another run is mirrored to the same place",
        ".created != ours.created:",
        ".created == 0:",
        f"{MIRROR}::test_a_url_is_of_one_run",
    ),
    mirror(
        "run.json is sent at each look",
        "if sent.pieces.ends and fits(sent.crc, 0, data):",
        "if False:",
        f"{MIRROR}::test_a_second_look_sends_and_fetches_nothing_again",
    ),
    mirror(
        "a part sends all",
        "return segment_files(part_folder(self._folder, self._part))",
        "return segment_files(self._folder) + annotation_files(self._folder)",
        f"{MIRROR}::test_a_mirror_of_a_part_sends_nothing_else",
    ),
    Mutant(
        "objects: an object is written over",
        "store/objects.py",
        'mode="create"',
        'mode="overwrite"',
        "tests/store/test_objects.py::test_an_object_is_written_once",
    ),
    Mutant(
        "objects: without conditional writes nobody looks",
        "store/objects.py",
        "obstore.head(self._store, key)\n            except",
        "raise FileNotFoundError\n            except",
        "tests/store/test_objects.py::test_a_store_without_conditional_writes_is_looked_into_first",
    ),
    Mutant(
        "objects: a URL may hold credentials",
        "store/objects.py",
        "if parts.username is not None or parts.password is not None or parts.query or parts.fragment:",
        "if False:",
        "tests/store/test_objects.py::test_urls_that_are_refused",
    ),
    Mutant(
        "objects: messages hold signed URLs",
        "store/objects.py",
        '_QUERY = re.compile(r"\\?[',
        '_QUERY = re.compile(r"\\?\\?[',
        "tests/store/test_objects.py::test_messages_hold_no_signed_url",
    ),
    Mutant(
        "pieces: the CRC is not looked at",
        "store/pieces.py",
        "if piece_crc(key, piece) != (_crc(offset, data), offset):",
        "if piece_crc(key, piece)[1] != offset:",
        "tests/store/test_pieces.py::test_a_piece_knows_its_place_and_its_bytes",
    ),
    Mutant(
        "pieces: one may be missing",
        "store/pieces.py",
        "if int(match[2]) != len(pieces.ends) + 1 or size < HEADER:",
        "if size < HEADER:",
        "tests/store/test_pieces.py::test_a_missing_piece_is_told",
    ),
    Mutant(
        "fetch: a torn copy is believed",
        "store/fetch.py",
        "        if size > start:\n            file.truncate(start)",
        "        start = size",
        f"{MIRROR}::test_a_torn_copy_is_mended",
    ),
]
