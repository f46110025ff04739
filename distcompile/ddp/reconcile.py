"""What ranks tell each other at the start of a synchronised backward, and how they find one plan if they differ.

In: the words that each rank put into the gate. Out: nothing, a plan that all ranks have adopted, or a named error, the
same on all ranks, since all decide by the same rows.
The first three words must be equal: plan, round, forward. Rounds or forwards that differ mean that a rank skipped a
backward. Plans may differ: a rank ran eager what another compiled, or ranks compiled for batches of different length
and planned differently. Then plans are exchanged over the control channel, and all take the newest; of equally new
ones the lowest rank's. The other words are for judgement after the gate has passed: exact graphs are compared if all
ranks compiled whole calls and their inputs have equal sizes (x / 4 becomes x * 0.25 and x / 3 does not; what comes
after a graph break may depend on data); parameters, if a rank may have stepped alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collectives.work import Rows
from compiler_core import log
from distcompile.ddp.agreement import raise_disagreement
from distcompile.ddp.bucket_plan import BucketPlan
from distcompile.ddp.errors import LedgerError, RankDisagreementError
from distcompile.ddp.layout import Version

if TYPE_CHECKING:
    from distcompile.ddp.books import Books, Fingerprint

AGREE = 3  # words that must be equal: plan, round, forward
PLAN, ROUND, FORWARD, SIZES, GRAPH, FLAGS = range(6)
COMPILED, MAY_HAVE_STEPPED = 1, 2  # flags
WORD_MASK = (1 << 63) - 1


def words_of(books: Books) -> tuple[int, ...]:
    """This rank's words."""
    flags = COMPILED * bool(books.used)
    if books.ledger.local and books.ledger.may_have_stepped(books.parameters):
        flags |= MAY_HAVE_STEPPED
    sizes, graph = _digest(books.used, lambda f: f.sizes), _digest(books.used, lambda f: f.graph)
    return books.layout.word, books.round, books.forwards, sizes, graph, flags


def _digest(used: Sequence[Fingerprint], key: Callable[[Fingerprint], int]) -> int:
    """One number for the calls that no gate has told of; mostly there is one."""
    if len(used) == 1:
        return key(used[0])
    return hash(tuple(map(key, used))) & WORD_MASK


def judge(books: Books, rows: Rows, checked: Sequence[Fingerprint]) -> None:
    """The gate has passed. Raises RankDisagreementError or LedgerError on all ranks for what must not differ either."""
    first = rows[0][AGREE:]
    if first[FLAGS - AGREE] <= COMPILED and all(row[AGREE:] == first for row in rows):
        return
    if any(row[FLAGS] & MAY_HAVE_STEPPED for row in rows):
        books.ledger.compare_parameters(books.parameters)
    is_comparable = all(row[FLAGS] & COMPILED and row[SIZES] == rows[0][SIZES] for row in rows)
    if is_comparable and any(row[GRAPH] != rows[0][GRAPH] for row in rows):
        subjects = [subject for fingerprint in checked for subject in fingerprint.subjects]
        raise_disagreement(books.communicator, subjects, label=f"backward {books.round}")


@dataclass(frozen=True, slots=True)
class Offer:
    """A rank's plan, and what it was doing."""

    instance: int
    version: Version
    plan: BucketPlan
    is_compiled: bool


def reconcile(books: Books, rows: Rows, *, is_compiled: bool) -> None:
    """The gate has not passed: have all ranks adopt one plan, or raise a named error on all of them."""
    _check_same_step(books, rows)
    offers = books.communicator.all_gather_object(
        Offer(books.instance, books.layout.version, books.layout.plan, is_compiled)
    )
    choose_plan(books, offers)
    compiled = [offer.is_compiled for offer in offers]
    if any(compiled) and not all(compiled):
        log.warn_once(
            f"ddp: mixed {books.instance}",
            f"rank(s) {_ranks(compiled, False)} ran a step eager that rank(s) {_ranks(compiled, True)} ran compiled: "
            "its gradients were reduced after the backward; from the next step on all ranks use one plan",
        )


def choose_plan(books: Books, offers: Sequence[Offer]) -> None:
    """Adopt the newest plan among the ranks' offers; of equally new ones, the lowest rank's.

    Raises LedgerError if ranks are in different instances, RankDisagreementError if they train different parameters.
    """
    instances = [offer.instance for offer in offers]
    if len(set(instances)) > 1:
        raise LedgerError(
            "ranks are in the backwards of different DistributedDataParallel instances",
            where=f"rank {books.communicator.rank}",
            got=", ".join(f"rank {r}: instance {i}" for r, i in enumerate(instances)),
            remedy="call the instances, and their backwards, in the same order on every rank",
        )
    trained = [frozenset(offer.plan.names) for offer in offers]
    if len(set(trained)) > 1:
        differing = sorted(frozenset.union(*trained) - frozenset.intersection(*trained))
        raise RankDisagreementError(
            "ranks train different parameters",
            where=f"rank {books.communicator.rank}",
            got="; ".join(
                f"{name!r} on rank(s) {[r for r, names in enumerate(trained) if name in names]} only"
                for name in differing[:4]
            ),
            remedy="freeze and unfreeze (requires_grad_) the same parameters on every rank, before the same step",
        )
    newest = max(offers, key=lambda offer: offer.version)
    log.emit("ddp", f"ranks adopt, version {newest.version}: {newest.plan}")
    books.adopt(newest.plan, newest.version)


def _check_same_step(books: Books, rows: Rows) -> None:
    """Raise LedgerError if ranks are in different backwards."""
    if len({row[ROUND:AGREE] for row in rows}) == 1:
        return
    sides: dict[tuple[int, ...], list[int]] = {}
    for rank, row in enumerate(rows):
        sides.setdefault(row[ROUND:AGREE], []).append(rank)
    raise LedgerError(
        "ranks met in the backwards of different steps",
        where=f"rank {books.communicator.rank}",
        expected="the same training forward and the same synchronised backward on every rank",
        got="; ".join(
            f"rank(s) {ranks}: backward {round_number}, of training forward {forward}"
            for (round_number, forward), ranks in sides.items()
        ),
        remedy="do not skip a backward on some ranks only (a caught exception, a continue); a forward that is not to "
        "be followed by a backward belongs into no_grad(), eval() or no_sync()",
    )


def _ranks(flags: Sequence[bool], value: bool) -> list[int]:
    return [rank for rank, flag in enumerate(flags) if flag is value]
