"""Mutants of rendering: what is scaffold, what may be a control token, what a template may not do in silence."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the render room; `test` is below ``tests/render``."""
    return Mutant(name, f"render/{file}.py", snippet, replacement, f"tests/render/test_{test}")


CONTENT = "tracked.py::test_plain_text_is_content_even_if_it_was_scaffold"
LOST = "tracked.py::test_where_characters_cannot_be_followed_all_is_content"
CLOSED = "chat.py::test_a_turn_without_an_end_is_closed_first"
STOPS = "chat.py::test_every_stop_id_is_an_added_token"
PARSED = "chat.py::test_parse_takes_the_end_token_off"
MERGED = "encode.py::test_a_tokenizer_that_merges_text_into_a_control_token_is_refused"

HARMLESS = "kinds.py::test_harmless_text_has_the_librarys_ids"
LACKS = "kinds.py::test_what_the_vocabulary_lacks_is_escaped"

MOVES = "probe.py::test_a_system_message_that_moves"
DEPENDS = "probe.py::test_what_depends_on_the_rest_is_refused"

MUTANTS = [
    Mutant(
        "a blank that the policy sampled is taken off",
        "render/chat.py",
        "encoder.blank_behind and ending.endswith(tuple(self.control_tokens))",
        "encoder.blank_behind",
        "tests/cases/test_a_render.py::test_a_blank_of_the_tokenizer_is_no_text_and_a_sampled_one_is",
    ),
    mutant(
        "a role marker that ended a turn comes twice",
        "chat",
        "        if last_id != stop:",
        "        if True:",
        "chat.py::test_a_role_marker_that_was_sampled_is_not_written_again",
    ),
    mutant(
        "another end than the template's is not noted",
        "chat",
        "            if sampled_stop:",
        "            if False:",
        "chat.py::test_another_end_token_stays_as_it_is",
    ),
    mutant(
        "tools go to a template whose calls nobody reads",
        "chat",
        "if tools and self._call_format is None:",
        "if False:",
        "chat.py::test_calls_in_an_unknown_form_are_refused_with_tools",
    ),
    mutant("a moved system message is no excuse", "probe", "SYSTEM_TEXT not in after", "True", MOVES),
    mutant("any difference with a system message is excused", "probe", "SYSTEM_TEXT not in after", "False", DEPENDS),
    mutant("a broken bridge forbids nothing", "properties", "if found.cause not in _EXCUSED]", "if False]", DEPENDS),
    mutant(
        "history is not compared",
        "probe",
        "            if not whole.startswith(older):",
        "            if False:",
        "probe.py::test_what_rewrites_history_has_a_bridge_and_says_so",
    ),
    mutant(
        "results are kept whatever the template was given",
        "probe",
        "return _probe(_Key(given, template), tuple(sorted(stops)))",
        "return _probe(_Key(given[:1], template), tuple(sorted(stops)))",
        "probe.py::test_results_are_kept_by_what_the_template_was_given",
    ),
    mutant(
        "later rounds of calls that differ are no finding",
        "properties",
        'Cause.ROUNDS: "as in the first round"}',
        'Cause.CALLS: ""}',
        "probe.py::test_a_template_that_forgets_earlier_rounds_of_calls",
    ),
    mutant(
        "any number of start tokens will do",
        "tokens_check",
        "    if count > 1:",
        "    if False:",
        "tokens_check.py::test_two_start_tokens_are_refused",
    ),
    mutant(
        "content may make control tokens",
        "tokens_check",
        "        if _control_of(seen, encoder, given) != expected:",
        "        if False:",
        "tokens_check.py::test_a_template_whose_content_makes_control_tokens_is_refused",
    ),
    mutant(
        "a date is made up",
        "properties",
        "    if seen.asks_date:",
        "    if False:",
        "probe.py::test_default_text_dates_and_trimmed_content",
    ),
    mutant(
        "an image is dropped",
        "conversation",
        '    raise ModelError(\n        f"a {role} message holds',
        '    return str(content)\n    raise ModelError(\n        f"a {role} message holds',
        "conversation.py::test_blocks_are_refused_and_named",
    ),
    mutant(
        "tojson loses the tags",
        "template",
        "    if not found:\n        return dump(value)",
        "    if True:\n        return dump(value)",
        "template.py::test_json_keeps_the_tags_of_what_is_in_it",
    ),
    mutant("each segment counts as the first", "encode", "behind=behind or start > 0", "behind=behind", HARMLESS),
    mutant(
        "no segment of an extension is behind a token",
        "encode",
        "tokenizer = self._behind if behind else self._bare",
        "tokenizer = self._bare",
        HARMLESS,
    ),
    mutant(
        "an unknown token is given in silence",
        "encode",
        "if self._unknown is not None and self._unknown in ids:",
        "if False:",
        "kinds.py::test_scaffold_that_cannot_be_spelled_is_refused",
    ),
    mutant(
        "what the vocabulary lacks is not escaped",
        "encode",
        "return Escapes.for_unspelled(self.vocabulary.characters(), self._keeps)",
        "return Escapes()",
        LACKS,
    ),
    mutant(
        "the names of bytes are read as bytes",
        "encode",
        "return Escapes.for_byte_names() if",
        "return Escapes() if",
        "kinds.py::test_content_never_makes_control_tokens",
    ),
    mutant(
        "segments are not compared with the library",
        "encode",
        "if not np.array_equal(ours, theirs):",
        "if False:",
        "kinds.py::test_control_tokens_that_are_looked_for_in_normalized_text_are_refused",
    ),
    mutant(
        "a dummy blank is not seen",
        "encode",
        "return blanks == 1",
        "return False",
        "kinds.py::test_where_dummy_blanks_stand",
    ),
    mutant(
        "Unigram finds the words of control tokens",
        "bare",
        "_hidden(word) if word in names else word",
        "word",
        "kinds.py::test_content_never_makes_control_tokens",
    ),
    mutant(
        "bytes of one character lie in one token each",
        "offsets",
        'side="right")]',
        'side="left")]',
        "kinds.py::test_a_composed_character_belongs_to_content_that_is_part_of_it",
    ),
    mutant(
        "a dummy blank moves all characters",
        "offsets",
        "return self._blank + len(",
        "return len(",
        "offsets.py::test_bytes_of_unknown_characters",
    ),
    mutant(
        "a blank keeps its sign",
        "vocabulary",
        'spelled.replace(self._sign or " ", " ")',
        "spelled",
        "kinds.py::test_content_never_makes_control_tokens",
    ),
    mutant(
        "content makes control tokens",
        "encode",
        're.finditer("s+", tags_of(text))',
        're.finditer(".+", tags_of(text))',
        "encode.py::test_one_content_character_is_enough_to_break_a_control_token",
    ),
    mutant(
        "plain text may give a control token",
        "encode",
        "if not self.control.isdisjoint(ids):",
        "if False:",
        MERGED,
    ),
    mutant(
        "such a tokenizer is seen too late",
        "encode",
        "self._encode_bare(self.escapes.plain(text), behind=False)",
        "pass",
        MERGED,
    ),
    mutant(
        "control tokens stay in the plain vocabulary",
        "bare",
        "_hidden(word) if word in hidden else word: at",
        "word: at",
        "encode.py::test_control_tokens_inside_the_vocabulary_cannot_be_reached",
    ),
    mutant(
        "an added token may have moved",
        "encode",
        "if self._whole.token_to_id(text) != token:",
        "if False:",
        "encode.py::test_an_id_that_the_library_would_move_is_refused",
    ),
    mutant(
        "scaffold before content takes the token of both",
        "encode",
        "offsets.covering(stretch.start()), RunKind.CONTENT",
        "offsets.behind(stretch.start()), RunKind.CONTENT",
        "encode.py::test_a_straddling_token_goes_to_the_later_piece",
    ),
    mutant(
        "scaffold behind content takes the token of both",
        "encode",
        "offsets.behind(stretch.start()), RunKind.SCAFFOLD",
        "offsets.covering(stretch.start()), RunKind.SCAFFOLD",
        "encode.py::test_a_post_processor_that_trims_offsets_does_not_hide_content",
    ),
    mutant(
        "a control token swallows white space of content",
        "encode",
        "end = stretch.end() - len(str.__getitem__(text, slice(end, stretch.end())).lstrip())",
        "end = len(text) - len(str.__getitem__(text, slice(end, len(text))).lstrip())",
        "encode.py::test_white_space_swallowed_by_a_token_is_never_content",
    ),
    mutant(
        "the tokenizer's own limit cuts text",
        "encode",
        '"truncation": None, ',
        "",
        "encode.py::test_nothing_is_added_by_a_post_processor",
    ),
    mutant(
        "plain strings are scaffold", "tracked", "else CONTENT * len(text)  #", "else SCAFFOLD * len(text)  #", CONTENT
    ),
    mutant(
        "text without tags is scaffold",
        "tracked",
        "CONTENT * len(made) if tags is None",
        "SCAFFOLD * len(made) if tags is None",
        CONTENT,
    ),
    mutant(
        "a change of case that grows keeps scaffold",
        "tracked",
        "if len(text) == len(self) else text",
        "if len(text) == len(self) else scaffold(text)",
        LOST,
    ),
    mutant(
        "text put between all characters is scaffold",
        "tracked",
        "            return str.replace(self, old, new, count)",
        "            return scaffold(str.replace(self, old, new, count))",
        LOST,
    ),
    mutant(
        "tags may be fewer than characters",
        "tracked",
        "if len(made._tags) != len(made):",
        "if False:",
        "tracked.py::test_tags_must_fit",
    ),
    mutant(
        "JSON of content is scaffold",
        "template",
        'self.filters["tojson"] = _to_json',
        'self.filters["tojson"] = lambda value: scaffold(_to_json(value))',
        "template.py::test_json_is_content",
    ),
    mutant(
        "a rendering has no bound",
        "template",
        "if size > MAX_TEXT:",
        "if False:",
        "template.py::test_the_size_of_a_rendering_is_bounded",
    ),
    mutant(
        "a power has no bound",
        "template",
        'raise TemplateError("a power is too large")',
        "pass",
        "template.py::test_what_goes_wrong_in_a_template",
    ),
    mutant(
        "a template may ask for today",
        "template",
        "        if now is None:\n            raise",
        "        if now is None:\n            return 'today'\n            raise",
        "template.py::test_the_date_is_a_given_one",
    ),
    mutant(
        "lone surrogates go to the tokenizer",
        "escapes",
        "if not self.pattern.search(text):",
        "if True:",
        "chat.py::test_lone_surrogates_are_shown_as_their_escape_and_kept_in_the_record",
    ),
    mutant(
        "an escape is scaffold",
        "escapes",
        "tags_of(text)[at] * len(shown)",
        '"s" * len(shown)',
        "escapes.py::test_escapes_keep_the_tag_of_their_character",
    ),
    mutant(
        "calls that did not parse are rendered",
        "conversation",
        "if call.status is not ParseStatus.OK or call.name is None or call.arguments is None:",
        "if False:",
        "conversation.py::test_calls_that_did_not_parse_are_refused",
    ),
    mutant(
        "given calls are dropped in silence",
        "conversation",
        "if calls and not self.renders_calls:",
        "if False:",
        "conversation.py::test_calls_that_the_template_would_drop_are_refused",
    ),
    mutant(
        "tools are dropped in silence",
        "chat",
        "if tools and self._tool_prompt is None and not self._facts.renders_tools:",
        "if False:",
        "chat.py::test_a_template_that_would_drop_tools_is_an_error",
    ),
    mutant(
        "a message is left out in silence",
        "increments",
        'if message_tag(i) not in tags and (entry["content"] or "").strip():',
        "if False:",
        "chat.py::test_a_template_that_leaves_a_message_out_is_refused",
    ),
    mutant(
        "content ends a turn",
        "increments",
        "in _SCAFFOLD.finditer(tags_of(text), position):",
        'in re.compile("(?s).+").finditer(text, position):',
        "increments.py::test_only_the_template_ends_a_turn",
    ),
    mutant(
        "a template may change what it wrote",
        "probe",
        "            if whole[at:] != made:",
        "            if False:",
        "probe.py::test_what_depends_on_the_rest_is_refused",
    ),
    mutant(
        "tracked text may differ from plain text",
        "probe",
        "if plain != text:",
        "if False:",
        "probe.py::test_a_template_whose_tracked_text_would_differ_is_refused",
    ),
    mutant(
        "a tokenizer may read pieces otherwise",
        "tokens_check",
        "if ours == theirs:",
        "if True:",
        "chat.py::test_a_tokenizer_that_reads_pieces_otherwise_is_refused",
    ),
    mutant(
        "a cut turn stays open",
        "chat",
        "if self._facts.close is None or not sampled_stop:",
        "if self._facts.close is None:",
        CLOSED,
    ),
    mutant(
        "a forced end counts as scaffold",
        "chat",
        "kind = RunKind.SCAFFOLD if self._facts.close is None else RunKind.FORCED",
        "kind = RunKind.SCAFFOLD",
        CLOSED,
    ),
    mutant(
        "any end but the template's is closed again",
        "chat",
        "sampled_stop = last_id in self._info.stop_ids",
        "sampled_stop = False",
        "chat.py::test_another_end_token_stays_as_it_is",
    ),
    mutant("no stop id is needed", "chat", "if not stops or len(stops)", "if len(stops)", STOPS),
    mutant(
        "stop ids may be unknown", "chat", "if not stops or len(stops) < len(config.stop_ids):", "if not stops:", STOPS
    ),
    mutant("the end token is text", "chat", "ids[:-1] if closed else ids, tools", "ids, tools", PARSED),
    mutant("any last token closes", "chat", "ids[-1] in self._info.stop_ids", "True", PARSED),
    mutant(
        "tools are no part of an opening",
        "chat",
        "_ENCODER.encode((messages, tools))",
        "_ENCODER.encode(messages)",
        "openings.py::test_another_message_or_another_tool_is_another_opening",
    ),
    mutant(
        "an opening can be changed by who got it",
        "chat",
        "ids.flags.writeable = False",
        "pass",
        "openings.py::test_nobody_can_change_what_the_next_one_gets",
    ),
]
