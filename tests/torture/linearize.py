# SPDX-License-Identifier: Apache-2.0
"""Is there an order of one resource's operations, each somewhere between its call and its reply,
in which every reply is right? (Herlihy and Wing, 1990.)

Wing and Gong's search with the usual memo of (what was linearized, state), in the form of Lowe's
"just in time": calls and replies are gone through by time with all configurations that are still
possible. A configuration is (state, the open operations that have happened already). When a reply
comes, its operation must have happened: each configuration tries every way to get there. Where no
configuration is left, the history up to this reply is the shortest that has no order.

What keeps it small, and loses nothing:
- An operation that leaves the state as it is, and fits, happens at once.
- A write whose outcome is unknown matters only while its token is the newest.
- A grant, release or revoke whose outcome is unknown only ever forbids: it is tried only where a
  refusal needs it. Of the unknown grants the oldest is as good as any.
- Of two configurations with one state the one that has used up fewer unknown operations will do.
"""

import collections
import time

from torture import model

Verdict = collections.namedtuple("Verdict", "decided ok op states checked note",
                                 defaults=(None, (), 0, ""))
CALL, DONE = 0, 1


class _Undecided(Exception):
    pass


class _Search:
    def __init__(self, ops, state, configurations_max, deadline):
        self.ops = {op.index: op for op in ops if not model.is_free(op)}
        self.remember = model.repeated_ids(ops)
        self.configurations_max = configurations_max
        self.deadline = deadline
        self.open = {}       # known, called, not yet answered
        self.writes = {}     # unknown writes that may still happen
        self.lazy = {}       # unknown grants, releases, revokes
        self.configurations = {(state, frozenset())}
        # Of an id that is asked about again: how many operations that name it are not over.
        self.uses = collections.Counter(
            op.id for op in self.ops.values() if op.id in self.remember and op.op != "acquire")

    def step(self, state, op):
        return model.step(state, op, self.remember)

    def settle(self, state, happened):
        """With every open operation that fits and changes nothing."""
        more = [index for index, op in self.open.items()
                if index not in happened and self.step(state, op) == state]
        return (state, happened.union(more)) if more else (state, happened)

    def ways(self, state, happened, wanted):
        """Every configuration one step on that may help `wanted` to happen."""
        for index, op in (*self.open.items(), *self.writes.items()):
            if index in happened:
                continue
            after = self.step(state, op)
            if after is not None and after != state:
                yield after, happened | {index}
        yield from self.lazy_ways(state, happened, wanted)

    def lazy_ways(self, state, happened, wanted):
        """A refusal, or a word of a newer token, may come of what nobody heard about."""
        refused = model.code(wanted) == "STALE"
        if state.hidden or not (refused or any(
                self.tells(state, op) for index, op in self.open.items() if index not in happened)):
            return
        if any(op.op == "acquire" and (model.may_bump(op) or index not in happened)
               for index, op in self.open.items()):
            yield model.bump(state), happened
        spent = False
        for index, op in self.lazy.items():
            if index in happened or (op.op == "acquire" and spent):
                continue
            spent |= op.op == "acquire"
            after = self.step(state, op)
            if after is not None and after != state:
                yield after, happened | {index}

    @staticmethod
    def tells(state, op):
        """Does its reply speak of a grant or retirement that this state has not seen?"""
        if op.op in ("revoke", "lease"):
            return (op.reply or 0) > state.newest
        return op.op == "receipt" and op.reply is not None and op.reply[0] == 0

    def answer(self, wanted):
        """All configurations in which `wanted` has happened. Where it may have ended without a
        lease: or in which its grant ran out on the way, whatever else had happened by then."""
        without_lease = model.may_bump(wanted)
        reached, seen = set(), set()
        stack = list(self.configurations)
        for configuration in self.configurations if without_lease else ():
            state, happened = self.settle(*configuration)
            reached.add((state, happened - {wanted.index}))
        while stack:
            state, happened = configuration = self.settle(*stack.pop())
            if configuration in seen:
                continue
            seen.add(configuration)
            self.bound(seen)
            if wanted.index in happened and not without_lease:
                reached.add((state, happened - {wanted.index}))
                continue
            stack.extend(self.ways(state, happened, wanted))
            if without_lease and not state.hidden:
                state, happened = self.settle(model.bump(state), happened)
                reached.add((state, happened - {wanted.index}))
        return reached

    def bound(self, seen):
        if len(seen) > self.configurations_max or time.monotonic() > self.deadline:
            raise _Undecided

    def forget(self, over):
        """Drops what cannot matter any more, and configurations that others stand for."""
        newest = min(state.newest for state, _ in self.configurations)
        past = {index for index, op in self.writes.items() if op.token < newest}
        past |= {index for index, op in self.lazy.items() if (op.token or newest) < newest}
        past |= {index for index in (*self.writes, *self.lazy)
                 if all(index in happened for _, happened in self.configurations)}
        for index in past:
            self.writes.pop(index, None)
            self.lazy.pop(index, None)
        self.uses.subtract(self.ops[index].id for index in (*past, over.index)
                           if self.ops[index].id in self.uses)
        best = collections.defaultdict(list)
        for state, happened in self.configurations:
            happened -= past
            if state.applied:
                state = state._replace(applied=frozenset(
                    pair for pair in state.applied if self.uses[pair[0]] > 0))
            known = frozenset(index for index in happened if index in self.open)
            best[state, known].append(happened)
        self.configurations = {
            (state, happened) for (state, _), group in best.items() for happened in group
            if not any(other < happened for other in group)}

    def begin(self, op):
        if op.known:
            self.open[op.index] = op
        elif op.op in model.WRITES:
            self.writes[op.index] = op
        else:
            self.lazy[op.index] = op

    def run(self):
        events = [(op.call, CALL, index) for index, op in self.ops.items()]
        events += [(op.done, DONE, index) for index, op in self.ops.items() if op.known]
        events.sort()
        for _, kind, index in events:
            op = self.ops[index]
            if kind == CALL:
                self.begin(op)
                continue
            reached = self.answer(op)
            if not reached:
                states = sorted({state for state, _ in self.configurations}, key=repr)
                return Verdict(True, False, op, states, len(self.ops))
            self.configurations = reached
            del self.open[index]
            self.forget(op)
        return Verdict(True, True, checked=len(self.ops))


def check(ops, state, configurations_max=200000, seconds=30.0):
    """Verdict(decided, ok, op, states, ...): `op` is the first whose reply no order explains, and
    `states` are those that were possible before it. An error that the command may never give is
    found here, too."""
    for op in ops:
        if op.known and not model.is_expected(op):
            return Verdict(True, False, op, [], len(ops))
    search = _Search(ops, state, configurations_max, time.monotonic() + seconds)
    try:
        return search.run()
    except _Undecided:
        return Verdict(False, False, checked=len(ops),
                       note=f"more than {configurations_max} configurations, or {seconds:g} s")


def explain(verdict):
    """One or two sentences for a person."""
    op = verdict.op
    if op.error is not None and not verdict.states:
        return f"{op.client} {op.label()}: an error that this command may not give ({op.error})"
    states = verdict.states[:3]
    before = "; or ".join(model.describe(state) for state in states)
    if len(verdict.states) > len(states):
        before += f"; or {len(verdict.states) - len(states)} more"
    return (f"{op.client} at {op.at}: {op.label()}. No order of the operations explains this "
            f"reply. Before it: {before}.")
