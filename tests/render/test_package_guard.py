"""Each fault that a renderer object of the package could make is refused, with the message that it is about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from renderers import RenderedTokens

from rollbook.errors import ModelError
from rollbook.render.package_guard import Guard, Owned
from rollbook.trace.message import Message, Role, ToolCall
from tests.render.families import ADD, encoder
from tests.render.package_fakes import broken, faulty_renderer, put, without
from tests.render.test_renderers_package import STOP, result, said

USER = [said(Role.SYSTEM, "Be good."), said(Role.USER, "so [END] it is")]
RESULTS = [result("one"), result("two [END] three", 1)]


def asks(package):
    """The two ways to render, each with the number of the message that its faults are about."""
    return ((2, lambda: package.open(USER, [ADD])), (2, lambda: package.extend(STOP, RESULTS, [ADD])))


def owners(rendered, held):
    return [place for place, owner in enumerate(rendered.message_indices) if place >= held and owner == 1]


def refused(fault, match):
    for number in (0, 1):
        package, fake = faulty_renderer()
        which, ask = asks(package)[number]
        assert ask()
        fake.on_render = fault
        package._expected.clear()
        with pytest.raises(ModelError, match=match.format(which)):
            ask()


def test_a_message_that_is_left_out():
    refused(lambda rendered, held: without(rendered, set(owners(rendered, held))), "leaves out message {}")


def test_a_text_that_is_left_out():
    def fault(rendered, held):
        content = [at for at in owners(rendered, held) if rendered.is_content[at]]
        return without(rendered, set(content[3:]))

    refused(fault, "message {} .* leaves out")


def test_a_part_of_a_text_that_is_left_out():
    def fault(rendered, held):
        content = [at for at in owners(rendered, held) if rendered.is_content[at]]
        return without(rendered, {content[2]} if len(content) > 2 else set())

    refused(fault, "message {} .* leaves out")


def test_a_control_token_out_of_content():
    def fault(rendered, held):
        for at in owners(rendered, held):
            if rendered.is_content[at] and bytes_at(rendered, at) == "E":
                marks = list(rendered.is_content)
                marks[at] = False
                return replace(put(rendered, at, STOP), is_content=marks)
        return rendered

    refused(fault, "message {} .* makes the control token '<.im_end.>'")


def test_a_control_token_marked_as_content():
    """Also where the harmless rendering has it, so that the two agree."""

    def fault(rendered, held):
        end = max(at for at in owners(rendered, held) if rendered.token_ids[at] == STOP)
        return replace(rendered, is_content=[mark or at == end for at, mark in enumerate(rendered.is_content)])

    package, fake = faulty_renderer()
    fake.on_render = fault
    with pytest.raises(ModelError, match=r"message 2 .* makes the control token"):
        package.open(USER, [])


def bytes_at(rendered, at):
    return encoder(marked=True).vocabulary.join([rendered.token_ids[at]]).decode()


def test_a_control_token_that_is_lost():
    def fault(rendered, held):
        spelled = [at for at in owners(rendered, held) if "[END]" in text_of(rendered, owners(rendered, held))]
        ends = [at for at in spelled if rendered.token_ids[at] == STOP]
        return without(rendered, set(ends))

    refused(fault, "message {} .* loses the control token|makes the control token")


def text_of(rendered, places):
    return encoder(marked=True).vocabulary.join(rendered.token_ids[at] for at in places).decode()


def test_tokens_without_marks():
    refused(lambda rendered, held: replace(rendered, is_content=[]), "0 marks of content")
    refused(lambda rendered, held: replace(rendered, message_indices=[]), "0 owners")


def test_tokens_of_a_message_that_is_not_there():
    def fault(rendered, held):
        return replace(rendered, message_indices=[*rendered.message_indices[:-1], 7])

    refused(fault, "does not exist")


def test_tokens_out_of_order():
    def fault(rendered, held):
        found = list(rendered.message_indices)
        found[owners(rendered, held)[-1]] = 0
        return replace(rendered, message_indices=found)

    refused(fault, "behind those of a later one")


def test_tokens_that_the_tokenizer_does_not_have():
    refused(lambda rendered, held: put(rendered, owners(rendered, held)[-1], 10**6), "does not have")


def test_a_history_that_is_changed():
    package, fake = faulty_renderer()
    fake.on_render = lambda rendered, held: put(rendered, held - 2, 3) if held else rendered
    with pytest.raises(ModelError, match="changed ids"):
        package.extend(STOP, RESULTS, [])


def test_a_cut_turn_that_is_not_closed_or_closed_with_more():
    package, fake = faulty_renderer()
    fake.on_render = lambda rendered, held: without(rendered, {held})
    with pytest.raises(ModelError, match="without ending it"):
        package.extend(3, RESULTS, [])
    package, fake = faulty_renderer()
    calls: list[int] = []

    def fault(rendered, held):
        calls.append(held)
        return put(rendered, held + 1, 3) if len(calls) == 1 else rendered

    fake.on_render = fault
    with pytest.raises(ModelError, match="more than an end-of-turn token"):
        package.extend(3, RESULTS, [])


def test_tools_that_are_left_out():
    package, fake = faulty_renderer()
    real = fake._real.render
    fake._real.render = lambda messages, **options: real(messages, **{**options, "tools": None})
    with pytest.raises(ModelError, match="leaves out the tool 'add'"):
        package.open(USER, [ADD])


def test_a_call_that_is_left_out():
    package, fake = faulty_renderer()
    call = ToolCall(id="0", name="add", arguments={"a": 1, "why": 'for "you"'})
    messages = [*USER, Message(role=Role.ASSISTANT, content="so", tool_calls=(call,))]
    assert package.open(messages, [])
    fake.on_messages = lambda given: [
        {**entry, "tool_calls": [{**c, "function": {**c["function"], "arguments": {}}} for c in entry["tool_calls"]]}
        if "tool_calls" in entry
        else entry
        for entry in given
    ]
    with pytest.raises(ModelError, match=r"message 3 .* leaves out 'why'"):
        package.open(messages, [])


def test_an_error_of_the_package_is_one_typed_error():
    package, fake = faulty_renderer()
    fake.on_render = broken
    for _, ask in asks(package):
        with pytest.raises(ModelError, match="the renderers package cannot"):
            ask()


def test_what_belongs_to_no_message_stands_before_the_next():
    found = RenderedTokens(
        token_ids=[1, 2, 3, 4, 5, 6],
        message_indices=[-1, 0, -1, 1, -1, -1],
        is_content=[False, True, False, True, False, False],
    )
    owned = Owned(found, 0, 2)
    assert owned.owners.tolist() == [0, 0, 1, 1, 2, 2]
    assert owned.bounds() == [(0, 2), (2, 4), (4, 6)]
    messages = [said(Role.USER, spelled(2)), said(Role.USER, spelled(4))]
    pieces = Guard(encoder(marked=True)).check(messages, owned, [])
    assert [piece.runs.tolist() for piece in pieces] == [[[0, 1], [1, 1]], [[0, 1], [1, 1]], [[0, 2]]]
    assert np.concatenate([piece.token_ids for piece in pieces]).tolist() == found.token_ids


def spelled(token):
    return encoder(marked=True).vocabulary[token].decode()
