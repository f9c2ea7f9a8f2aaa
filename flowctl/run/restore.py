"""`flowctl restore`: a table and its state go back to an earlier sequence number, as one act under the leases.

The target is restored first, then the state. If the process dies in between, the two do not match, so plans stop at the
table; the same command completes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from flowctl import crashpoints
from flowctl.connectors.restoration import Restorable, Restoration
from flowctl.errors import StoppedByPolicy
from flowctl.model.commit import Commit
from flowctl.observe.asking import Connections
from flowctl.plan.case import Case
from flowctl.plan.fills import columns_to_record
from flowctl.plan.planning import observe_table
from flowctl.run.adopt import with_former_definition
from flowctl.run.opening import take_table_lease
from flowctl.spec.spec import Spec, TableSpec
from flowctl.state import document as documents
from flowctl.state.changes import Difference, differences
from flowctl.state.document import StateDocument
from flowctl.state.file_log import revive_positions
from flowctl.state.former import Former, former_state
from flowctl.state.lease import Lease
from flowctl.state.runs import new_run_id
from flowctl.state.store import StateStore
from flowctl.state.streams import with_adopted


@dataclass(frozen=True)
class RestorePlan:
    """``changes`` are those of the state. ``definition`` says what the next plan will find of the definition under
    which the content was committed; empty if it is that of the spec."""

    table: TableSpec
    restoration: Restoration
    changes: tuple[Difference, ...]
    definition: str = ""

    @property
    def is_done(self) -> bool:
        return not self.restoration.changes and not self.changes


@dataclass(frozen=True)
class RestoreResult:
    """``document`` is the state afterwards; ``approved`` False: nothing was done."""

    plan: RestorePlan
    before: StateDocument
    document: StateDocument
    approved: bool


def restore(
    spec: Spec,
    table_id: str,
    seq: int,
    store: StateStore,
    lease_prefix: str,
    lock_timeout: float,
    approve: Callable[[RestorePlan], bool],
) -> RestoreResult:
    """``store`` and ``lease_prefix`` are those of the state that has the table."""
    run_id = new_run_id()
    with ExitStack() as stack:
        lease = Lease.acquire(store.blobs, prefix=lease_prefix, run_id=run_id, lock_timeout=lock_timeout)
        stack.enter_context(lease)
        connections = stack.enter_context(Connections(spec))
        before = store.read()
        _require_settled(spec, before, table_id)
        table, observed, rules = observe_table(spec, table_id)
        target = connections.target(table.target.connection)
        if not isinstance(target, Restorable):
            raise StoppedByPolicy(
                f"{table.target} keeps no earlier versions",
                hint="Restore a backup of it, then `flowctl state adopt`; tables in Delta and Iceberg can be restored",
                mark=table.mark_of("to"),
            )
        own = take_table_lease(stack, spec, run_id, table, target)
        number = max(before.table(table_id).next_seq, observed.commit.seq + 1 if observed.commit else 0)
        record = Commit(before.lineage, table_id, number, uuid.uuid4().hex, "", None)
        found = target.find_restoration(record, table.target.object, seq)
        case = Case(table, replace(observed, target=found.after, commit=found.commit), before.table(table_id), rules)
        after, definition = before, ""
        if not _is_current(before, found):
            former = former_state(store, before.lineage, found.origins)
            after, definition = _adopted(before, case, found, former)
        plan = RestorePlan(table, found, tuple(differences(before, after)), definition)
        if plan.is_done or not approve(plan):
            return RestoreResult(plan, before, before, approved=False)

        def check_leases() -> None:
            lease.check()
            if own is not None:
                own.check()

        target.restore(found, check_leases)
        crashpoints.reached("before_record", table_id)
        lease.check()
        revive_positions(store.blobs, after.positions())
        return RestoreResult(plan, before, store.write(after), approved=True)


def _is_current(document: StateDocument, found: Restoration) -> bool:
    """Whether nothing is left to do, because the table is as the state records it."""
    state = document.table(found.commit.table)
    return not found.changes and (state.seq, state.intent_id) == (found.commit.seq, found.commit.intent_id)


def _adopted(before: StateDocument, case: Case, found: Restoration, former: Former) -> tuple[StateDocument, str]:
    """The state afterwards, with the definition under which the content was committed; and what the user must know
    of it."""
    table_id, columns = case.table.id, columns_to_record(case)
    document = documents.adopt(before, table_id, found.after, found.commit, columns)
    document = with_adopted(before, document, table_id)
    number = found.origins[0].seq
    if not former.states:
        return document, f"of sequence number {number} is not recorded: the next plan takes that of the spec"
    document, changed = with_former_definition(document, case, former.states)
    stops = f"{'; '.join(changed)}: the next plan stops" if changed else ""
    if former.is_known:
        return document, stops and f"was another one, {stops}"
    return document, f"of sequence number {number} is no longer recorded, {stops or 'that of now is assumed'}"


def _require_settled(spec: Spec, document: StateDocument, table_id: str) -> None:
    """A killed run may still be writing until the next run has finished its sequence number."""
    intent = document.table(table_id).intent
    if intent is not None:
        raise StoppedByPolicy(
            f"{table_id}: sequence number {intent.seq}, begun by run {intent.run_id}, is not finished",
            hint=f"Run `flowctl apply {spec.argument}` first",
        )
