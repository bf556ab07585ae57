"""A policy with the renderer that speaks for it: what a rollout is given.

A text-only endpoint has no renderer: it takes messages, its traces hold no token ids, and nothing of it trains.
"""

from __future__ import annotations

import hashlib

from rollbook.errors import UsageError
from rollbook.policy.endpoint import TextEndpoint
from rollbook.policy.protocol import Policy
from rollbook.render.protocol import Renderer
from rollbook.trace import PolicyRecord

__all__ = ["LoadedPolicy", "derive_seed", "rollout_id"]


class LoadedPolicy:
    """A policy and its renderer. ``async with`` starts the engine and frees it."""

    __slots__ = ("_renderer", "name", "policy", "text", "trainable")

    def __init__(
        self, policy: Policy, renderer: Renderer | None = None, trainable: bool = True, *, name: str | None = None
    ) -> None:
        """`renderer`: None for a text-only endpoint, and only for one; else `UsageError`. `trainable`: False where its
        tokens are never trained (a judge, an opponent). `name`: by which another process can load the same."""
        self.policy = policy
        self.name = name
        """By which another process can load the same; None where it cannot."""
        self.text = policy if isinstance(policy, TextEndpoint) else None
        """The policy, where it is a text-only endpoint."""
        if (self.text is None) == (renderer is None):
            raise UsageError("a policy needs its renderer, and a text-only endpoint has none")
        self._renderer = renderer
        self.trainable = trainable and self.text is None

    @property
    def renderer(self) -> Renderer:
        """Raises `UsageError` for a text-only endpoint (`text`), which has none."""
        if self._renderer is None:
            raise UsageError(f"{self.policy.info.name} is a text-only endpoint: it has no renderer")
        return self._renderer

    async def __aenter__(self) -> LoadedPolicy:
        await self.policy.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.policy.close()

    def record(self) -> PolicyRecord:
        """The row for a trace's policy table."""
        info = self.policy.info
        if self.text is not None:
            return PolicyRecord(name=info.name, engine=info.engine, trainable=False)
        renderer = self.renderer.info
        return PolicyRecord(
            name=info.name,
            engine=info.engine,
            tokenizer_hash=renderer.tokenizer_hash,
            template_hash=renderer.template_hash,
            weights_hash=info.weights_hash,
            trainable=self.trainable,
            tool_prompt=renderer.tool_prompt,
            template_findings=renderer.findings,
            template_settings=dict(renderer.settings),
        )


def derive_seed(*parts: int | str) -> int:
    """A seed in [0, 2**31) that depends on all parts: the same parts give the same seed, on every machine."""
    text = "\x1f".join(str(part) for part in parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") & 0x7FFF_FFFF


def rollout_id(group: str, member: int, attempt: int) -> str:
    """Unique within a run, as the group's id is."""
    return f"{group}-{member}" + (f".{attempt}" if attempt else "")
