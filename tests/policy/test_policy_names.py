from pathlib import Path

import pytest

from rollbook.errors import UsageError
from rollbook.policy import EngineKind, LocalName, RemoteName, ScriptedName, TextName, parse_policy_name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("local", LocalName("smollm2-135m")),
        ("local:tiny", LocalName("tiny")),
        ("local:dir/x:y.gguf", LocalName("dir/x:y.gguf")),
        ("vllm:http://h:8000", RemoteName(EngineKind.VLLM, "http://h:8000")),
        ("sglang:https://h/base/", RemoteName(EngineKind.SGLANG, "https://h/base")),
        ("llamacpp:http://127.0.0.1:1", RemoteName(EngineKind.LLAMACPP, "http://127.0.0.1:1")),
        ("vllm:http://h:8000/#org/m:1", RemoteName(EngineKind.VLLM, "http://h:8000", "org/m:1")),
        ("text:http://h/v1#org/m:1", TextName("http://h/v1", "org/m:1")),
        ("scripted:a.json", ScriptedName(Path("a.json"))),
    ],
)
def test_each_form_is_read_and_spelled_back(text, value):
    found = parse_policy_name(text)
    assert found == value
    assert parse_policy_name(str(found)) == found


@pytest.mark.parametrize(
    "text",
    ["", "Local", "local:", "vllm", "vllm:", "openai:x", "vllm:h:80", "vllm:http://", "vllm:http://h:x", "scripted:"],
)
def test_anything_else_shows_the_grammar(text):
    with pytest.raises(UsageError, match=r"name it local|is not a URL"):
        parse_policy_name(text)


@pytest.mark.parametrize("text", ["locall", "scriptd:x.json", "vlm:http://h", "sglan:http://h", "llama:http://h"])
def test_a_near_miss_is_told_and_every_kind_is_offered(text):
    with pytest.raises(UsageError, match=r"did you mean '\w+'\?\): name it local, ") as refused:
        parse_policy_name(text)
    assert all(f"{kind}:" in str(refused.value) for kind in ("vllm", "sglang", "llamacpp", "text", "scripted"))


def test_a_mark_without_a_model_is_refused():
    with pytest.raises(UsageError, match="write vllm:URL#MODEL, or vllm:URL alone"):
        parse_policy_name("vllm:http://h#")


def test_a_text_endpoint_needs_its_model():
    with pytest.raises(UsageError, match="text:URL#MODEL"):
        parse_policy_name("text:http://h/v1")
