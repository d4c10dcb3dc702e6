"""rota: an embedded, durable queue engine.  A repository is a directory; open it and put.

    import rota

    with rota.open("var/requests") as repo:
        orders = repo.queue("orders")
        orders.put(b"two tickets, row 7")
        with orders.get() as message:
            print(message.body)

Layers: `rota._core` (compiled: the log and what owns it) under the modules of this package.  Linux only for now.
"""

from __future__ import annotations

from rota._core.batch import Batch as Batch
from rota._core.message import Message as Message
from rota._core.put import Receipt as Receipt
from rota._core.queue import Queue as Queue
from rota._core.transaction import PendingReceipt as PendingReceipt
from rota._core.transaction import Transaction as Transaction
from rota.errors import *  # noqa: F403
from rota.errors import RotaError as RotaError
from rota.registration import LastOperation as LastOperation
from rota.registration import Registration as Registration
from rota.repository import Repository as Repository
from rota.repository import open as open
from rota.statistics import QueueStatistics as QueueStatistics
from rota.statistics import Recovery as Recovery
from rota.statistics import RepositoryStatistics as RepositoryStatistics

__version__ = "0.1.0"
