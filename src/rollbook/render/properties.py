"""From what a probe saw to findings: for each property its value, what a trainer sees of it, and an example."""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.errors import ModelError
from rollbook.render.conversation import TemplateMessage
from rollbook.render.findings import Property, TemplateFinding, Verdict
from rollbook.render.formats import CallFormat, opens_reasoning, reads_back
from rollbook.render.increments import common_prefix, last_of, own_ending
from rollbook.render.probe import Probe
from rollbook.render.specimens import CALLS, NATIVE_IDS, PARALLEL, PLAIN, TOOL, TRIALS, WORDS, Cause, say, tagged
from rollbook.render.tracked import Tracked, message_tag, tags_of

__all__ = ["call_format_of", "findings_of"]

_LONG = "word " * 4000 + "end"
_EXCUSED = {Cause.SYSTEM: "without the system message", Cause.ROUNDS: "as in the first round"}
"""Bridges that stay sound although the template writes more, or less, later on."""


def findings_of(seen: Probe) -> Iterator[TemplateFinding]:
    """Every finding that the template alone allows."""
    yield _found(Property.TRACKED, "yes", "Every character is known to be the template's or a message's.")
    yield from _turns(seen)
    yield from _history(seen)
    yield _system(seen)
    yield _date(seen)
    yield from _tools(seen)
    yield _shapes(seen)
    yield _content(seen)


def call_format_of(seen: Probe) -> CallFormat | None:
    """The format in which the template writes calls: the one that reads them back exactly; None: none does."""
    written = _written_calls(seen)
    return next((form for text, calls in written for form in CallFormat if reads_back(form, text, calls, [TOOL])), None)


def _found(
    asked: Property,
    value: str,
    meaning: str,
    *,
    verdict: Verdict = Verdict.SOUND,
    example: str = "",
    forbids: bool = False,
) -> TemplateFinding:
    return TemplateFinding(
        about=asked, value=value, verdict=verdict, meaning=meaning, example=example[:400], forbids=forbids
    )


def _turns(seen: Probe) -> Iterator[TemplateFinding]:
    facts, behind = seen.facts, _behind_turn(seen)
    if facts.close is None:
        meaning = "No token of its own ends a turn: the marker of the next role does. It is sampled and trains."
        yield _found(Property.STOP, "next role", meaning, example=repr(behind.plain[:60]))
    else:
        meaning = f"{facts.close} ends a turn; it is sampled and trains. A turn that was cut gets it as forced."
        yield _found(Property.STOP, facts.close, meaning)
    separator = behind.plain[: len(behind) - len(behind.plain.lstrip())]
    what = "scaffold of the next message, never trained" if separator else "nothing"
    yield _found(Property.SEPARATOR, repr(separator), f"Between the end of a turn and the next message stands {what}.")
    prompt = _prompts(seen)[0]
    opens = opens_reasoning(prompt)
    meaning = "The model's reply begins " + ("inside reasoning." if opens else "outside of reasoning.")
    verdict = Verdict.SOUND
    if not facts.keeps_prompt:
        meaning += " History shows some turns without it, or with more than it."
        verdict = Verdict.DIFFERS
    yield _found(Property.PROMPT, "opens reasoning" if opens else "plain", meaning, verdict=verdict, example=prompt)


def _prompts(seen: Probe) -> tuple[str, ...]:
    """What stands before a reply; a template may write it behind each message that the assistant answers, asked for a
    generation prompt or not."""
    return seen.facts.shape.prompts or (own_ending(seen.facts.sample),)


def _history(seen: Probe) -> Iterator[TemplateFinding]:
    worst = [found for found in seen.bridges if found.cause not in _EXCUSED]
    if worst:
        meaning = (
            "the chat template cannot be rendered step by step: what it writes for new messages depends on the rest "
            f"of the conversation ({worst[0].cause}); alone {worst[0].before!r}, in the whole {worst[0].after!r}"
        )
        yield _found(Property.BRIDGE, "none", meaning, verdict=Verdict.UNSOUND, example=str(worst[0]), forbids=True)
    elif seen.bridges:
        value = ", ".join(_EXCUSED[found.cause] for found in seen.bridges)
        meaning = f"New messages are written {value}; the template's own rendering of the whole would differ there."
        yield _found(Property.BRIDGE, value, meaning, verdict=Verdict.DIFFERS, example=str(seen.bridges[0]))
    else:
        meaning = "What is written for new messages is what the full rendering ends with, character for character."
        yield _found(Property.BRIDGE, "exact", meaning)
    if seen.rewrites:
        causes = ", ".join(found.cause for found in seen.rewrites)
        meaning = (
            f"A later rendering does not begin with the earlier one ({causes}). Under keep the tokens stay as they "
            "were sampled; under template each rewrite is a new branch."
        )
        yield _found(Property.APPEND_ONLY, "no", meaning, verdict=Verdict.DIFFERS, example=str(seen.rewrites[0]))
    else:
        yield _found(Property.APPEND_ONLY, "yes", "Later renderings only append to earlier ones.")
    yield _reasoning(seen)


