"""The pool: orders, the books of groups, workers, and the scheduler over them."""

from rollbook.rollout.pool.book import LATE, Closed, GroupBook, Moves
from rollbook.rollout.pool.crew import Crew, Salvage, WorkersDie
from rollbook.rollout.pool.desk import Desk, DiedLoading, Keeping, Result, Worker, WorkerLost
from rollbook.rollout.pool.orders import EnvFactory, GroupPlan, GroupRules, Order
from rollbook.rollout.pool.process import ProcessWorker
from rollbook.rollout.pool.scheduler import Carrier, Listener, NextGroup, Scheduler
from rollbook.rollout.pool.serving import OpenDesk, serve

__all__ = [
    "LATE",
    "Carrier",
    "Closed",
    "Crew",
    "Desk",
    "DiedLoading",
    "EnvFactory",
    "GroupBook",
    "GroupPlan",
    "GroupRules",
    "Keeping",
    "Listener",
    "Moves",
    "NextGroup",
    "OpenDesk",
    "Order",
    "ProcessWorker",
    "Result",
    "Salvage",
    "Scheduler",
    "Worker",
    "WorkerLost",
    "WorkersDie",
    "serve",
]
