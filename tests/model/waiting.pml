/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits for a lease that others share: lines at daemons in order of arrival, and the marks that
 * exclusive ones who wait leave on the lease service. README.md has the rules and their cases.
 *
 * Tokens and the store are shared.pml's matter: here a lease is had when the service grants it, and
 * told in a step of its own. Sharers come for ever. Time passes in ticks: a head that is to ask
 * again does so before the next one, and a lease is over within two. -DFAULT_... puts a defect in;
 * tests/model/run demands that spin finds it. */

#ifndef DAEMONS
#define DAEMONS 2
#endif
#ifndef PLACES
#define PLACES 2 /* in a daemon's line */
#endif
#ifndef WRITERS
#define WRITERS 1 /* exclusive ones who come */
#endif
#ifndef POLL
#define POLL 1 /* ticks until the head of a line asks again */
#endif
#ifdef FAULT_MARK_ENDS_BEFORE_POLL
#define LIFE POLL
#endif
#ifndef LIFE
#define LIFE 2 /* ticks that a mark stands */
#endif
#ifndef DEATHS
#define DEATHS 0 /* daemons that forget their line, and come back */
#endif
#ifndef LOSSES
#define LOSSES 0 /* of the lease service */
#endif
#ifndef GIVE_UPS
#define GIVE_UPS 0 /* of exclusive ones, whose time to wait is up */
#endif
#ifndef REENTRIES
#define REENTRIES 0 /* of holders, who release only after them */
#endif
#define TICKS_MAX (WRITERS * (3 + POLL)) /* that an exclusive one waits, once it was denied */

#define S 1
#define X 2

/* The lease service. */
byte fresh, old;    /* sharers' entries: from this tick, from the one before */
bool exclusive, exclusive_old;
byte mark[DAEMONS]; /* ticks that it still stands: the one of the head of this daemon's line */

/* The daemons. */
byte line[DAEMONS * PLACES];
byte due[DAEMONS];    /* ticks until the head asks again */
bool denied[DAEMONS]; /* the head has been: it waits */
bool untold[DAEMONS]; /* sharers whom the service granted the lease, in one answer */

/* What has happened. */
byte writers, deaths, losses, reentries, gave_up;
byte passes[DAEMONS * DAEMONS]; /* the exclusive head of one was passed by the sharers of another */
byte waited[DAEMONS];           /* ticks that an exclusive head has */
byte orphaned;                  /* ticks since the last exclusive head was here */
bool nested;                    /* a holder waits to enter again, and releases only then */

#define AT(d, i)  line[(d) * PLACES + (i)]
#define HEAD(d)   AT(d, 0)
#define WAITS(d)  (HEAD(d) == X && denied[d])
#define IS_DUE(d) (HEAD(d) != 0 && due[d] == 0)
#define IS_MARKED(d) (mark[d] != 0)
#if DAEMONS == 1
#define ANY(of) (of(0))
#define EACH(deed) deed(0)
#elif DAEMONS == 2
#define ANY(of) (of(0) || of(1))
#define EACH(deed) deed(0); deed(1)
#else
#define ANY(of) (of(0) || of(1) || of(2))
#define EACH(deed) deed(0); deed(1); deed(2)
#endif
#define IS_FREE (fresh + old == 0 && !exclusive)

/* The head of line d leaves it. */
inline leave(d)
{
    i = 0;
    do
    :: i + 1 < PLACES -> AT(d, i) = AT(d, i + 1); i++
    :: else -> break
    od;
    AT(d, PLACES - 1) = 0;
    due[d] = 0;
    denied[d] = false;
    waited[d] = 0;
    i = 0;
    do
    :: i < DAEMONS -> passes[d * DAEMONS + i] = 0; i++
    :: else -> break
    od;
    i = 0
}

/* Its mark goes with an exclusive head; others' stay. */
inline unmark(d)
{
#ifdef FAULT_ONE_MARK
#define UNMARK(e) mark[e] = 0
    EACH(UNMARK)
#else
    mark[d] = 0
#endif
}

/* One of those in front who share enters: nobody passes an exclusive one in line. */
inline enter_one(d, place)
{
    assert(place == 0 || HEAD(d) == S);
    fresh = 1;
    if
    :: place == 0 -> leave(d)
    :: else -> AT(d, place) = 0
    fi
}

/* The head and its neighbours in line who share enter together. */
inline enter(d)
{
    do
    :: HEAD(d) == S -> enter_one(d, 0)
#ifdef FAULT_SHARERS_PASS_IN_LINE
    :: HEAD(d) == X && AT(d, 1) == S -> enter_one(d, 1)
#endif
    :: else -> break
    od;
    untold[d] = true
}

