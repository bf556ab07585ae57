"""What a renderer of the package shows of itself before it is used."""

from __future__ import annotations

from dataclasses import replace

import pytest
from renderers import ParsedToolCall

from rollbook.errors import ModelError
from rollbook.render.package_reply import BodyKind, body_of
from rollbook.render.renderers_package import PackageRenderer
from tests.render.families import encoder, tokenizer_json
from tests.render.package_fakes import Faulty
from tests.render.test_renderers_package import SMALL


def test_the_form_of_qwen_is_learned():
    form, added = SMALL._reply._form, encoder(marked=True).added
    assert (form.body, form.opener, form.closer) == (BodyKind.CALL, added["<tool_call>"], added["</tool_call>"])
    assert form.marked


@pytest.mark.parametrize(
    "change",
    [
        lambda found: replace(found, tool_calls=[]),
        lambda found: replace(found, tool_calls=[replace(call, arguments={}) for call in found.tool_calls]),
        lambda found: replace(found, tool_calls=[replace(call, status="invalid_json") for call in found.tool_calls]),
    ],
)
def test_a_renderer_that_does_not_read_its_own_call_is_refused(change):
    def make(tokenizer):
        made = Faulty(tokenizer)
        made.on_parse = change
        return made

    with pytest.raises(ModelError, match="does not read back"):
        PackageRenderer.build(tokenizer_json(marked=True), make, name="x")


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', BodyKind.CALL),
        ('{"a": 1}', BodyKind.ARGUMENTS),
        ("<a>1</a>", BodyKind.OTHER),
    ],
)
def test_the_body_of_a_call(raw, body):
    assert body_of(ParsedToolCall(raw=raw, name="f", arguments={"a": 1})) is body
