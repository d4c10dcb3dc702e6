"""Orders with payment and shipping, as a saga, by processes that are killed at random; the books balance at the end.

    clerks     each customer orders; an order reserves an item, takes its price, ships it
    servers    two processes at a time; every now and then one is killed with SIGKILL and replaced
    books      every move of items and money is a message, put by the commit of the step that makes it

Some orders fail: the stock is gone, the card is refused, the address does not exist. Some are cancelled while they are
under way. What they did until then is undone. At the end the moves are added up: nothing was sold that was not paid, no
money is left of an order that was not shipped, each customer has the answer that the books say. Exit code 1 when
anything differs.

Nothing is written outside a temporary directory.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import multiprocessing.connection
import pathlib
import random
import sys
import tempfile
import time
from collections import Counter
from typing import Any

import rota

PRICE = 7
OPTIONS: dict[str, Any] = {"capacity": "16 MiB", "durability": "none"}
PATIENCE_SECONDS = 60.0
KILL_EVERY_SECONDS = 0.1
orders = rota.SagaPlan("orders", max_attempts=1000)  # here a death is nobody's fault


def move(step: rota.SagaStep, what: str, amount: int) -> None:
    """Write into the books, in the commit of the step."""
    books = step.repository.queue("books")
    step.transaction.put(books, b"%d" % amount, key=step.id, headers={"what": what})


def put_back(step: rota.SagaStep) -> None:
    """Undo of reserve."""
    step.transaction.put(step.repository.queue("stock"), step.body)
    move(step, "items", 1)


@orders.step("reserve", undo=put_back)
def reserve(step: rota.SagaStep) -> None:
    """Take one item: it is a message of the queue stock."""
    try:
        item = step.transaction.get(step.repository.queue("stock"))
    except rota.Empty:
        raise rota.Refused("sold out") from None
    step.undo_with(item.body)
    move(step, "items", -1)


def pay_back(step: rota.SagaStep) -> None:
    """Undo of pay: as much as was taken."""
    move(step, "money", -int(step.body))


@orders.step("pay", undo=pay_back)
def pay(step: rota.SagaStep) -> None:
    """Take the price."""
    if b"bad card" in step.body:
        raise rota.Refused("the card is refused")
    step.undo_with(b"%d" % PRICE)
    move(step, "money", PRICE)


@orders.step("ship")
def ship(step: rota.SagaStep) -> bytes:
    """Send it off: the last step, after which there is no way back."""
    if b"no such street" in step.body:
        raise rota.Refused("the address does not exist")
    move(step, "shipped", 1)
    return b"on its way"


def serve(path: str) -> None:
    """A server process, until it is killed."""
    with rota.open(path, **OPTIONS) as repo:
        orders.server(repo, threads=2, backoff=rota.Backoff(first=0.01)).run()


class Servers:
    """Processes that serve, some of which are killed."""

    def __init__(self, path: str, count: int, chance: random.Random) -> None:
        self.path, self.chance, self.killed = path, chance, 0
        self.context = multiprocessing.get_context("spawn")
        self.running = [self.start() for _ in range(count)]
        self.next_kill = time.monotonic() + KILL_EVERY_SECONDS

    def start(self) -> multiprocessing.process.BaseProcess:
        """One more."""
        process = self.context.Process(target=serve, args=(self.path,), daemon=True)
        process.start()
        return process

    def disturb(self) -> None:
        """Kill one, when it is time, and start another in its place."""
        if time.monotonic() < self.next_kill:
            return
        victim = self.running.pop(self.chance.randrange(len(self.running)))
        victim.kill()
        victim.join()
        self.killed += 1
        self.running.append(self.start())
        self.next_kill = time.monotonic() + self.chance.uniform(0.5, 1.5) * KILL_EVERY_SECONDS

    def stop(self) -> None:
        """End all of them."""
        for process in self.running:
            process.kill()
            process.join()


def order(repo: rota.Repository, count: int, chance: random.Random, servers: Servers) -> dict[str, rota.Reply]:
    """Send all orders, cancel some, and wait for all answers: by saga."""
    wishes = ["please"] * 6 + ["bad card", "no such street"]
    clerk = repo.clerk("customer", requests="orders", window=16)
    clerk.connect()
    answers: dict[str, rota.Reply] = {}
    sent, until = 0, time.monotonic() + PATIENCE_SECONDS
    while len(answers) < count:
        while sent < count and len(clerk.outstanding) < clerk.window:
            clerk.send(chance.choice(wishes).encode())
            sent += 1
        servers.disturb()
        if chance.random() < 0.2:
            with contextlib.suppress(rota.NotFound):  # it has not begun
                repo.saga(orders.id_of(clerk.client, chance.choice(clerk.outstanding))).cancel()
        try:
            reply = clerk.receive(timeout=0.02)
            answers[orders.id_of(clerk.client, reply.rid)] = reply
        except rota.Empty:
            if time.monotonic() > until:
                raise
    return answers


def differences(repo: rota.Repository, answers: dict[str, rota.Reply], stock: int) -> list[str]:
    """What does not balance."""
    found = []
    books: dict[str, Counter[str]] = {saga: Counter() for saga in answers}
    for entry in repo.queue("books").browse():
        name = entry.key if isinstance(entry.key, str) else (entry.key or b"").decode()
        books.setdefault(name, Counter())[str(entry.headers["what"])] += int(entry.body)
    for saga, sums in books.items():
        shipped = saga in answers and answers[saga].status == "ok"
        wanted = Counter(items=-1, money=PRICE, shipped=1) if shipped else Counter()
        if sums != wanted:
            found.append(f"{saga}: the books say {dict(sums)}, the answer {answers.get(saga)}")
    sold = sum(sums["shipped"] for sums in books.values())
    if len(repo.queue("stock")) + sold != stock:
        found.append(f"{stock} items, {sold} sold, {len(repo.queue('stock'))} left")
    for saga, reply in answers.items():
        state = repo.saga(saga).state
        if state != ("done" if reply.status == "ok" else reply.status):
            found.append(f"{saga} is {state}, the answer {reply.status}")
    return found


def main() -> int:
    """Run it, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--orders", type=int, default=200, help="how many (200)")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn by chance (1)")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    stock = options.orders // 2
    with tempfile.TemporaryDirectory() as directory:
        path = str(pathlib.Path(directory) / "repository")
        with rota.open(path, **OPTIONS) as repo:
            repo.queue("orders", max_attempts=None)
            repo.queue("stock", max_attempts=None).put_many([b"item %d" % number for number in range(stock)])
            servers = Servers(path, 2, chance)
            try:
                answers = order(repo, options.orders, chance, servers)
            finally:
                servers.stop()
            wrong = differences(repo, answers, stock)
    tally = Counter(reply.status for reply in answers.values())
    print(f"{len(answers)} orders: {tally['ok']} shipped, {tally['failed']} failed, {tally['cancelled']} cancelled")
    print(f"{servers.killed} servers were killed")
    print("\n".join(wrong) if wrong else "the books balance: nothing lost, nothing twice")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
