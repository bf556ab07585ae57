"""What a chat template does that a trainer must know, one typed finding for each property.

A finding is `sound` where the tokens of a rollout are what the template would give, `differs` where they are sound
under ``keep`` but not what the template would write of the same history, and `unsound` where training on them would
be wrong. A renderer refuses a template with a finding that forbids it; it never papers over one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from rollbook.errors import ModelError

__all__ = ["Property", "TemplateFinding", "TemplateRefused", "TemplateReport", "Verdict"]


class Property(StrEnum):
    """What is looked at."""

    TRACKED = "tracked"
    """Whether the text with its origin tracked is the text that plain Jinja gives."""
    STOP = "stop"
    """Who ends an assistant's turn: a token of its own, or the marker of the next role."""
    SEPARATOR = "separator"
    """What the template writes between the end of a turn and the next message."""
    BRIDGE = "bridge"
    """Whether what is written for new messages depends on more than the turn before them."""
    APPEND_ONLY = "append_only"
    """Whether later renderings only append to earlier ones."""
    PROMPT = "prompt"
    """The generation prompt, and whether it opens a reasoning block."""
    REASONING = "reasoning"
    """What becomes of the reasoning of earlier turns."""
    SYSTEM = "system"
    """Default system text, and where the system message goes."""
    DATE = "date"
    """Whether the template asks for today's date."""
    TOOLS = "tools"
    """Whether tools are rendered, and where."""
    CALLS = "calls"
    """How the template writes tool calls, and with that the form in which replies are read."""
    ARGUMENTS = "arguments"
    """In which form a call's arguments are given to the template, and how it spells them."""
    RESULTS = "results"
    """How several results of one turn are put together."""
    SHAPES = "shapes"
    """Conversations that the template refuses."""
    CONTENT = "content"
    """Whether messages are written as they were given."""
    TOKENS = "tokens"
    """Whether text in pieces gives the tokens of the whole."""
    BOS = "bos"
    """How often a conversation begins with the begin-of-sequence token."""
    CONTROL = "control"
    """Whether content can make control tokens."""


class Verdict(StrEnum):
    """What a finding means for training."""

    SOUND = "sound"
    """Nothing to mind."""
    DIFFERS = "differs"
    """The tokens of a rollout are sound, but not those of the template's own rendering of the whole history."""
    UNSOUND = "unsound"
    """Training on such tokens would be wrong."""


class TemplateFinding(msgspec.Struct, frozen=True, kw_only=True, rename={"about": "property"}):
    """One property of one template."""

    about: Property
    value: str
    """In few words: ``dropped``, ``<|im_end|>``."""
    verdict: Verdict = Verdict.SOUND
    meaning: str
    """What a trainer sees of it."""
    example: str = ""
    """Text that shows it; empty where there is none."""
    forbids: bool = False
    """True where no renderer is built because of it."""

    @property
    def label(self) -> str:
        """For the record: ``reasoning=dropped``."""
        return f"{self.about}={self.value}"


class TemplateRefused(ModelError):
    """The template cannot be used, and the finding that forbids it."""

    def __init__(self, finding: TemplateFinding) -> None:
        super().__init__(finding.meaning)
        self.finding = finding


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """All findings of one template."""

    name: str
    template_hash: str
    """sha256 of the template's text in hex."""
    findings: tuple[TemplateFinding, ...]

    @property
    def sound(self) -> bool:
        """True where no finding makes training unsound."""
        return all(finding.verdict is not Verdict.UNSOUND for finding in self.findings)

    @property
    def forbidding(self) -> TemplateFinding | None:
        """The first finding because of which no renderer is built; None: one is."""
        return next((finding for finding in self.findings if finding.forbids), None)

    def get(self, asked: Property) -> TemplateFinding | None:
        """The finding for one property; None where it could not be looked at."""
        return next((finding for finding in self.findings if finding.about is asked), None)

    @property
    def labels(self) -> tuple[str, ...]:
        """What a trainer must know, for the record: the labels of all findings that are not sound."""
        return tuple(finding.label for finding in self.findings if finding.verdict is not Verdict.SOUND)
