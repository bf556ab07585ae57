"""Try a template on a few conversations, before it is used: can it be rendered step by step, and what does it do?

For each conversation and each of its turns, what the full rendering writes behind the turn must be, character for
character, what `Increments` makes of the new messages alone: the bridge. Where that fails only with a system message,
or only behind earlier calls, the template moves or forgets something, and the finding names it; where it fails
otherwise there is no sound bridge, and the template is refused. Whether a later rendering still begins with the
earlier one is another question (`append_only`): under ``keep`` tokens stay, whatever the template would now write of
them.

The tracked text must be the one that plain Jinja gives. A conversation that the template refuses proves nothing and
is passed over; the simplest one must be taken. Results are kept by the template's hash and what it was given.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from rollbook.errors import ModelError
from rollbook.render.conversation import TemplateMessage
from rollbook.render.findings import Property, TemplateFinding, TemplateRefused, Verdict
from rollbook.render.formats import REASONING
from rollbook.render.increments import BaseCalls, Increments, Shape, Tools, common_prefix, last_of
from rollbook.render.specimens import (
    CALLS,
    PARALLEL,
    PLAIN,
    PLAIN_SHAPE,
    SHAPES,
    SPOKEN_TRIALS,
    SYSTEM_TEXT,
    TOOL,
    TRIALS,
    Cause,
    Trial,
    say,
    tagged,
)
from rollbook.render.template import ChatTemplate, plain_render
from rollbook.render.tracked import Tracked, tags_of

__all__ = ["Difference", "Facts", "Probe", "probe", "template_hash"]

STAND_IN_DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""What a template that asks for a date is tried with where none was given."""
MAX_KEPT = 64
"""Templates whose results are kept."""

_MARKUP = "Is 1 < 2 & 'a' > \"b\"? {0} %s \\"
"""What escapes of HTML and formats would change."""
_REASONING = re.compile(
    "|".join([*(f"{re.escape(opens)}.*?{re.escape(closes)}" for opens, closes in REASONING), r"\s+"]), re.DOTALL
)
"""Reasoning blocks, and white space, which goes with them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two texts part that should be one."""

    cause: Cause
    """What the conversation must have for it."""
    before: str
    """What stood there, or what the new messages give alone."""
    after: str
    """What stands there in the whole."""

    def __str__(self) -> str:
        return f"{self.before!r} becomes {self.after!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the renderer must know of its template."""

    close: str | None
    """The end-of-turn token that it writes behind an assistant's text; None: the next role's marker ends a turn."""
    renders_tools: bool
    """True where tools change the start of a conversation."""
    renders_calls: bool
    """True where it writes the tool calls of an assistant message."""
    takes_results: bool
    """True where it writes messages of the role tool."""
    tools_each_time: bool
    """True where later messages too render right only with the tools given."""
    keeps_prompt: bool
    """True where history shows an assistant's turn behind the very text of the generation prompt."""
    shape: Shape
    sample: Tracked
    """A full rendering, for checks of the tokenizer."""


@dataclass(slots=True)
class Probe:
    """What was seen of one template; `rollbook.render.properties` puts it into findings."""

    increments: Increments
    facts: Facts
    bridges: list[Difference] = field(default_factory=list[Difference])
    """What is written for new messages although the turn before them does not tell it."""
    rewrites: list[Difference] = field(default_factory=list[Difference])
    """What later renderings write differently."""
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Shapes of conversations that it does not take, each with its words."""
    asks_date: bool = False
    tools_refused: str | None = None
    """The template's words where it takes no tools; None: it takes them."""


