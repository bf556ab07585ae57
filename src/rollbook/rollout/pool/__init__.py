"""The pool: orders, the books of groups, workers, and the scheduler over them."""

from rollbook.rollout.pool.book import GROUP_CLOSED, LATE, Actions, Closed, GroupBook
from rollbook.rollout.pool.local_worker import (
    DiedLoading,
    KeepingSink,
    LocalWorker,
    NotTaken,
    Result,
    Worker,
    WorkerLost,
    salvaged,
)
from rollbook.rollout.pool.orders import EnvFactory, GroupPlan, GroupRules, Order
from rollbook.rollout.pool.process import ProcessWorker
from rollbook.rollout.pool.scheduler import Executor, Listener, NextGroup, Scheduler
from rollbook.rollout.pool.serving import OpenWorker, serve
from rollbook.rollout.pool.worker_pool import Recover, WorkerPool, WorkersDie

__all__ = [
    "GROUP_CLOSED",
    "LATE",
    "Actions",
    "Closed",
    "DiedLoading",
    "EnvFactory",
    "Executor",
    "GroupBook",
    "GroupPlan",
    "GroupRules",
    "KeepingSink",
    "Listener",
    "LocalWorker",
    "NextGroup",
    "NotTaken",
    "OpenWorker",
    "Order",
    "ProcessWorker",
    "Recover",
    "Result",
    "Scheduler",
    "Worker",
    "WorkerLost",
    "WorkerPool",
    "WorkersDie",
    "salvaged",
    "serve",
]
