"""Registrations: what is kept with an operation, who may change it, and when it goes, row by row."""

from __future__ import annotations

import gc
import pathlib
import pickle
from collections.abc import Callable, Iterator

import pytest

import rota


@pytest.fixture
def repo(directory: pathlib.Path) -> Iterator[rota.Repository]:
    with rota.open(directory / "r", capacity="4 MiB", durability="none") as found:
        yield found


def reopened(repo: rota.Repository) -> rota.Repository:
    repo.close()
    return rota.open(repo.path, create=False, durability="none")


# --- register ---------------------------------------------------------------------------------------------------------


def test_the_first_registration_knows_nothing(repo: rota.Repository) -> None:
    registration = repo.queue("q").register("teller")
    assert registration.last is None
    assert registration.epoch == 1 and registration.lsn > 0 and registration.stable


def test_registering_again_returns_the_record_and_resets_nothing(repo: rota.Repository) -> None:
    first = repo.queue("q").register("teller")
    receipt = first.put(b"body", tag=b"42")
    before = first.lsn
    again = repo.queue("q").register("teller")
    assert again.last is not None and again.last[:3] == ("put", receipt.id, b"42")
    assert again.lsn == before == receipt.lsn and again.epoch == first.epoch
    with reopened(repo) as later:
        found = later.queue("q").register("teller").last
        assert found is not None and found[:3] == ("put", receipt.id, b"42")


