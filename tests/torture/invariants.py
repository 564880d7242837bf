# SPDX-License-Identifier: Apache-2.0
"""Checks that need no search, over a whole run. Each returns (ok, text, offending operations)."""

import bisect
import collections

from torture.model import WRITES


def tokens_rise(ops):
    """P2: of two grants of one resource the later one has the larger token, and nobody is given
    another owner's. The lease service is told above which one to mint, so that it does not mint
    used ones until the daemon gives up."""
    for op in ops:
        if op.op == "acquire" and op.error is not None and "used already" in op.error:
            return False, op.error, [op]
    grants = sorted((op for op in ops if op.op == "acquire" and op.known and op.reply is not None),
                    key=lambda op: op.call)
    owners = {}
    for op in grants:
        first = owners.setdefault(op.reply, op)
        if first is not op and (op.owner is None or first.owner != op.owner):
            return False, f"token {op.reply} was granted twice", [first, op]
    done = sorted(grants, key=lambda op: op.done)
    highest, at = None, 0
    for op in grants:
        while at < len(done) and done[at].done < op.call:
            if highest is None or done[at].reply > highest.reply:
                highest = done[at]
            at += 1
        if highest is not None and (op.reply < highest.reply or (
                op.reply == highest.reply and op.owner is None)):
            return (False, f"token {op.reply} was granted after {highest.reply}", [highest, op])
    return True, f"{len(grants)} grants", []


def acknowledged_lasts(ops):
    """P4: what the last reads see was written by nobody, or by a write that no acknowledged one
    came after. Independent of the search, and decides histories of any length."""
    begun, ended, acknowledged = {}, {}, 0
    for op in ops:  # a repeat is the same write: it happened after the first call, before any reply
        if op.op not in ("set", "swap") or op.error is not None:
            continue
        first = begun.get(op.value)
        begun[op.value] = min(first or op, op, key=lambda one: one.call)
        if op.known:
            acknowledged += 1
            ended[op.value] = min(ended.get(op.value, op.done), op.done)
    newest = max((begun[value] for value in ended), key=lambda op: op.call, default=None)
    finals = [op for op in ops if op.client == "final" and op.op == "get" and op.error is None]
    for read in finals:
        if read.reply is not None and read.reply not in begun:
            return False, f"the last read is {read.reply!r}, which nobody wrote", [read]
        end = ended.get(read.reply, float("-inf" if read.reply is None else "inf"))
        if newest is not None and end < newest.call:
            return (False, f"the last read is {read.reply!r}, but {newest.value!r} was "
                    "acknowledged after it", [newest, read])
    return bool(finals), f"{len(finals)} last reads, {acknowledged} writes", []


def applied(ops):
    """Of each sale that is known to have been applied: an operation with its reply."""
    sold = {}
    for op in ops:
        if op.op == "sell" and op.known and op.error is None:
            sold.setdefault(op.id, op)
        elif op.op == "receipt" and op.known and op.reply and op.reply[0] == 1:
            sold.setdefault(op.id, op._replace(reply=op.reply[1]))
    return sold


def baskets_are_whole(ops):
    """P5: what is sold of several stocks in one transaction is sold of each or of none. `ops` are
    those of one store, last words included."""
    sides = collections.defaultdict(dict)
    for op in ops:
        if op.op == "sell" and op.id.startswith("basket"):
            sides[op.resource][op.id] = op
    sold = {resource: applied(op for op in ops if op.resource == resource) for resource in sides}
    baskets = {known: op for side in sides.values() for known, op in side.items()}
    for known, op in baskets.items():
        done = [resource for resource in sold if known in sold[resource]]
        if done and len(done) < len(sold):
            return False, f"of the basket {known} only {done} was sold", [op]
    return True, f"{len(baskets)} baskets", []


def stock_is_conserved(ops, opening):
    """Opening stock = sold + left, and each sale took one piece: no two ids have one reply."""
    sold, unresolved = {}, {}
    for op in ops:
        if op.op == "sell":
            if op.known and op.error is None:
                if sold.setdefault(op.id, op).reply != op.reply:
                    return (False, f"the sale {op.id} had two replies: {sold[op.id].reply} and "
                            f"{op.reply}", [sold[op.id], op])
            if not op.known:
                unresolved.setdefault(op.id, op)
        elif op.op == "receipt" and op.known and op.reply and op.reply[0] == 1:
            sold.setdefault(op.id, op._replace(reply=op.reply[1]))
        elif op.op == "receipt" and op.client == "final" and op.known and op.error is None:
            unresolved.pop(op.id, None)
            if op.id in sold:
                return False, f"the sale {op.id} was applied, but has no receipt", [
                    sold[op.id], op]
    for known in unresolved.keys() - sold.keys():
        return False, f"the outcome of the sale {known} was never found out", [unresolved[known]]
    replies = collections.defaultdict(list)
    for op in sold.values():
        replies[op.reply].append(op)
    for reply, sales in replies.items():
        if len(sales) > 1:
            return False, f"two sales left {reply} behind", sales[:2]
    finals = [op for op in ops if op.client == "final" and op.op == "get" and op.error is None]
    for read in finals:
        if opening != len(sold) + read.reply:
            return (False, f"opening {opening}, sold {len(sold)}, left {read.reply}",
                    [*last(sold.values(), 3), read])
    return bool(finals), f"opening {opening}, sold {len(sold)}", []


def last(ops, count):
    return sorted(ops, key=lambda op: op.call)[-count:]


def fenced_out(ops):
    """P1, without a search: no write was accepted that began after a larger token was granted."""
    grants = sorted((op for op in ops if op.op == "acquire" and op.known and op.reply is not None),
                    key=lambda op: op.done)
    moments, highest = [], []
    for grant in grants:
        if not highest or grant.reply > highest[-1].reply:
            moments.append(grant.done)
            highest.append(grant)
    first_seen = {}
    for op in ops:
        if op.op not in WRITES or not op.known or op.error is not None:
            continue
        # A repeat gets the first reply under any token: the first attempt is the one to judge.
        begun, token = first_seen.setdefault(_name(op), (op.call, op.token))
        if begun != op.call or token != op.token:
            continue
        at = bisect.bisect_left(moments, op.call) - 1
        if at >= 0 and op.token < highest[at].reply and not _tried_before(ops, op):
            return (False, f"a write under token {op.token} was accepted after {highest[at].reply} "
                    "was granted", [highest[at], op])
    return True, f"{len(first_seen)} writes", []


def _name(op):
    return op.value if op.id is None else op.id


def _tried_before(ops, op):
    return any(_name(other) == _name(op) and other.call < op.call and other.op == op.op
               for other in ops)
