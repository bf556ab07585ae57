"""Folders as models are published, and what is taken out of each file."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from rollbook.errors import ModelError
from rollbook.models import FAMILIES, TiktokenFamily, has_tokenizer, load_folder
from rollbook.render.encode import Encoder
from rollbook.render.tracked import scaffold

from .samples import rank_file, sentencepiece_model, tekken_file


def folder(path: Path, **files: object) -> Path:
    tokenizer = {
        "model": {"type": "BPE", "vocab": {"a": 0, "</s>": 1}, "merges": []},
        "added_tokens": [{"id": 2, "content": "<end>", "special": True}],
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


def test_a_tokenizer_folder(tmp_path):
    config = {"chat_template": "T", "eos_token": {"content": "<end>"}, "bos_token": "</s>", "pad_token": None}
    files = load_folder(
        folder(
            tmp_path,
            tokenizer_config=config,
            generation_config={"eos_token_id": [1, 2]},
            config={"max_position_embeddings": 99},
        )
    )
    assert files.weights is None
    assert (files.template, files.eos_id, files.context_length) == ("T", 2, 99)
    assert files.stop_ids == {1, 2}
    assert files.special_tokens == {"eos_token": "<end>", "bos_token": "</s>"}


def test_a_template_file_wins_over_the_configuration(tmp_path):
    path = folder(tmp_path, tokenizer_config={"chat_template": "old"})
    (path / "chat_template.jinja").write_text("new")
    assert load_folder(path).template == "new"


def test_a_bare_tokenizer_says_nothing_and_nothing_is_guessed(tmp_path):
    files = load_folder(folder(tmp_path))
    assert (files.template, files.eos_id, files.stop_ids, files.context_length) == (None, None, frozenset(), None)


@pytest.mark.parametrize("name", ["tokenizer", "tokenizer_config", "generation_config", "config"])
def test_a_damaged_file_is_named(tmp_path, name):
    path = folder(tmp_path)
    (path / f"{name}.json").write_text("{")
    with pytest.raises(ModelError, match=f"{name}.json"):
        load_folder(path)


def test_a_folder_without_tokenizer(tmp_path):
    with pytest.raises(ModelError, match=r"cannot read tokenizer\.json"):
        load_folder(tmp_path)


NAMED = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}]


def test_named_templates(tmp_path):
    files = load_folder(folder(tmp_path, tokenizer_config={"chat_template": NAMED}))
    assert (files.template, files.templates) == ("y", {"default": "y", "tool_use": "x"})
    further = tmp_path / "additional_chat_templates"
    further.mkdir()
    (further / "rag.jinja").write_text("z")
    (tmp_path / "chat_template.jinja").write_text("new")
    assert load_folder(tmp_path).templates == {"default": "new", "rag": "z"}


def test_a_folder_without_a_default_template(tmp_path):
    files = load_folder(folder(tmp_path, tokenizer_config={"chat_template": NAMED[:1]}))
    assert (files.template, files.template_hash, files.templates) == (None, "", {"tool_use": "x"})


def test_a_template_in_a_file_of_its_own(tmp_path):
    assert load_folder(folder(tmp_path, chat_template={"chat_template": "T"})).template == "T"
    path = folder(tmp_path, chat_template={"chat_template": "T"}, tokenizer_config={"chat_template": "C"})
    assert load_folder(path).template == "C"


@pytest.mark.parametrize("template", [3, [{"name": "a"}], {"default": "x"}])
def test_a_template_of_another_form_is_refused(tmp_path, template):
    with pytest.raises(ModelError, match=r"tokenizer_config\.json: its chat template is neither"):
        load_folder(folder(tmp_path, tokenizer_config={"chat_template": template}))


def test_templates_that_are_no_text(tmp_path):
    folder(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelError, match=r"cannot read .*chat_template\.jinja"):
        load_folder(tmp_path)


def test_ends_and_length_of_the_model_itself(tmp_path):
    config = {"eos_token_id": [1, 2], "text_config": {"max_position_embeddings": 7}}
    files = load_folder(folder(tmp_path, config=config))
    assert (files.stop_ids, files.context_length) == ({1, 2}, 7)
    assert load_folder(folder(tmp_path, config=config, generation_config={"eos_token_id": 2})).stop_ids == {2}


def test_special_tokens_of_both_files(tmp_path):
    words = {"eos_token": {"content": "</s>"}, "pad_token": "<end>", "additional_special_tokens": ["<x>"]}
    config = {"eos_token": "<end>", "add_bos_token": True, "image_token": "<image>"}
    files = load_folder(folder(tmp_path, special_tokens_map=words, tokenizer_config=config))
    assert files.special_tokens == {"eos_token": "<end>", "pad_token": "<end>", "image_token": "<image>"}
    assert (files.adds_bos, files.eos_id) == (True, 2)
    assert load_folder(folder(tmp_path, tokenizer_config={})).adds_bos is None


def test_a_plain_path(tmp_path):
    path = folder(tmp_path, tokenizer_config={"chat_template": "T"}) / "tokenizer.json"
    files = load_folder(path)
    assert (files.name, files.template, files.tokenizer_json) == (str(path), "T", path.read_bytes())


def configured(path: Path, **config: object) -> Path:
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def entry(content: str, **flags: bool) -> dict[str, object]:
    return {"content": content, "special": True, **flags}


def test_a_sentencepiece_folder(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model("bpe"))
    size = Encoder(load_folder(tmp_path).tokenizer_json).vocab_size
    added = {"0": entry("<unk>"), str(size): entry("<|im_end|>", rstrip=True), str(size + 1): entry("<|x|>")}
    files = load_folder(configured(tmp_path, added_tokens_decoder=added, eos_token="<|im_end|>"))
    assert files.special_tokens == {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "<|im_end|>"}
    assert files.stop_ids == {size}
    made = Encoder(files.tokenizer_json)
    assert made.added["<|x|>"] == size + 1
    assert made.encode(scaffold("<|im_end|>  <s>"), ())[0].token_ids.tolist() == [size, 1]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize(
    ("number", "content", "message"),
    [(0, "<s>", "calls id 0 '<s>'"), (3000, "<unk>", "calls id 3000 '<unk>'"), (3000, "<far>", "leaves a gap")],
)
def test_added_tokens_that_do_not_fit(tmp_path, kind, number, content, message):
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model(kind))
    configured(tmp_path, added_tokens_decoder={str(number): entry(content)})
    if kind == "bpe" and content == "<far>":
        return  # places between the ids may stay empty there
    with pytest.raises(ModelError, match=message):
        load_folder(tmp_path)


def test_added_tokens_of_a_unigram_vocabulary(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model("unigram"))
    size = Encoder(load_folder(tmp_path).tokenizer_json).vocab_size
    files = load_folder(configured(tmp_path, added_tokens_decoder={str(size): entry("<|x|>")}))
    assert Encoder(files.tokenizer_json).added["<|x|>"] == size


def test_a_tekken_file(tmp_path):
    path = tmp_path / "tekken.json"
    path.write_bytes(tekken_file(5000))
    files = load_folder(tmp_path)
    assert (files.eos_id, files.stop_ids) == (2, {2})
    assert files.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert load_folder(path).tokenizer_json == files.tokenizer_json


def ranked(path: Path, name: str = "tiktoken.model") -> Path:
    (path / name).write_bytes(rank_file())
    return path


def test_a_rank_file_with_the_code_of_a_family(tmp_path):
    first = rank_file().count(b"\n") + 1
    config = {"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}, "eos_token": "<|im_end|>"}
    configured(ranked(tmp_path), added_tokens_decoder={str(first + 1): entry("<|im_end|>")}, **config)
    files = load_folder(tmp_path)
    assert (files.eos_id, files.stop_ids) == (first + 1, {first + 1})
    made = Encoder(files.tokenizer_json)
    assert (len(made.control), made.added[f"<|reserved_token_{first}|>"]) == (256, first)
    pattern = json.loads(files.tokenizer_json)["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    assert pattern == FAMILIES["kimi"].pattern


def test_a_rank_file_of_no_known_family(tmp_path):
    ranked(tmp_path, "tokenizer.model")
    for family in (None, "gemini"):
        with pytest.raises(ModelError, match=r"family=\.\.\.\) with one of kimi, qwen, llama3"):
            load_folder(tmp_path, family=family)
    own = TiktokenFamily(pattern=".", control=("<end>",))
    named = [load_folder(tmp_path, family=family).tokenizer_json for family in ("qwen", own)]
    assert [Tokenizer.from_str(data.decode()).encode("ab").tokens for data in named] == [["a", "b"]] * 2
    assert len(set(named)) == 2


def test_the_name_of_a_file_may_say_the_family(tmp_path):
    assert b"<|extra_204|>" in load_folder(ranked(tmp_path, "qwen.tiktoken")).tokenizer_json
    ranked(tmp_path, "other.tiktoken")
    with pytest.raises(ModelError, match="no tokenizer folder"):
        load_folder(tmp_path)


def test_a_tokenizer_json_wins(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model("bpe"))
    assert load_folder(folder(tmp_path)).tokenizer_json == (tmp_path / "tokenizer.json").read_bytes()


def test_a_file_that_is_none_of_them(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(b"neither")
    with pytest.raises(ModelError, match="no SentencePiece model"):
        load_folder(tmp_path)
    with pytest.raises(ModelError, match="no tokenizer folder"):
        load_folder(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["tokenizer.json", "tekken.json", "tokenizer.model", "tiktoken.model", "a.tiktoken"])
def test_a_tokenizer_of_any_form_is_one(tmp_path, name):
    (tmp_path / "script.json").write_text("{}")
    assert not has_tokenizer(tmp_path)
    (tmp_path / name).write_bytes(b"x")
    assert has_tokenizer(tmp_path)