def test_a_volatile_registration_does_not_survive_the_last_process(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.register("volatile", stable=False).put(b"v", tag=b"v")
    queue.register("stable").put(b"s", tag=b"s")
    assert {found.name: found.stable for found in repo.registrations()} == {"volatile": False, "stable": True}
    with reopened(repo) as later:
        assert [found.name for found in later.registrations()] == ["stable"]
        assert later.queue("q").register("volatile", stable=False).last is None


def test_a_volatile_registration_becomes_stable_and_keeps_what_it_has(repo: rota.Repository) -> None:
    repo.queue("q").register("r", stable=False).put(b"v", tag=b"v")
    raised = repo.queue("q").register("r", stable=True)
    assert raised.stable and raised.last is not None and raised.last.tag == b"v"
    assert repo.queue("q").register("r", stable=False).stable
    with reopened(repo) as later:
        last = later.queue("q").register("r").last
        assert last is not None and last.tag == b"v"


@pytest.mark.parametrize("name", ["é", "x" * 255, b"\xff\x00", b"b" * 255, "/"], ids=repr)
def test_names_are_text_or_bytes(repo: rota.Repository, name: str | bytes) -> None:
    registration = repo.queue("q").register(name)
    registration.put(b"", tag=b"t")
    [listed] = repo.registrations("q")
    assert listed.name == (name if isinstance(name, str) or b"\xff" in name else name.decode())
    assert listed.key == registration.key and listed.last == registration.last


@pytest.mark.parametrize("name", ["", "x" * 256, b"", b"x" * 256], ids=["empty", "long", "no bytes", "many bytes"])
def test_impossible_names_are_refused(repo: rota.Repository, name: str | bytes) -> None:
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        repo.queue("q").register(name)


# --- tags -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 3700, 3721, 3975, 4096, 4608])
def test_a_tag_is_any_bytes(repo: rota.Repository, length: int, seed: int) -> None:
    tag = bytes((seed + 7 * index) & 255 for index in range(length))
    registration = repo.queue("q").register("n" * 255)
    for used in (b"short", tag, tag[: length // 2], tag):
        registration.put(b"x", tag=used)
        assert registration.last is not None and registration.last.tag == used
    with reopened(repo) as later:
        last = later.queue("q").register("n" * 255).last
        assert last is not None and last.tag == tag


def test_a_tag_has_a_limit(repo: rota.Repository) -> None:
    registration = repo.queue("q").register("r")
    with pytest.raises(ValueError, match="4608"):
        registration.put(b"", tag=b"x" * 4609)
    with repo.transaction() as transaction, pytest.raises(ValueError, match="4608"):
        transaction.tag(registration, b"x" * 4609)
    assert registration.last is None and len(repo.queue("q")) == 0


def test_a_tagged_get_takes_and_tells(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    receipt = queue.put(b"body", key="k", headers={"h": 1})
    registration = queue.register("r")
    message = registration.get(tag=b"t")
    assert (message.body, message.key, message.headers, message.id) == (b"body", "k", {"h": 1}, receipt.id)
    assert message.settled and len(queue) == 0 and queue.stats().acks == 1
    assert registration.last is not None and registration.last[:3] == ("get", receipt.id, b"t")
    with pytest.raises(rota.Empty):
        registration.get(timeout=0)


def test_an_untagged_operation_leaves_the_record_alone(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    registration = queue.register("r")
    registration.put(b"1", tag=b"one")
    before, lsn = registration.last, registration.lsn
    queue.put(b"2")
    queue.get().ack()
    with repo.transaction() as transaction:
        transaction.put(queue, b"3")
    assert registration.last == before and registration.lsn == lsn


def test_an_abort_restores_the_former_record(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    registration = queue.register("r")
    registration.put(b"1", tag=b"one")
    before = registration.last, registration.lsn
    with pytest.raises(KeyError), repo.transaction() as transaction:  # noqa: PT012
        message = transaction.get(queue)
        transaction.tag(registration, b"two", of=message)
        raise KeyError
    assert (registration.last, registration.lsn) == before and queue.qsize() == 1


def test_a_transaction_tags_each_of_its_operations(repo: rota.Repository) -> None:
    requests, replies = repo.queue("requests"), repo.queue("replies")
    request = requests.put(b"request")
    server, client, third = requests.register("server"), replies.register("client"), replies.register("third")
    with repo.transaction() as transaction:
        message = transaction.get(requests)
        replied = transaction.put(replies, b"reply")
        transaction.put(replies, b"another")
        transaction.tag(server, b"old", of=replied)
        transaction.tag(server, b"s", of=message)
        transaction.tag(client, b"c", of=replied)
        transaction.tag(third, b"t")
    assert server.last is not None and server.last[:3] == ("get", request.id, b"s")
    assert client.last is not None and client.last[:3] == ("put", replied.id, b"c")
    assert third.last is not None and third.last[:3] == ("put", replied.id and replied.id + 1, b"t")


def test_a_tag_of_a_message_of_a_batch_or_of_one_given_to_ack(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put_many([b"1", b"2", b"3"])
    one, other = queue.register("one"), queue.register("other")
    outside = queue.get()
    with repo.transaction() as transaction:
        batch = transaction.get_many(queue, 2)
        transaction.ack(outside)
        transaction.tag(one, b"1", of=batch[1])
        transaction.tag(other, b"2", of=outside)
    assert one.last is not None and one.last.id == batch.ids[1]
    assert other.last is not None and other.last.id == outside.id


def test_a_tag_of_what_is_not_in_the_transaction_is_refused(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    queue.put_many([b"1", b"2"])
    registration = queue.register("r")
    outside = queue.get()
    with repo.transaction() as transaction, repo.transaction() as another:
        with pytest.raises(rota.StateError):
            transaction.tag(registration, b"", of=outside)
        with pytest.raises(rota.StateError):
            transaction.tag(registration, b"", of=another.put(queue, b""))


def test_a_tag_that_is_the_whole_transaction(repo: rota.Repository) -> None:
    registration = repo.queue("q").register("r")
    with repo.transaction() as transaction:
        transaction.tag(registration, b"only")
    assert registration.last is not None and registration.last[:3] == ("get", None, b"only")


# --- register and deregister in a transaction -------------------------------------------------------------------------


def test_a_client_leaves_both_queues_or_none(repo: rota.Repository) -> None:
    both = [repo.queue(name).register("client") for name in ("requests", "replies")]
    with pytest.raises(KeyError), repo.transaction() as transaction:  # noqa: PT012
        for registration in both:
            transaction.deregister(registration)
        raise KeyError
    assert len(repo.registrations()) == 2
    with repo.transaction() as transaction:
        for registration in both:
            transaction.tag(registration, b"last")
            transaction.deregister(registration)
            with pytest.raises(rota.StateError):
                transaction.tag(registration, b"later")
            with pytest.raises(rota.StateError):
                transaction.register(registration)
    assert repo.registrations() == []


def test_a_transaction_registers_and_tags(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    with repo.transaction() as transaction:
        registration = transaction.register(queue, "new")
        pending = transaction.put(queue, b"x")
        transaction.tag(registration, b"first", of=pending)
        assert repo.registrations() == []
    assert registration.last is not None and registration.last[:3] == ("put", pending.id, b"first")
    with repo.transaction() as transaction:
        transaction.register(registration)
        transaction.register(queue, b"other", stable=False)
    assert registration.last is not None and registration.last.tag == b"first"
    assert [found.name for found in repo.registrations(queue)] == ["new", "other"]


def test_deregister_destroys_the_record_and_a_second_call_does_nothing(repo: rota.Repository) -> None:
    registration = repo.queue("q").register("r")
    registration.put(b"x", tag=b"t" * 4608)
    registration.deregister()
    registration.deregister()
    with pytest.raises(rota.NotFound):
        _ = registration.last
    with pytest.raises(rota.NotFound):
        registration.put(b"x")
    assert repo.queue("q").register("r").last is None and len(repo.queue("q")) == 1


def test_deregister_with_an_open_transaction_of_the_handle_is_refused(repo: rota.Repository) -> None:
    registration = repo.queue("q").register("r")
    transaction = repo.transaction()
    transaction.tag(registration, b"t")
    with pytest.raises(rota.StateError):
        registration.deregister()
    transaction.rollback()
    registration.deregister()
    kept = repo.queue("q").register("r")
    forgotten = repo.transaction()
    forgotten.tag(kept, b"t")
    del forgotten
    gc.collect()
    kept.deregister()
    assert repo.registrations() == []


def test_registrations_go_with_their_queue(repo: rota.Repository) -> None:
    for name in ("a", "b"):
        for index in range(40):
            repo.queue(name).register(f"r{index}").put(b"", tag=bytes(4000))
    old = repo.queue("a").register("r1")
    repo.destroy("a", force=True)
    assert {found.queue_name for found in repo.registrations()} == {"b"}
    with pytest.raises(rota.NotFound):
        _ = old.last
    again = repo.queue("a")
    assert repo.registrations(again) == []
    with pytest.raises(rota.NotFound):
        old.put(b"x")
    again.register("r1")
    with reopened(repo) as later:
        assert len(later.registrations("b")) == 40
        assert [(found.name, found.last) for found in later.registrations("a")] == [("r1", None)]


# --- who may change it ------------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[rota.Repository, rota.Registration], object]] = {
    "put": lambda repo, old: old.put(b"x", tag=b"x"),
    "get": lambda repo, old: old.get(tag=b"x", timeout=0),
    "deregister": lambda repo, old: old.deregister(),
    "transaction.tag": lambda repo, old: tagged(repo, old),
    "transaction.deregister": lambda repo, old: forgotten(repo, old),
}


def tagged(repo: rota.Repository, registration: rota.Registration, lsn: int = 0) -> None:
    with repo.transaction() as transaction:
        transaction.put(registration.queue, b"y")
        transaction.tag(registration, b"y", expected_lsn=lsn)


def forgotten(repo: rota.Repository, registration: rota.Registration) -> None:
    with repo.transaction() as transaction:
        transaction.put(registration.queue, b"y")
        transaction.deregister(registration)


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_younger_connection_fences_the_older_one(repo: rota.Repository, change: str) -> None:
    queue = repo.queue("q")
    queue.put(b"waits")
    old = queue.register("clerk")
    [young] = repo._renew([(queue, "clerk")])
    assert young.epoch == old.epoch + 1
    before = young.last, young.lsn
    with pytest.raises(rota.StaleClerk) as caught:
        CHANGES[change](repo, old)
    assert (caught.value.expected, caught.value.found) == (old.epoch, young.epoch)
    assert (young.last, young.lsn) == before and queue.qsize() == 1
    assert queue.get().attempts == 1  # what was taken for it came back uncounted
    young.put(b"goes on", tag=b"t")
    moved = pickle.loads(pickle.dumps(old))
    with moved.repository, pytest.raises(rota.StaleClerk):
        CHANGES[change](moved.repository, moved)


def test_a_handle_of_a_former_registration_is_stale(repo: rota.Repository) -> None:
    queue = repo.queue("q")
    for _ in range(3):
        [former] = repo._renew([(queue, "clerk")])
    former.deregister()
    queue.register("clerk")
    with pytest.raises(rota.StaleClerk):
        former.put(b"x")


def test_renew_raises_all_epochs_or_none(repo: rota.Repository) -> None:
    requests, replies = repo.queue("requests"), repo.queue("replies")
    repo._renew([(requests, "clerk")])
    both = repo._renew([(requests, "clerk"), (replies, b"clerk")])
    assert [found.epoch for found in both] == [2, 1] and all(found.stable for found in both)
    repo.destroy("replies")
    with pytest.raises(rota.NotFound):
        repo._renew([(requests, "clerk"), (replies, b"clerk")])
    both[0].put(b"not fenced", tag=b"t")
    assert repo._renew([(requests, "clerk")])[0].epoch == 3


def test_compare_and_set(repo: rota.Repository) -> None:
    registration = repo.queue("q").register("r")
    lsn = registration.lsn
    tagged(repo, registration, lsn)
    with pytest.raises(rota.Conflict) as caught:
        tagged(repo, registration, lsn)
    assert caught.value.code == "CONFLICT" and caught.value.expected == lsn
    assert len(repo.queue("q")) == 1
    tagged(repo, registration, registration.lsn)
    assert len(repo.queue("q")) == 2


def test_a_hundred_thousand_are_listed(directory: pathlib.Path) -> None:
    count = 100_000
    with rota.open(directory / "many", capacity="1 GiB", durability="none") as repo:
        queue, other = repo.queue("many"), repo.queue("other")
        for start in range(0, count, 1000):
            with repo.transaction() as transaction:
                for index in range(start, start + 1000):
                    transaction.register(queue, f"client-{index:06d}")
        other.register("client-000007").put(b"x", tag=b"o")
        names = [found.name for found in repo.registrations(queue)]
        assert names == [f"client-{index:06d}" for index in range(count)]
        assert len(repo.registrations()) == count + 1
        queue.register("client-000007").put(b"x", tag=b"seven")
    with rota.open(directory / "many", create=False, durability="none") as repo:
        assert len(repo.registrations()) == count + 1
        last = repo.queue("many").register("client-000007").last
        assert last is not None and last.tag == b"seven"
        repo.destroy("many", force=True)
        assert [found.name for found in repo.registrations()] == ["client-000007"]
