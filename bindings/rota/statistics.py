"""Figures of queues and repositories, as frozen dataclasses; dataclasses.asdict() makes JSON of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ProducerStatistics", "QueueStatistics", "Recovery", "RepositoryStatistics"]


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """One queue: what lies in it now, and what happened since the repository was opened by the first process.

    Counts are messages.  Now: `ready` to be taken, `delayed` until later, `claimed` by somebody, `parked` since
    they are damaged or no error queue takes them, `waiting` for an older one of their key, `total` of these.  Since
    then: `puts` (and what was moved here), `gets` (each hand-out), `acks` (by transactions and purge() too),
    `nacks` (and releases), `killed`, `expired`, `moved` (to another queue, for whatever reason).  `bytes` is about
    the size of the bodies put; `oldest_at` is seconds since the epoch (None: empty); `state` is "open" or
    "stopped"; `lease` is seconds; an option that is None is no bound.
    """

    name: str
    state: str
    ready: int
    delayed: int
    claimed: int
    parked: int
    waiting: int
    total: int
    puts: int
    gets: int
    acks: int
    nacks: int
    killed: int
    expired: int
    moved: int
    bytes: int
    oldest_at: float | None
    error_queue: str | None
    max_attempts: int | None
    max_messages: int | None
    lease: float


@dataclass(frozen=True, slots=True)
class RepositoryStatistics:
    """The repository as a whole; sizes in bytes, positions are LSNs, `sync_seconds` is the total time of all syncs.

    `messages` are not settled yet, in all queues; `unreadable` ones of them the last making of room met, whose
    bytes are damaged; `commits` counts what the first open replayed too.  `raw_bytes` and `compressed_bytes`
    compare compressed batches with their bodies.  `processes` are the pids attached; `owner_deaths` counts holders
    of the lock that died in it, `reaped_claims` claims taken from dead processes. `failed`: a sync failed, and all
    must reopen.
    """

    path: str
    capacity: int
    segment_size: int
    segments: int
    free_segments: int
    tail_lsn: int
    durable_lsn: int
    next_id: int
    epoch: int
    commits: int
    messages: int
    stored_bytes: int
    raw_bytes: int
    compressed_bytes: int
    syncs: int
    sync_seconds: float
    processes: tuple[int, ...]
    owner_deaths: int
    reaped_claims: int
    checkpoints: int
    failed: bool
    unreadable: int
    queues: tuple[QueueStatistics, ...]


@dataclass(frozen=True, slots=True)
class Recovery:
    """What the open found: `performed` when it rebuilt the control file, `clean` when the last close was orderly.

    The scan began at `begin_lsn`; the log goes on at `cut_lsn`; `torn_bytes` lay behind it and were cut; everything
    below `proven_lsn` was proven durable.  `elapsed` is seconds; `case` the row of the recovery table.
    """

    performed: bool
    clean: bool
    begin_lsn: int
    cut_lsn: int
    proven_lsn: int
    scanned_bytes: int
    commits: int
    messages: int
    torn_bytes: int
    elapsed: float
    reaped_claims: int
    epoch: int
    case: int


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """One producer, in messages since it was made.

    `accepted` by put(); `cached` now, only in memory (`cached_bytes` of bodies and keys); `written` to the log in
    `batches` commits; `dropped` and `rejected` for want of room; `failed` with an error that the receipt tells;
    `spilled` to the log unprocessed (not counted as accepted).
    """

    accepted: int
    cached: int
    cached_bytes: int
    written: int
    batches: int
    dropped: int
    rejected: int
    failed: int
    spilled: int


@dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """Figures of a coordinator: how many keys are in use (`live`) and what was told to those who asked since it began.

    `accepted`, `blocked`, `declined` are answers to enqueues; `evicted` heads whose time was over, `died` those whose
    process ended; `memory_bytes` is what the table of keys takes.
    """

    live: int
    capacity: int
    accepted: int
    blocked: int
    declined: int
    evicted: int
    died: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class RepeatShares:
    """How soon the keys of a stream came again, as shares of its requests (0 to 1), from `RepeatProfile.shares()`.

    `none`: the last request of its key; `high`: the next one came within the queue length; `sparse`: later.  `saved`:
    what a Coordinator would have declined.  `distinct`, different keys, is estimated within 1 %.
    """

    requests: int
    distinct: int
    none: float
    sparse: float
    high: float
    saved: float
