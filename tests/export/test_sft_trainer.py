"""What TRL makes of the conversations: `datasets` loads them, a chat template with marked replies tokenises them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollbook.trace import ToolCall, ToolSpec
from tests.export.test_sft import chat, sft

datasets = pytest.importorskip("datasets")
transformers = pytest.importorskip("transformers")

TEMPLATE = """{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == 'assistant' %}{% generation %}{{ message.content }}{% for call in message.tool_calls or [] -%}
<tool_call>{{ call.function.name }} {{ call.function.arguments | tojson }}</tool_call>
{%- endfor %}<|im_end|>
{% endgeneration %}{% else %}{{ message.content }}<|im_end|>
{% endif %}{% endfor %}"""
"""ChatML with the replies marked, as `assistant_only_loss` needs it."""


IGNORED = -100
"""The label of a token that does not train."""


@pytest.fixture
def tokenizer(smollm2: Any, tmp_path: Path) -> Any:
    (tmp_path / "tokenizer.json").write_bytes(smollm2.tokenizer_json)
    found = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    found.chat_template = TEMPLATE
    return found


def loaded(path: Path) -> Any:
    return datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(path.parent / "cache"))


def test_datasets_loads_rows_with_other_tools_and_arguments(tmp_path: Path) -> None:
    text = ToolSpec(name="say", description="", parameters={"type": "object", "properties": {"words": {}}})
    other = ToolCall(id="c", name="say", arguments={"words": ["a", 1]})
    _, rows = sft([chat("a"), chat("b", call=other, tools=(text,), answer="x")], tmp_path)
    table = loaded(tmp_path / "out")
    assert [row["messages"] for row in table] == [row["messages"] for row in rows]
    assert [json.loads(row["tools"])[0]["function"]["name"] for row in table] == ["add", "say"]


def test_only_the_replies_train_where_the_template_marks_them(tmp_path: Path, tokenizer: Any) -> None:
    sft([chat("a")], tmp_path)
    (row,) = loaded(tmp_path / "out")
    found = tokenizer.apply_chat_template(
        row["messages"],
        tools=json.loads(row["tools"]),
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    trained = [token for token, held in zip(found["input_ids"], found["assistant_masks"], strict=True) if held]
    assert tokenizer.decode(trained) == '<tool_call>add {"x": 1}</tool_call><|im_end|>\n3<|im_end|>\n'


@pytest.mark.filterwarnings("ignore")  # those of TRL's own code
@pytest.mark.parametrize("split", [False, True])
def test_trl_prepares_them(split: bool, tmp_path: Path, tokenizer: Any) -> None:
    sft_trainer = pytest.importorskip("trl.trainer.sft_trainer")
    sft([chat("a", example=split)], tmp_path, split=split)
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    config = sft_trainer.SFTConfig(
        output_dir=str(tmp_path / "t"), assistant_only_loss=True, use_cpu=True, report_to=[], bf16=False
    )
    small = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    trainer = sft_trainer.SFTTrainer(
        model=transformers.LlamaForCausalLM(small),
        args=config,
        train_dataset=loaded(tmp_path / "out"),
        processing_class=tokenizer,
    )
    (row,) = trainer.train_dataset
    trained = [label for label in row["labels"] if label != IGNORED]
    assert tokenizer.decode(trained) == '<tool_call>add {"x": 1}</tool_call><|im_end|>\n3<|im_end|>\n'
