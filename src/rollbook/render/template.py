"""Run a model's own chat template and know, of every character of the result, whether the template wrote it.

The template is compiled as the ``transformers`` library compiles it (immutable sandbox, ``trim_blocks``,
``lstrip_blocks``, loop controls, ``{% generation %}``, ``raise_exception``, ``strftime_now``, its ``tojson``), but
with a code generator that writes every literal of the template as tracked scaffold. The text is the one that plain
Jinja gives. Rendering is bounded (size of the result, steps of `range`, repetition, powers); whatever goes wrong is
a `ModelError`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from jinja2 import Template, TemplateError, meta, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from rollbook.errors import ModelError, boundary
from rollbook.render.tracked import CONTENT, MAX_TEXT, Tracked, concat, scaffold, tags_of

__all__ = ["ChatTemplate", "plain_render"]

MAX_STEPS = 1_000_000
"""The most steps of `range` in one rendering."""
MAX_REPEAT = 1_000_000
"""The largest repetition of a string or list."""

_OWN = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "strftime_now", "raise_exception", "range"}
)
"""Names that no variable can have: it would be dropped, or change what Jinja is."""
_DICT_NAMES = frozenset(dir(dict))
_STR_NAMES = frozenset({"endswith", "lower", "lstrip", "replace", "rstrip", "split", "startswith", "strip", "upper"})
"""Methods of strings that are safe whatever they are called with; `format` is not among them."""
_LOOP_NAMES = frozenset({"first", "index", "index0", "last", "length", "nextitem", "previtem"})


class _Literals(CodeGenerator):
    """Writes each string of the template as a reference to a tracked one, made once."""

    environment: _Environment

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return self.environment.keep("".join(map(str, group)))

    def _literal(self, value: Any) -> str:
        match value:
            case str():
                return self.environment.keep(value)
            case list() | tuple():
                items = "".join(f"{self._literal(item)}, " for item in cast("Iterable[Any]", value))
                return f"[{items}]" if isinstance(value, list) else f"({items})"
            case dict():
                pairs = cast("dict[Any, Any]", value).items()
                return "{" + ", ".join(f"{self._literal(key)}: {self._literal(item)}" for key, item in pairs) + "}"
            case _:
                return repr(value)

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802 (Jinja's name; likewise below)
        self.write(self._literal(node.as_const(frame.eval_ctx)))

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:  # noqa: N802
        self.write(self.environment.keep(node.as_const(frame.eval_ctx)))

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Generation(Extension):
    """``{% generation %}`` marks what the assistant says; rendering ignores the mark."""

    tags: set[str] = {"generation"}  # noqa: RUF012 (as Jinja declares it)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(line)

    def _inside(self, caller: Callable[[], str]) -> str:
        return caller()


class _Sandbox(ImmutableSandboxedEnvironment):
    """As ``transformers`` sets it up, with repetition bounded."""

    filters: dict[str, Callable[..., Any]]
    globals: dict[str, Any]
    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise
        self.globals.pop("lipsum")
        self.filters.pop("random")  # prompts must not change with chance

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = [side for side in (left, right) if isinstance(side, int | float)]
        if len(numbers) < 2 and any(abs(number) > MAX_REPEAT for number in numbers):
            raise TemplateError(f"'{operator}' with {max(numbers)} repeats too much")
        if operator == "**" and any(abs(number) > 1000 for number in numbers):
            raise TemplateError("a power is too large")
        return super().call_binop(context, operator, left, right)


class _Environment(_Sandbox):
    """Keeps the tracked literals of one template."""

    code_generator_class = _Literals
    # Jinja declares it as a method; it takes the place of "".join
    concat = staticmethod(concat)  # pyright: ignore[reportAssignmentType, reportIncompatibleVariableOverride]

    def __init__(self) -> None:
        self.literals: list[Tracked] = []
        super().__init__()
        self.filters["join"] = _join
        self.filters["safe"] = self.filters["forceescape"] = _same

    def getattr(self, obj: Any, attribute: str) -> Any:
        """What the sandbox comes to as well, at a tenth of the time, for what templates ask most."""
        kind = cast("type[Any]", type(obj))
        if kind is dict and attribute in obj and attribute not in _DICT_NAMES:
            return obj[attribute]
        if kind is LoopContext and attribute in _LOOP_NAMES:
            return object.__getattribute__(obj, attribute)
        if issubclass(kind, str) and attribute in _STR_NAMES:
            return object.__getattribute__(obj, attribute)
        if kind is Namespace and not attribute.startswith("_"):
            try:
                return obj.__getattribute__(attribute)
            except AttributeError:
                pass  # the sandbox makes an undefined value of it
        return super().getattr(obj, attribute)

    def keep(self, text: str) -> str:
        """The source code that stands for the tracked literal `text`."""
        self.literals.append(scaffold(text))
        return f"environment.literals[{len(self.literals) - 1}]"


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter of ``transformers``: ``json.dumps``, which escapes nothing for HTML. Tracked strings keep their
    tags."""

    def dump(shown: Any) -> str:
        return json.dumps(shown, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    found: list[Tracked] = []
    _marked(value, found, "", sort_keys)
    if not found:
        return dump(value)
    plain = dump(value)
    mark = next(sign for code in range(0xF0000, 0x10FFFE) if dump(sign := chr(code))[1:-1] not in plain)
    found.clear()
    first, *rest = dump(_marked(value, found, mark, sort_keys)).split(dump(mark))
    return concat(
        [first, *(part for text, piece in zip(found, rest, strict=True) for part in (_dumped(text, dump), piece))]
    )


def _marked(value: Any, found: list[Tracked], mark: str, ordered: bool) -> Any:
    """`value` with `mark` in place of each tracked string, which goes into `found` in the order in which they will be
    written; keys are left alone."""
    match value:
        case Tracked():
            found.append(value)
            return mark
        case dict():
            items = cast("dict[Any, Any]", value).items()
            return {key: _marked(item, found, mark, ordered) for key, item in (sorted(items) if ordered else items)}
        case list() | tuple():
            return [_marked(item, found, mark, ordered) for item in cast("Iterable[Any]", value)]
        case _:
            return value


def _dumped(text: Tracked, dump: Callable[[Any], str]) -> Tracked:
    """One string as JSON; the quotes count as its first character does."""
    tags = tags_of(text)
    shown = dump(text.plain)
    if len(set(tags)) <= 1:
        return Tracked(shown, (tags[:1] or CONTENT) * len(shown))
    inner = "".join(tag * (len(dump(char)) - 2) for char, tag in zip(text.plain, tags, strict=True))
    return Tracked(shown, tags[0] + inner + tags[-1])


def _raise(message: str) -> str:
    raise TemplateError(str(message))


def _join(value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    if attribute is not None:
        raise TemplateError("join(attribute=...) is not supported; use map(attribute=...) before join")
    return Tracked(d, tags_of(d)).join(map(str, value))


def _same(value: Any) -> Any:
    return value


class _Steps:
    """`range` with one budget for a whole rendering."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def range(self, *bounds: int) -> range:
        asked = range(*bounds)
        self.left -= len(asked)
        if self.left < 0:
            raise TemplateError(f"more than {MAX_STEPS} steps of range()")
        return asked


def _date(now: datetime | None) -> Callable[[str], str]:
    def strftime_now(form: str) -> str:
        if now is None:
            raise TemplateError(
                "it asks for today's date; pass a fixed one, for prompts must not change with the clock"
            )
        return scaffold(now.strftime(form))

    return strftime_now


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """A compiled chat template. Stateless: renderings may run at once."""

    text: str
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    """``bos_token`` and the like, as the template names them."""
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further template variables, e.g. ``enable_thinking``."""
    now: datetime | None = None
    """What ``strftime_now`` tells; None: a template that asks is an error."""
    _root: Any = field(init=False, repr=False, compare=False)
    _fixed: dict[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        with boundary("the chat template does not compile", ModelError):
            object.__setattr__(self, "_root", _Environment().from_string(self.text))
        if taken := sorted(self.variables.keys() & (_OWN | self.special_tokens.keys())):
            raise ModelError(f"{', '.join(taken)}: the renderer itself gives the template what is called so")
        tokens = {name: scaffold(token) for name, token in self.special_tokens.items()}
        object.__setattr__(self, "_fixed", {**self.variables, **tokens, "strftime_now": _date(self.now)})

    @property
    def reads(self) -> frozenset[str]:
        """Names of the variables that the template reads and does not get in any case: special tokens are among
        them, and what it sets itself in one branch and reads behind it."""
        environment = _Sandbox()
        asked = meta.find_undeclared_variables(environment.parse(self.text))
        return frozenset(asked) - _OWN - environment.globals.keys()

    def render(self, messages: list[Any], tools: list[Any] | None, *, prompt: bool) -> Tracked:
        """The tracked text of `messages`, with the generation prompt if `prompt`. Raises `ModelError`."""
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt}
        pieces: list[str] = []
        size = 0
        with boundary("the chat template refuses the conversation", ModelError):
            context = self._root.new_context({"range": _Steps().range, **self._fixed, **given})
            for piece in self._root.root_render_func(context):
                size += len(piece)
                if size > MAX_TEXT:
                    raise TemplateError(f"it writes more than {MAX_TEXT} characters")
                pieces.append(piece)
            return concat(pieces)


def plain_render(template: ChatTemplate, messages: list[Any], tools: list[Any] | None, *, prompt: bool) -> str:
    """What plain Jinja gives, without tracking: the yardstick of `ChatTemplate.render`. Slow, it compiles each
    time."""
    with boundary("the chat template, run by plain Jinja", ModelError):
        variables = {**template.variables, **template.special_tokens, "strftime_now": _date(template.now)}
        given = {"messages": messages, "tools": tools, "documents": None, "add_generation_prompt": prompt}
        return _plain(template.text).render({**variables, **given})


@functools.lru_cache(maxsize=16)
def _plain(text: str) -> Template:
    return _Sandbox().from_string(text)
