from typing import Any

from ray import ObjectRef

class ActorMethod:
    def remote(self, *arguments: bytes | str) -> ObjectRef[Any]: ...

class ActorHandle:
    def __getattr__(self, method: str) -> ActorMethod: ...

class ActorClass:
    def options(
        self, *, max_concurrency: int, max_restarts: int, max_task_retries: int, scheduling_strategy: str
    ) -> ActorClass: ...
    def remote(self) -> ActorHandle: ...