def template_hash(text: str) -> str:
    """sha256 of the template's text in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def probe(template: ChatTemplate, stops: Sequence[str]) -> Probe:
    """Try `template`, whose turns end with one of `stops`. Raises `TemplateRefused` with the finding that forbids
    it."""
    given = (
        template_hash(template.text),
        template.text,
        tuple(sorted(template.special_tokens.items())),
        repr(sorted(template.variables.items())),
        template.now,
    )
    return _probe(_Key(given, template), tuple(sorted(stops)))


@dataclass(frozen=True, slots=True)
class _Key:
    """A template that is equal to another where all that it was given is."""

    given: tuple[Any, ...]
    template: ChatTemplate = field(compare=False)


@functools.lru_cache(maxsize=MAX_KEPT)
def _probe(key: _Key, stops: tuple[str, ...]) -> Probe:
    return _Trials(key.template, stops).run()


class _Trials:
    """The trials of one template."""

    def __init__(self, template: ChatTemplate, stops: tuple[str, ...]) -> None:
        self.template = template
        self.stops = stops

    def run(self) -> Probe:
        asks_date = self._asks_date()
        if asks_date:
            self.template = replace(self.template, now=STAND_IN_DATE)
        bare = self._render(PLAIN, None)
        self._render([say("user", _MARKUP), *PLAIN[1:]], None)
        increments = Increments(self.template, self.stops)
        try:
            close = increments.close()
            increments.stop(bare, last_of(tags_of(bare), 1) + 1)
        except ModelError as error:
            raise _refusal(Property.STOP, "none", str(error)) from error
        tools = [TOOL.openai()]
        tools_refused = self._words(PLAIN, tools)
        renders_tools = self._try(PLAIN, tools) not in (None, bare)
        shape = self._shape()
        calls = self._try(CALLS, None, shape)
        renders_calls = calls is not None and "book" in calls
        increments = Increments(self.template, self.stops, shape=shape)
        each_time = renders_tools and self._needs_tools(increments, tools)
        later = tools if each_time else None
        walks = [_walk(increments, trial, None, None) for trial in self._trials(increments, None, renders_calls)]
        causes = {found.cause for walk in walks for found in (*walk.bridges, *walk.rewrites)}
        if renders_tools:
            given = self._trials(increments, tools, renders_calls)
            walks += [_with_tools(_walk(increments, trial, tools, later), causes) for trial in given]
        prompts = sorted({prompt for walk in walks for prompt in walk.prompts if prompt}, key=len, reverse=True)
        shape = replace(shape, prompts=tuple(prompts))
        facts = Facts(
            close=close,
            renders_tools=renders_tools,
            renders_calls=renders_calls,
            takes_results=self._takes(CALLS if renders_calls else SPOKEN_TRIALS[0].entries[:3], None, shape),
            tools_each_time=each_time,
            keeps_prompt=all(walk.keeps_prompt for walk in walks),
            shape=shape,
            sample=bare,
        )
        return Probe(
            increments=Increments(self.template, self.stops, shape=shape),
            facts=facts,
            bridges=_by_cause([found for walk in walks for found in walk.bridges]),
            rewrites=_by_cause([found for walk in walks for found in walk.rewrites]),
            refused=self._refused(shape),
            asks_date=asks_date,
            tools_refused=tools_refused,
        )

    def _trials(self, increments: Increments, tools: Tools, renders_calls: bool) -> Iterator[Trial]:
        for trial in (*TRIALS, *(() if renders_calls else SPOKEN_TRIALS)):
            if trial.special is None or self._takes(trial.entries, tools, increments.shape):
                yield trial

    def _asks_date(self) -> bool:
        if self.template.now is not None or "strftime_now" not in self.template.text:
            return False
        return self._words(PLAIN, None) is not None

    def _render(self, entries: list[TemplateMessage], tools: Tools) -> Tracked:
        shown = tagged(entries)
        text = self.template.render(shown, tools, prompt=True)
        plain = plain_render(self.template, shown, tools, prompt=True)
        if plain != text:
            at = common_prefix(text, plain)
            raise _refusal(
                Property.TRACKED,
                "no",
                "the chat template does not render the same with its text tracked: "
                f"{text.plain[at : at + 60]!r}, plain {plain[at : at + 60]!r} (character {at})",
            )
        return text

    def _try(self, entries: list[TemplateMessage], tools: Tools, shape: Shape = PLAIN_SHAPE) -> Tracked | None:
        try:
            return self.template.render(tagged(entries, shape), tools, prompt=True)
        except ModelError:
            return None

    def _words(self, entries: list[TemplateMessage], tools: Tools) -> str | None:
        """Why the template refuses a conversation; None where it takes it."""
        try:
            self.template.render(tagged(entries), tools, prompt=True)
        except ModelError as error:
            return str(error)
        return None

    def _takes(self, entries: list[TemplateMessage], tools: Tools, shape: Shape) -> bool:
        """True where the template renders the conversation and every message can be seen in it."""
        text = self._try(entries, tools, shape)
        return text is not None and all(last_of(tags_of(text), place) >= 0 for place in range(len(entries)))

    def _shape(self) -> Shape:
        """The first way of asking in which results can be rendered behind the call that they answer."""
        shapes = [
            Shape(base_calls=base_calls, arguments_as_text=as_text, silent_calls=silent)
            for as_text in (False, True)
            for silent in (False, True)
            for base_calls in BaseCalls
        ]
        taken = [shape for shape in shapes if self._try(CALLS, None, shape) is not None]
        bridged = (shape for shape in taken if self._bridges_calls(shape))
        return next(bridged, taken[0] if taken else Shape(base_calls=BaseCalls.NONE))

    def _bridges_calls(self, shape: Shape) -> bool:
        increments = Increments(self.template, self.stops, shape=shape)
        try:
            increments.after_turn(tagged(PARALLEL[2:], shape), None)
            return not _walk(increments, Trial("calls", CALLS), None, None).bridges
        except ModelError:
            return False

    def _needs_tools(self, increments: Increments, tools: list[Any]) -> bool:
        """True where later messages are written right only with the tools given again."""
        without = _walk(increments, TRIALS[1], tools, None).bridges
        return bool(without) and not _walk(increments, TRIALS[1], tools, tools).bridges

    def _refused(self, shape: Shape) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for name, entries in SHAPES:
            try:
                text = self.template.render(tagged(entries, shape), None, prompt=True)
            except ModelError as error:
                found.append((name, str(error)))
                continue
            missing = [entry for place, entry in enumerate(entries) if last_of(tags_of(text), place) < 0]
            if missing:
                found.append((name, f"it leaves out the {missing[0]['role']} message"))
        return found


@dataclass(slots=True)
class _Walk:
    """What one conversation showed."""

    bridges: list[Difference] = field(default_factory=list[Difference])
    rewrites: list[Difference] = field(default_factory=list[Difference])
    prompts: set[str] = field(default_factory=set[str])
    keeps_prompt: bool = True


def _walk(increments: Increments, trial: Trial, tools: Tools, later: Tools) -> _Walk:
    """Follow one conversation from turn to turn."""
    walk, template = _Walk(), increments.template
    entries = tagged(trial.entries, increments.shape)
    turns = [place for place, entry in enumerate(entries) if entry["role"] == "assistant"]
    before = bare_before = ""
    for number, end in enumerate([*turns, len(entries)]):
        whole = template.render(entries[:end], tools, prompt=True)
        bare = template.render(entries[:end], tools, prompt=False)
        if whole.startswith(bare):
            walk.prompts.add(whole.plain[len(bare) :])
        if number:
            turn = turns[number - 1]
            at = increments.stop(whole, last_of(tags_of(whole), turn) + 1).end()
            made = increments.after_turn(tagged(trial.entries[turn + 1 : end], increments.shape), later).text
            if whole[at:] != made:
                walk.bridges.append(_difference(trial, made, whole[at:]))
            older = _history(increments, entries[: turn + 1], tools, turn)
            if not whole.startswith(older):
                walk.rewrites.append(_difference(trial, older, whole))
            if whole.startswith(bare_before) and not whole.startswith(before):
                walk.keeps_prompt = False
        before, bare_before = whole, bare
    return walk


def _with_tools(walk: _Walk, known: set[Cause]) -> _Walk:
    """The walk of a conversation with tools: what does not show without them is due to them."""
    for found in (walk.bridges, walk.rewrites):
        found[:] = [each if each.cause in known else replace(each, cause=Cause.TOOLS) for each in found]
    return walk


def _history(increments: Increments, entries: list[TemplateMessage], tools: Tools, turn: int) -> str:
    """The conversation up to the end of its last turn, as the template writes it while that turn is the last."""
    text = increments.template.render(entries, tools, prompt=False)
    written = last_of(tags_of(text), turn) + 1
    if not written:
        return text.plain
    try:
        return text.plain[: increments.stop(text, written).end()]
    except ModelError:
        return text.plain  # the marker of the next role will end the turn


def _difference(trial: Trial, before: str, after: str) -> Difference:
    at = common_prefix(before, after)
    shown = str(before)[at : at + 60], str(after)[at : at + 60]
    if _without_reasoning(after).startswith(_without_reasoning(before)):
        return Difference(Cause.REASONING, *shown)
    if trial.special is Cause.SYSTEM and SYSTEM_TEXT not in after:
        return Difference(Cause.OTHER, *shown)
    return Difference(trial.special or Cause.OTHER, *shown)


def _without_reasoning(text: str) -> str:
    return _REASONING.sub("", str(text))


def _by_cause(found: list[Difference]) -> list[Difference]:
    """The first difference of each cause; none that a simpler cause explains."""
    kept: dict[Cause, Difference] = {}
    for difference in found:
        kept.setdefault(difference.cause, difference)
    return [kept[Cause.OTHER]] if Cause.OTHER in kept else list(kept.values())


def _refusal(asked: Property, value: str, meaning: str) -> TemplateRefused:
    return TemplateRefused(
        TemplateFinding(about=asked, value=value, verdict=Verdict.UNSOUND, meaning=meaning, forbids=True)
    )
