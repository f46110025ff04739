"""What ranks tell each other at the start of a synchronised backward, and how they find one plan if they differ.

In: the words that each rank put into the gate. Out: nothing, a plan that all ranks have adopted, or a named error, the
same on all ranks, since all decide by the same rows.
The first three words must be equal: plan, round, forward. Rounds that differ mean that a backward of a rank never met
the others'. Forwards may differ: a rank had one more, without a backward (a batch that it skipped, a look at the
model). That does no harm where all still hold the same parameters, which are compared then. Plans may differ: a rank
ran eager what another compiled, or ranks compiled for batches of different length and planned differently. Then plans
are exchanged over the control channel, and all take the newest; of equally new ones the lowest rank's. The other words
are for judgement after the gate: exact graphs are compared if it has passed, all ranks compiled whole calls and their
inputs have equal sizes (x / 4 becomes x * 0.25 and x / 3 does not; what comes after a graph break may depend on data,
and under find_unused_parameters ranks may go other ways); parameters, if a rank may have stepped alone, or has written
to them otherwise (`ledger.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collectives.work import Rows
from compiler_core import log
from distcompile.ddp.agreement import raise_disagreement
from distcompile.ddp.errors import LedgerError, RankDisagreementError
from distcompile.ddp.ledger import ROUNDING
from distcompile.ddp.plan.bucket_plan import BucketPlan
from distcompile.ddp.plan.layout import Version

if TYPE_CHECKING:
    from distcompile.ddp.books import Books, PlanFingerprint

AGREE = 3  # words that must be equal: plan, round, forward
PLAN, ROUND, FORWARD, SIZES, GRAPH, FLAGS = range(6)
COMPILED, MAY_HAVE_STEPPED, WRITTEN = 1, 2, 4  # flags
WORD_MASK = (1 << 63) - 1


def words_of(books: Books) -> tuple[int, ...]:
    """This rank's words."""
    flags = COMPILED * bool(books.used)
    if books.ledger.local and books.ledger.may_have_stepped(books.parameters):
        flags |= MAY_HAVE_STEPPED
    if books.ledger.is_written and not books.shares_by_hook:
        flags |= WRITTEN
    books.ledger.is_written = False
    sizes, graph = _digest(books.used, lambda f: f.sizes), _digest(books.used, lambda f: f.graph)
    return books.layout.word, books.round, books.forwards, sizes, graph, flags


def _digest(used: Sequence[PlanFingerprint], key: Callable[[PlanFingerprint], int]) -> int:
    """One number for the calls that no gate has told of; mostly there is one."""
    if len(used) == 1:
        return key(used[0])
    return hash(tuple(map(key, used))) & WORD_MASK


def judge(books: Books, rows: Rows, checked: Sequence[PlanFingerprint]) -> None:
    """The gate has passed. Raises RankDisagreementError or LedgerError on all ranks for what must not differ either."""
    first = rows[0][AGREE:]
    if first[FLAGS - AGREE] <= COMPILED and all(row[AGREE:] == first for row in rows):
        return
    _compare_parameters(books, rows)
    is_comparable = all(row[FLAGS] & COMPILED and row[SIZES] == rows[0][SIZES] for row in rows)
    if is_comparable and any(row[GRAPH] != rows[0][GRAPH] for row in rows):
        subjects = [subject for fingerprint in checked for subject in fingerprint.subjects]
        raise_disagreement(books.communicator, subjects, label=f"backward {books.round}")


def _compare_parameters(books: Books, rows: Rows) -> None:
    """If some rank says that parameters may differ: raise LedgerError on all ranks if they do. Collective."""
    if any(row[FLAGS] & MAY_HAVE_STEPPED for row in rows):
        books.ledger.compare_parameters(books.parameters)
    writers = [rank for rank, row in enumerate(rows) if row[FLAGS] & WRITTEN]
    if writers and books.joining is None:
        got = f"parameters that were loaded, or written to, after wrapping (on rank(s) {writers}), by other values"
        books.ledger.compare_parameters(books.parameters, got=got, allowed=ROUNDING)


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
    _count_on(books, rows)
    _compare_parameters(books, rows)
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
    if len({row[ROUND] for row in rows}) == 1 and (books.joining is None or len({row[FORWARD] for row in rows}) == 1):
        return
    raise LedgerError(
        "ranks met in the backwards of different steps",
        where=f"rank {books.communicator.rank}",
        expected="the same synchronised backward on every rank",
        got=_steps_of(rows),
        remedy="do not leave a backward half way on some ranks only (a caught exception); a forward that is not to "
        "be followed by a backward belongs into no_grad(), eval() or no_sync()",
    )


def _count_on(books: Books, rows: Rows) -> None:
    """Some ranks had more training forwards: see that no harm is done, and go on from one number. Collective.

    Raises LedgerError if ranks hold different parameters.
    """
    most = max(row[FORWARD] for row in rows)
    if any(row[FORWARD] < most for row in rows):
        books.ledger.compare_parameters(books.parameters, got=_steps_of(rows))
        books.forwards = most
        log.warn_once(
            f"ddp: more forwards {books.instance}",
            f"ranks differ in their training forwards ({_steps_of(rows)}): some had no backward. Parameters are equal, "
            "so the gradients of what each rank computed are averaged; the ranks with fewer backwards end first",
        )


def _steps_of(rows: Rows) -> str:
    """In which backward, of which forward, the ranks are."""
    sides: dict[tuple[int, ...], list[int]] = {}
    for rank, row in enumerate(rows):
        sides.setdefault(row[ROUND:AGREE], []).append(rank)
    return "; ".join(
        f"rank(s) {ranks}: backward {round_number}, of training forward {forward}"
        for (round_number, forward), ranks in sides.items()
    )


def _ranks(flags: Sequence[bool], value: bool) -> list[int]:
    return [rank for rank, flag in enumerate(flags) if flag is value]
