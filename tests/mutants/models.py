"""Mutants of reading model files: a vocabulary of another form must give the ids of its own library."""

from __future__ import annotations

from tests.mutants import Mutant

__all__ = ["MUTANTS"]


def mutant(name: str, file: str, snippet: str, replacement: str, test: str) -> Mutant:
    """A rule of the models room; `test` is below ``tests/models``."""
    return Mutant(name, f"models/{file}.py", snippet, replacement, f"tests/models/test_{test}")


RANKS = "tiktoken_file.py::test_text_has_the_librarys_ids"
SPM = "sentencepiece_file.py::test_text_has_the_librarys_ids"
REFUSED = "pieces.py::test_what_is_refused"
NO_RANKS = "tiktoken_file.py::test_what_is_no_rank_file"

MUTANTS = [
    mutant(
        "merges ignore ranks", "tiktoken_file", "for at in range(1, len(token))\n", "for at in range(1, 2)\n", RANKS
    ),
    mutant(
        "whole words are merged all the same", "tiktoken_file", '"ignore_merges": True', '"ignore_merges": False', RANKS
    ),
    mutant("text is composed unasked", "tiktoken_file", "if nfc else None", "if True else None", RANKS),
    mutant(
        "text is never composed",
        "tiktoken_file",
        "if nfc else None",
        "if False else None",
        "tiktoken_file.py::test_composed_text",
    ),
    mutant("a rank may come twice", "tiktoken_file", "len(set(ranks.values())) < lines", "False", NO_RANKS),
    mutant(
        "bytes may be sloppy base64",
        "tiktoken_file",
        "binascii.a2b_base64(token, strict_mode=True)",
        "binascii.a2b_base64(token)",
        NO_RANKS,
    ),
    mutant("tokens have no bound", "tiktoken_file", "0 < len(token) <= MAX_TOKEN for", "0 < len(token) for", NO_RANKS),
    mutant(
        "ids may be shared",
        "tiktoken_file",
        "if taken := set(vocab.values()) & set(control.values()):",
        "if taken := set[int]():",
        "tiktoken_file.py::test_two_tokens_of_one_id_or_name_are_refused",
    ),
    mutant(
        "control tokens have no room of their own",
        "tekken",
        "offset=first)",
        "offset=first + 1)",
        "tekken.py::test_text_has_the_librarys_ids",
    ),
    mutant(
        "a tekken vocabulary may be short",
        "tekken",
        "if len(ranks) < size:",
        "if False:",
        "tekken.py::test_what_is_refused",
    ),
    mutant("scores do not order merges", "pieces", "(-usable[text], -len(text))", "(usable[text], -len(text))", SPM),
    mutant(
        "equal scores merge the short piece first",
        "pieces",
        "(-usable[text], -len(text))",
        "(-usable[text], len(text))",
        "pieces.py::test_merges_rise_by_score_and_fall_by_length",
    ),
    mutant(
        "control pieces are text",
        "pieces",
        "SPECIAL = (PieceType.UNKNOWN, PieceType.CONTROL)",
        "SPECIAL = (PieceType.UNKNOWN,)",
        "pieces.py::test_added_tokens",
    ),
    mutant(
        "unused pieces are text",
        "pieces",
        'f" {text}" if kind == PieceType.UNUSED else text',
        "text",
        "pieces.py::test_a_unigram_vocabulary_keeps_scores_and_hides_unused_pieces",
    ),
    mutant("a score may be no number", "pieces", "or not all(map(isfinite, pieces.scores))", "", REFUSED),
    mutant("bytes of unknown characters are lost", "pieces", "PieceType.BYTE in pieces.types", "False", SPM),
    mutant(
        "a model may rewrite text",
        "sentencepiece_file",
        "if normalizer.get(2) or normalizer.get(4, 1):",
        "if False:",
        "sentencepiece_file.py::test_models_that_change_text_are_refused",
    ),
    mutant(
        "a field may lie behind the end",
        "sentencepiece_file",
        "if at + size > len(data):",
        "if False:",
        "sentencepiece_file.py::test_a_cut_file_is_refused",
    ),
    mutant(
        "the dummy blank is forgotten",
        "gguf_tokenizer",
        'metadata.get("tokenizer.ggml.add_space_prefix", True) is True',
        "False",
        "gguf_tokenizer.py::test_a_sentencepiece_vocabulary",
    ),
    mutant(
        "an added token may rename another",
        "extended",
        "if texts.get(number, entry.content) != entry.content or ids.get(entry.content, number) != number:",
        "if False:",
        "folder.py::test_added_tokens_that_do_not_fit",
    ),
    mutant(
        "an unknown family is taken as one that is known",
        "folder",
        "if name not in FAMILIES:",
        "if False:",
        "folder.py::test_a_rank_file_of_no_known_family",
    ),
    mutant(
        "the first named template is the default",
        "config_files",
        "{each.name: each.template for",
        '{"default": each.template for',
        "folder.py::test_named_templates",
    ),
    mutant(
        "the model's own end wins over that of generation",
        "config_files",
        "if generation is None else generation.eos_token_id",
        "if self._model.eos_token_id else generation and generation.eos_token_id",
        "folder.py::test_ends_and_length_of_the_model_itself",
    ),
    mutant(
        "queries keep ggml's order of rows",
        "gguf_tensors",
        "array.reshape(heads, rows, 2, -1).swapaxes(1, 2)",
        "array.reshape(heads, rows, 2, -1)",
        "gguf_tensors.py::test_rows_of_queries_and_keys_go_by_halves_and_others_stay",
    ),
    mutant(
        "queries are written in the trainer's order of rows",
        "gguf_tensors",
        "plain.reshape(heads, 2, rows, -1).swapaxes(1, 2)",
        "plain.reshape(heads, 2, rows, -1)",
        "gguf_tensors.py::test_what_is_written_is_what_is_read",
    ),
    mutant(
        "keys count as many heads as queries",
        "gguf_tensors",
        'integer(metadata, "attention.head_count_kv")',
        'integer(metadata, "attention.head_count")',
        "hf_folder.py::test_transformers_computes_what_the_definition_says",
    ),
    mutant(
        "other weights may be written",
        "gguf_tensors",
        "if shapes and shapes != given:",
        "if False:",
        "gguf_tensors.py::test_weights_that_are_not_the_sources_are_refused",
    ),
    mutant(
        "a block's least value is left out",
        "gguf_blocks",
        "_nibbles(blocks[:, 4:]) + _halves(blocks, 2)",
        "_nibbles(blocks[:, 4:])",
        "gguf_tensors.py::test_packed_weights_are_those_of_the_reference",
    ),
    mutant(
        "one float32 tensor makes the file float32",
        "bundle",
        "all(row.kind == F32 for row in head.tensors)",
        "any(row.kind == F32 for row in head.tensors)",
        "bundle.py::test_float32_means_every_tensor",
    ),
    mutant(
        "whatever lies in the package is the shipped model",
        "bundle",
        "if files.weights_hash != model.sha256:",
        "if False:",
        "tiny.py::test_another_file_in_its_place_is_refused",
    ),
    mutant(
        "the output is always tied",
        "hf_folder",
        "tied=_HEAD not in tensors",
        "tied=True",
        "hf_folder.py::test_weights_of_an_output_of_its_own_are_not_tied",
    ),
    mutant(
        "a folder is written over",
        "hf_folder",
        "if out.exists():",
        "if False:",
        "hf_folder.py::test_a_folder_that_is_there_is_left_alone",
    ),
]