inline arrive(d, kind)
{
    i = 0;
    do
    :: AT(d, i) != 0 -> i++
    :: else -> break
    od;
    AT(d, i) = kind;
    i = 0
}

#define ROOM(d) (AT(d, PLACES - 1) == 0)

#ifdef FAULT_NO_MARK
#define KEEPS_OUT false
#else
#define KEEPS_OUT ANY(IS_MARKED)
#endif

#define PASS(e, d) \
    passes[(e) * DAEMONS + (d)] = passes[(e) * DAEMONS + (d)] + (WAITS(e) && (e) != (d)); \
    assert(passes[(e) * DAEMONS + (d)] <= 1)
#if DAEMONS == 1
#define PASSES(d) PASS(0, d)
#elif DAEMONS == 2
#define PASSES(d) PASS(0, d); PASS(1, d)
#else
#define PASSES(d) PASS(0, d); PASS(1, d); PASS(2, d)
#endif

/* What a daemon does: one question at a time. */
#define DAEMON(d) \
    :: d_step { ROOM(d) -> arrive(d, S) } \
    :: d_step { ROOM(d) && writers < WRITERS -> writers++; arrive(d, X) } \
    :: d_step { \
        HEAD(d) == S && !untold[d] && (!denied[d] || due[d] == 0) -> \
            if \
            :: !exclusive && !KEEPS_OUT -> enter(d) \
            :: else -> \
                assert(exclusive || orphaned < LIFE); \
                denied[d] = true; \
                due[d] = POLL \
            fi \
       } \
    :: d_step { \
        HEAD(d) == X && !untold[d] && (!denied[d] || due[d] == 0) -> \
            if \
            :: IS_FREE -> exclusive = true; leave(d); unmark(d) \
            :: else -> \
                mark[d] = LIFE; \
                orphaned = 0; \
                denied[d] = true; \
                due[d] = POLL \
            fi \
       } \
    :: d_step { untold[d] -> untold[d] = false; PASSES(d) } \
    :: d_step { WAITS(d) && gave_up < GIVE_UPS -> gave_up++; leave(d); unmark(d) } \
    :: d_step { \
        deaths < DEATHS && HEAD(d) != 0 -> deaths++; \
            untold[d] = false; \
            do \
            :: HEAD(d) != 0 -> leave(d) \
            :: else -> break \
            od; \
            i = 0 \
       }

#ifdef FAULT_MARK_STAYS
#define AGE_MARK(d) skip
#else
#define AGE_MARK(d) mark[d] = (mark[d] > 0 -> mark[d] - 1 : 0)
#endif
#define AGE(d) \
    AGE_MARK(d); \
    due[d] = (due[d] > 0 -> due[d] - 1 : 0); \
    waited[d] = waited[d] + WAITS(d); \
    assert(waited[d] <= TICKS_MAX)

#if DAEMONS == 1
#define EACH_DAEMON DAEMON(0)
#elif DAEMONS == 2
#define EACH_DAEMON DAEMON(0) DAEMON(1)
#else
#define EACH_DAEMON DAEMON(0) DAEMON(1) DAEMON(2)
#endif

active proctype everybody()
{
    byte i;

    do
    EACH_DAEMON
    :: d_step { old > 0 && !(nested && fresh == 0) -> old = 0 } /* released, or its TTL is over */
    :: d_step { fresh > 0 && !(nested && old == 0) -> fresh = 0 }
    :: d_step { exclusive -> exclusive = false; exclusive_old = false }
    :: d_step { fresh + old > 0 && !nested && reentries < REENTRIES -> reentries++; nested = true }
#ifdef FAULT_MARK_STOPS_REENTRY
    :: d_step { nested && !KEEPS_OUT -> nested = false }
#else
    :: d_step { nested -> nested = false }
#endif
    :: d_step {
        losses < LOSSES -> losses++;
        fresh = 0; old = 0; exclusive = false; exclusive_old = false; nested = false;
#define LOSE(d) mark[d] = 0; waited[d] = 0; denied[d] = denied[d] && HEAD(d) != X
        EACH(LOSE);
        i = 0;
        do
        :: i < DAEMONS * DAEMONS -> passes[i] = 0; i++
        :: else -> break
        od;
        i = 0
       }
    :: d_step { /* a tick */
        !ANY(IS_DUE) && old == 0 && !exclusive_old && !nested ->
            old = fresh;
            fresh = 0;
            exclusive_old = exclusive;
            orphaned = (ANY(WAITS) -> 0 : (orphaned < LIFE -> orphaned + 1 : LIFE));
            EACH(AGE)
       }
    od
}