def _reasoning(seen: Probe) -> TemplateFinding:
    dropped = next((found for found in seen.rewrites if found.cause is Cause.REASONING), None)
    if dropped is not None:
        meaning = (
            "The template drops the reasoning of earlier turns. Under keep it stays in context, and a policy trained "
            "so sees another history than where it is deployed with this template."
        )
        return _found(Property.REASONING, "dropped", meaning, verdict=Verdict.DIFFERS, example=str(dropped))
    trial = next(trial for trial in TRIALS if trial.special is Cause.REASONING)
    text = _try(seen, trial.entries)
    shown = text is not None and "I think." in text
    if any(map(opens_reasoning, _prompts(seen))) and not shown:
        meaning = (
            "The reply begins inside reasoning, and the template's history shows none of it. Under keep it stays in "
            "context, and a policy trained so sees another history than where it is deployed with this template."
        )
        return _found(Property.REASONING, "dropped", meaning, verdict=Verdict.DIFFERS)
    if shown:
        return _found(Property.REASONING, "kept", "Reasoning of earlier turns stays in the template's history.")
    meaning = "The template writes no reasoning that is given beside the text; under template it would vanish."
    return _found(Property.REASONING, "not written", meaning)


def _system(seen: Probe) -> TemplateFinding:
    text, header = _try(seen, PLAIN[:1]), _behind_turn(seen)
    start = text.plain[: tags_of(text).find(message_tag(0))] if text is not None else ""
    own = header.plain[: tags_of(header).find(message_tag(0))].lstrip()
    bos = seen.increments.template.special_tokens.get("bos_token", "")
    default = start.removesuffix(own).removeprefix(bos).strip()
    if any(found.cause is Cause.SYSTEM for found in (*seen.bridges, *seen.rewrites)):
        meaning = "The system message moves to the last user message; under keep it stays where it stood first."
        return _found(Property.SYSTEM, "moves", meaning, verdict=Verdict.DIFFERS, example=default)
    if default:
        meaning = "Without a system message the template writes text of its own, once, at the start."
        return _found(Property.SYSTEM, "default text", meaning, example=default)
    return _found(Property.SYSTEM, "none", "Without a system message the template writes none.")


def _date(seen: Probe) -> TemplateFinding:
    if seen.asks_date:
        meaning = (
            "the chat template asks for today's date; give a fixed one (date, or --date YYYY-MM-DD), for prompts must "
            "not change with the clock"
        )
        return _found(Property.DATE, "asked", meaning, verdict=Verdict.UNSOUND, forbids=True)
    given = seen.increments.template.now
    if given is not None:
        return _found(Property.DATE, f"{given:%Y-%m-%d}", "The date that was given, where the template asks for one.")
    return _found(Property.DATE, "none", "The template asks for no date.")


def _tools(seen: Probe) -> Iterator[TemplateFinding]:
    facts = seen.facts
    if seen.tools_refused is not None:
        meaning = (
            f"The template fails where tools are given ({seen.tools_refused}); an explicit tool prompt must tell them."
        )
        yield _found(Property.TOOLS, "refused", meaning, verdict=Verdict.UNSOUND)
    elif not facts.renders_tools:
        meaning = (
            "The template drops tools in silence; they must be told by an explicit tool prompt. rollbook run and "
            "load_renderer then use the one that is shipped, and the record names it with its hash."
        )
        yield _found(Property.TOOLS, "not rendered", meaning, verdict=Verdict.UNSOUND)
    elif any(found.cause is Cause.TOOLS for found in seen.rewrites):
        meaning = "Tools move to the last user message; under keep they stay, and stand once with each."
        yield _found(Property.TOOLS, "move", meaning, verdict=Verdict.DIFFERS)
    else:
        value = "each time" if facts.tools_each_time else "start"
        yield _found(Property.TOOLS, value, "Tools are rendered at the start of the conversation.")
    written = _written_calls(seen)
    form = call_format_of(seen)
    example = written[0][0] if written else ""
    if not facts.renders_calls:
        meaning = "The template has no place for tool calls in given messages"
        if facts.renders_tools:
            meaning += ", so nothing says in which form the model writes them; name it (RendererConfig.call_format)."
            yield _found(Property.CALLS, "not rendered", meaning, verdict=Verdict.UNSOUND)
        else:
            yield _found(Property.CALLS, "not rendered", f"{meaning}.")
        return
    if form is None:
        meaning = "The template writes calls in a form that no parser of ours reads back; tools cannot be used with it."
        yield _found(Property.CALLS, "unknown", meaning, verdict=Verdict.UNSOUND, example=example)
    else:
        yield _found(
            Property.CALLS,
            form,
            "Replies are read in this form; the template's own calls read back exactly.",
            example=example,
        )
    spelled = "text" if facts.shape.arguments_as_text else "object"
    yield _found(
        Property.ARGUMENTS, spelled, f"A call's arguments are given to the template as {spelled}.", example=example
    )
    yield _results(seen)


