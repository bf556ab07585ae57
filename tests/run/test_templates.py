"""`check_template`: what it reads, and what it says of a folder, a file and a wrong request."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rollbook import check_template
from rollbook.errors import ModelError, UsageError
from rollbook.render.findings import Property
from rollbook.run.templates import MAX_TEMPLATE
from tests.models.test_harmony_ranks import MARKERS, small
from tests.render.families import template, tokenizer_json

STOPS = ("<|im_end|>",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer folder with a template."""
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_json(marked=True))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (tmp_path / "chat_template.jinja").write_text(template("qwen3"))
    return tmp_path


def test_a_folder_is_judged_with_its_tokens(folder: Path) -> None:
    report = check_template(folder)
    assert report.sound
    assert report.labels == ("append_only=no", "reasoning=dropped")
    control = report.get(Property.CONTROL)
    assert control is not None
    assert control.value == "safe"


def test_a_template_alone_needs_its_stop_token(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text(template("smollm2"))
    report = check_template(path, stops=STOPS)
    assert not report.sound
    assert report.get(Property.CONTROL) is None
    with pytest.raises(UsageError, match=r"name it .*--stop"):
        check_template(path)


def test_another_template_for_a_folder(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jinja"
    other.write_text(template("smollm2"))
    assert check_template(folder, template=other).labels == ("tools=not rendered",)
    with pytest.raises(UsageError, match="a template already"):
        check_template(other, template=other, stops=STOPS)


def test_a_double_start_token_is_unsound(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "bos_token": "<|endoftext|>"}))
    text = template("smollm2")
    for count, value in ((1, "one"), (2, "double")):
        (folder / "chat_template.jinja").write_text("{{ bos_token }}" * count + text)
        start = check_template(folder).get(Property.BOS)
        assert start is not None
        assert (start.value, start.forbids) == (value, count == 2)


def test_a_date_is_given_or_the_template_is_unsound(tmp_path: Path) -> None:
    path = tmp_path / "dated.jinja"
    path.write_text("{{ strftime_now('%d %b') }}" + template("qwen3"))
    assert not check_template(path, stops=STOPS).sound
    assert check_template(path, stops=STOPS, date=date(2026, 1, 31)).sound


def test_variables_reach_the_template(folder: Path) -> None:
    prompt = check_template(folder, variables={"enable_thinking": False}).get(Property.PROMPT)
    assert prompt is not None
    assert prompt.example.endswith("<think>\n\n</think>\n\n")


def test_a_variable_that_the_template_never_reads_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"never reads enable_thinkin; .*that it reads: .*enable_thinking"):
        check_template(folder, variables={"enable_thinkin": False})


def test_stop_tokens_are_added_to_the_models_own(folder: Path) -> None:
    """One token ends a turn behind text, another one behind calls."""
    text = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ END }}{% endfor %}"
    text += "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    (folder / "chat_template.jinja").write_text(text.replace("END", "'<|endoftext|>'"))
    refused = check_template(folder).forbidding
    assert refused is not None
    assert "any of <|im_end|>; behind the assistant's text stands '<|endoftext|>" in refused.meaning
    found = check_template(folder, stops=["<|endoftext|>"]).get(Property.STOP)
    assert found is not None
    assert found.value == "<|endoftext|>"
    (folder / "chat_template.jinja").write_text(text.replace("END", "'<|im_end|>'"))
    assert check_template(folder, stops=["<|endoftext|>"]).get(Property.STOP) == check_template(folder).get(
        Property.STOP
    )
    with pytest.raises(UsageError, match="no added token '<im_end>' that could end a turn"):
        check_template(folder, stops=["<im_end>"])


def test_gpt_oss_has_no_template_to_check(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(small(MARKERS, {"a": 0}))
    for path in (folder, f"scripted:{folder}/replies.json"):
        with pytest.raises(UsageError, match=r"gpt-oss model: .*extra harmony.*no template to check"):
            check_template(path)


def test_special_tokens_of_a_template_alone_are_given(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text(template("smollm2").replace("'<|im_end|>'", "eos_token").replace("<|im_end|>", "{{ eos_token }}"))
    found = check_template(path, stops=STOPS, variables={"eos_token": "<|im_end|>"}).get(Property.STOP)
    assert found is not None
    assert found.value == "<|im_end|>"
    with pytest.raises(UsageError, match="eos_token is the spelling of a token, not 5"):
        check_template(path, stops=STOPS, variables={"eos_token": 5})


def test_a_policy_by_name(folder: Path) -> None:
    found = check_template(f"scripted:{folder}/replies.json")
    assert found.findings == check_template(folder).findings
    with pytest.raises(UsageError, match="unknown kind of policy 'locl'"):
        check_template("locl:smollm2-135m")


def test_a_path_may_be_text_and_a_day_must_be_one(folder: Path) -> None:
    text = str(folder / "chat_template.jinja")
    assert check_template(str(folder), template=text).findings == check_template(folder).findings
    wrong: Any = "2026-01-31"
    with pytest.raises(UsageError, match="'2026-01-31' is no date; give a datetime"):
        check_template(folder, date=wrong)


def test_what_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        check_template(tmp_path / "none.jinja", stops=STOPS)
    large = tmp_path / "large.jinja"
    large.write_bytes(b" " * (MAX_TEMPLATE + 1))
    with pytest.raises(ModelError, match="larger than"):
        check_template(large, stops=STOPS)
    with pytest.raises(ModelError, match="larger than"):
        check_template("/dev/zero", stops=STOPS)
    broken = tmp_path / "broken.jinja"
    broken.write_text("{% if %}")
    with pytest.raises(ModelError, match="does not compile"):
        check_template(broken, stops=STOPS)
    with pytest.raises(ModelError, match="no tokenizer folder"):
        check_template(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_json(marked=False))
    with pytest.raises(ModelError, match="no chat template"):
        check_template(tmp_path)


def test_an_empty_text_ends_no_turn(folder: Path) -> None:
    with pytest.raises(UsageError, match="an empty text ends no turn"):
        check_template(folder, stops=("",))


def test_a_variable_that_the_renderer_gives_itself_is_refused(folder: Path) -> None:
    """The conversation is not replaced by it, and it is not dropped in silence."""
    with pytest.raises(ModelError, match="messages: the renderer itself gives"):
        check_template(folder, variables={"messages": 5})
