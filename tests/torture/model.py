# SPDX-License-Identifier: Apache-2.0
"""What one resource must do, by DESIGN.md: a register (or a stock) behind a fence. P1, P2, P3, P6.

The state says who may write and what there is to read:

    newest    the newest token granted; where `hidden`, a lower bound of it
    hidden    the newest grant is one whose reply nobody heard: no client knows its token
    retired   it was released or revoked
    value     of the register; of a stock, what is left
    applied   ids of applied writes that are asked about again, each with its first reply

A lease that expired changes nothing here: with no successor its holder may still write, and with
one the grant is what fences it out. So the checker needs no clock.
"""

import collections

State = collections.namedtuple("State", "newest hidden retired value applied")

NOTHING = frozenset()
# The command had no effect, and says nothing of the state.
HARMLESS = {"BUSY", "STORE", "ABORTED"}
ERRORS = {
    "acquire": {"LEASEDOWN", "STALE", "DEADLOCK"},
    "release": {"STALE", "UNKNOWN"},
    "renew": {"STALE", "UNKNOWN", "LEASEDOWN"},
    "revoke": set(), "lease": {"LEASEDOWN"}, "get": set(),
    "set": {"STALE", "UNKNOWN"}, "swap": {"STALE", "UNKNOWN"}, "fget": {"STALE", "UNKNOWN"},
    "sell": {"STALE", "UNKNOWN", "RANGE"}, "receipt": set(),
}
WRITES = {"set", "swap", "sell"}


def initial(value=None):
    return State(0, False, True, value, NOTHING)


def code(op):
    return op.error.split()[0] if op.error is not None else None


def is_expected(op):
    """Is its error one that the command may give?"""
    return op.error is None or code(op) in HARMLESS or code(op) in ERRORS[op.op]


def is_free(op):
    """Nothing can be said of it, in any state: it neither has an effect nor tells anything."""
    if not op.known:
        return op.op not in WRITES | {"acquire", "release", "revoke"}
    if op.error is None:
        return False
    # A RENEW may hear of a successor that the store has not recorded yet.
    return code(op) in HARMLESS and op.op != "acquire" or op.op in ("renew", "lease")


def may_bump(op):
    """An ACQUIRE that ended without a lease may have been granted one that ran out on its way: it
    was given back, but the older tokens are fenced out."""
    return op.op == "acquire" and op.known and op.reply is None


def is_current(state, token):
    return token == state.newest and not state.hidden and not state.retired


def judge(state, token):
    """The error that the token meets; None where it may write. A client presents what it was
    granted, or makes up what is far beyond: a larger token is unknown, hidden or not."""
    if token > state.newest:
        return "UNKNOWN"
    return None if is_current(state, token) else "STALE"


def bump(state):
    """A grant that nobody heard of."""
    return state._replace(newest=state.newest + 1, hidden=True, retired=False)


def first_reply(state, wanted):
    for known, reply in state.applied:
        if known == wanted:
            return True, reply
    return False, None


def apply(state, op, remember):
    """The write's reply, and the state after it."""
    if op.op == "sell":
        if state.value <= 0:
            return "RANGE", state
        reply = value = state.value - 1
    else:
        reply = "OK" if op.op == "set" else state.value
        value = op.value
    applied = state.applied | {(op.id, reply)} if op.id in remember else state.applied
    return reply, state._replace(value=value, applied=applied)


def _step_write(state, op, remember):
    if op.id in remember:
        found, reply = first_reply(state, op.id)
        if found:
            return state if not op.known or op.error is None and op.reply == reply else None
    error = judge(state, op.token)
    if error is not None:
        return state if code(op) == error else None
    reply, after = apply(state, op, remember)
    if not op.known:
        return after
    heard = op.reply if op.error is None else code(op)
    return after if heard == reply else None


def _step_acquire(state, op):
    if not op.known:
        return bump(state)
    if op.error is not None or op.reply is None:
        return state
    if op.reply > state.newest:
        return state._replace(newest=op.reply, hidden=False, retired=False)
    # Entered again by the same owner, who need not have heard of the first grant: that it is the
    # same one is invariants.py's to check.
    if op.owner is None or op.reply != state.newest or state.retired:
        return None
    return state._replace(hidden=False)


def _step_release(state, op):
    if not op.known:
        return state._replace(retired=True) if is_current(state, op.token) else None
    error = judge(state, op.token)
    if op.error is not None:
        return state if code(op) == error else None
    if error is None:
        return state._replace(retired=True) if op.reply == 0 else state
    # The last release again: still free.
    again = op.reply == 0 and op.token == state.newest and not state.hidden
    return state if again else None


def _step_revoke(state, op):
    if not op.known:
        return state if state.retired else state._replace(retired=True)
    newest = op.reply or 0
    if state.hidden and newest >= state.newest:
        return state._replace(newest=newest, hidden=False, retired=True)
    if newest != state.newest or state.hidden:
        return None
    return state._replace(retired=True)


def _step_read(state, op):
    if op.op == "lease":
        newest = op.reply or 0
        fits = newest >= state.newest if state.hidden else newest == state.newest
        return state if fits else None
    if op.op == "fget":
        error = judge(state, op.token)
        if error is not None or op.error is not None:
            return state if code(op) == error else None
    return state if op.reply == state.value else None


def _step_receipt(state, op):
    found, reply = first_reply(state, op.id)
    if op.reply is None:
        return None if found else state
    if op.reply[0] == 1:
        return state if found and op.reply[1] == reply else None
    return state if not found and not is_current(state, op.token) else None


def _step_renew(state, op):
    return state if is_current(state, op.token) else None


def step(state, op, remember=NOTHING):
    """The state after the operation, or None where it cannot have gone like this in `state`.

    Of an unknown operation: the state after it, had it happened here. `remember` holds the ids
    that more than one operation names.
    """
    if op.op in WRITES:
        return _step_write(state, op, remember)
    if op.op == "acquire":
        return _step_acquire(state, op)
    if op.op == "release":
        return _step_release(state, op)
    if op.op == "revoke":
        return _step_revoke(state, op)
    if op.op == "renew":
        return _step_renew(state, op)
    return _step_receipt(state, op) if op.op == "receipt" else _step_read(state, op)


def describe(state):
    who = f"newest token {'above ' if state.hidden else ''}{state.newest}"
    return f"{who}{', retired' if state.retired else ''}, value {state.value!r}"


def repeated_ids(ops):
    count = collections.Counter(op.id for op in ops if op.id is not None and op.op != "acquire")
    return frozenset(known for known, times in count.items() if times > 1)