def _results(seen: Probe) -> TemplateFinding:
    text = _try(seen, PARALLEL) or _try(seen, [PARALLEL[0], *PARALLEL[2:]])
    if text is None:
        return _found(Property.RESULTS, "one", "The template takes one result at a time.")
    tags = tags_of(text)
    places = [last_of(tags, place) for place in range(len(PARALLEL))]
    first, second = places[-2:]
    between = text.plain[first + 1 : tags.find(tags[second])] if min(first, second) >= 0 else ""
    grouped = not any(stop in between for stop in seen.increments.stops)
    meaning = "All results of a turn are rendered at once, in the order of the calls" + (
        ", inside one turn." if grouped else ", each a turn of its own."
    )
    return _found(Property.RESULTS, "grouped" if grouped else "separate", meaning, example=between)


def _shapes(seen: Probe) -> TemplateFinding:
    names = ", ".join(name for name, _ in seen.refused)
    if not names:
        return _found(Property.SHAPES, "all taken", "The template takes every shape of conversation that was tried.")
    meaning = f"The template refuses: {names}. A rollout that comes there ends with an error."
    return _found(
        Property.SHAPES, "some refused", meaning, example="; ".join(dict.fromkeys(why for _, why in seen.refused))
    )


def _content(seen: Probe) -> TemplateFinding:
    results = [*CALLS[:2], {**CALLS[2], "content": _LONG}]
    for entries in ([say("user", _LONG)], results):
        text = _try(seen, entries)
        if text is not None and 0 < tags_of(text).count(message_tag(len(entries) - 1)) < len(_LONG):
            meaning = (
                "The template leaves out a part of a long message; the record keeps the message, the tokens the rest."
            )
            return _found(Property.CONTENT, "cut", meaning, verdict=Verdict.DIFFERS)
    text = _try(seen, [say("user", "  Two\n  blanks.  \n")])
    if text is None or message_tag(0) * len("  Two\n  blanks.  \n") in tags_of(text):
        return _found(Property.CONTENT, "as given", "Messages are written as they were given.")
    meaning = "The template strips white space around messages; the record keeps the message, the tokens the rest."
    return _found(Property.CONTENT, "trimmed", meaning)


def _behind_turn(seen: Probe) -> Tracked:
    return seen.increments.after_turn(tagged(PLAIN[2:]), None).text


def _try(seen: Probe, entries: list[TemplateMessage], ids: tuple[str, str] | None = None) -> Tracked | None:
    shape, template = seen.increments.shape, seen.increments.template
    shown = tagged(entries, shape) if ids is None else tagged(entries, shape, ids)
    try:
        return template.render(shown, None, prompt=True)
    except ModelError:
        return None


def _written_calls(seen: Probe) -> list[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """What the template writes of a turn with calls, behind the generation prompt, and the calls."""
    found: list[tuple[str, list[tuple[str, dict[str, str]]]]] = []
    before = _try(seen, PLAIN[:1])
    for entries in (PARALLEL, CALLS):
        for ids in (None, NATIVE_IDS):
            whole = _try(seen, entries, ids)
            end = 0 if whole is None else last_of(tags_of(whole), 1) + 1
            if whole is None or before is None or not end:
                continue
            stop = seen.increments.stop(whole, end).start()
            start = common_prefix(whole, before)
            if start < len(before):  # the prompt is not in history as it is: back to the last whole marker
                start = max(whole.plain.rfind(sign, 0, start) for sign in (">", "]", "\n")) + 1
            count = len(entries[1]["tool_calls"])
            found.append((whole.plain[start:stop], [("lookup", {"word": word}) for word in WORDS[:count]]))
    return found
