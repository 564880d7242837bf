/* SPDX-License-Identifier: Apache-2.0 */
/* Shared leases on one resource: one token for all who share (the generation), rows of holders in
 * the store, entries of holders in the lease service. README.md has the rules and their cases.
 *
 * A daemon is one request under way, for any owner; who[] and the arrays beside it are its memory,
 * and all that is gone when it dies. Each of its steps is one script of the lease service or one
 * commit. An owner may have several requests under way, at both daemons. -DFAULT_... puts a defect
 * in; tests/model/run demands that spin finds it. */

#ifndef OWNERS
#define OWNERS 2
#endif
#ifndef DAEMONS
#define DAEMONS 2
#endif
#ifndef WRITERS
#define WRITERS 1 /* owners below this one ask for exclusive leases */
#endif
#ifndef SHARERS
#define SHARERS 0 /* owners from this one on ask for shared ones */
#endif
#ifndef REQUESTS
#define REQUESTS 2 /* of each owner, at most */
#endif
#ifndef REQUESTS_FIRST
#define REQUESTS_FIRST REQUESTS /* of owner 0 */
#endif
#ifndef MISHAPS
#define MISHAPS 0 /* -DTTL: they end; -DLOSS: of the lease service; -DREVOKE: so many together */
#endif
#ifndef CRASHES
#define CRASHES 0 /* daemons that die, answers that nobody hears: so many together */
#endif
#define ROUNDS_MAX (2 * REQUESTS + 1 + 2 * mishaps) /* of asking again: others' progress */

mtype = {SHARED, EXCLUSIVE, DOWN, RENEW, RELEASE}; /* requests; DOWN: SHARED … FROM token */
mtype = {GRANTED, OWN, HELD};                      /* the lease service's words */

/* The lease service: it may lose everything. Free is where nobody has an entry. */
byte counter, s_token;
bool s_shared;
byte entries[OWNERS]; /* a bit for each nonce */

/* The store: it loses nothing. The newest token is in the rows: without any, there is none. */
byte newest;
bool live, shared;
byte row[OWNERS];   /* the nonce of its entry; 0: no row */
byte holds[OWNERS];
bool over[OWNERS];  /* the row's deadline has passed */

/* What owners know, and what has happened, whatever the others believe. */
byte left[OWNERS];  /* requests */
byte told[OWNERS];  /* the token of its lease; 0: none */
bool told_shared[OWNERS];
byte frames[OWNERS];
bool safe[OWNERS];  /* neither its TTL has ended since, nor was it revoked */
bool changed[OWNERS]; /* another has written since it was told, and read */
byte highest;       /* token recorded */
byte retired;       /* the highest one whose last holder has released it */
byte acknowledged;  /* the highest token that anybody was told */
bool lost;          /* the lease service has lost its entries */
byte mishaps, crashes;

/* The daemons' memory. */
bool busy[DAEMONS];
byte who[DAEMONS], nonce[DAEMONS];
byte drop[DAEMONS];  /* a bit for each nonce whose entry has to go */
bool late[DAEMONS];  /* its entry's time is over by now */
#define me   who[_pid]
#define mine nonce[_pid]
#define gone drop[_pid]

#define BIT(n) (1 << (n))
#if OWNERS == 1
#define EACH(of)   (of(0))
#define OTHERS(of) (true)
#define ALL_ZERO(a) a[0] = 0
#elif OWNERS == 2
#define EACH(of)   (of(0) && of(1))
#define OTHERS(of) ((me == 0 || of(0)) && (me == 1 || of(1)))
#define ALL_ZERO(a) a[0] = 0; a[1] = 0
#else
#define EACH(of)   (of(0) && of(1) && of(2))
#define OTHERS(of) ((me == 0 || of(0)) && (me == 1 || of(1)) && (me == 2 || of(2)))
#define ALL_ZERO(a) a[0] = 0; a[1] = 0; a[2] = 0
#endif
#define NO_ENTRY(o) (entries[o] == 0)
#define NO_ROW(o)   (row[o] == 0)
#define FREE EACH(NO_ENTRY)

/* Nobody loses a lease but by a mishap of its own, or (to an exclusive one, or as one) because the
 * service lost everything. */
#define LOSES(o) (told[o] == newest && safe[o])
#define KEPT_FROM_EXCLUSIVE(o) (!LOSES(o) || lost)
#define KEPT_FROM_SHARED(o)    (!LOSES(o) || (lost && !shared))
#define KEPT(o)                (!LOSES(o))

#define USES(d, n) (who[d] == me && (nonce[d] == n || (drop[d] & BIT(n))))
#if DAEMONS == 1
#define IN_USE(n) ((entries[me] & BIT(n)) || row[me] == n || USES(0, n))
#else
#define IN_USE(n) ((entries[me] & BIT(n)) || row[me] == n || USES(0, n) || USES(1, n))
#endif

/* A number used only once: here, one that nobody uses. */
inline make_nonce()
{
#ifdef FAULT_ONE_NONCE
    mine = 1
#else
    mine = 0;
    n = 1;
    do
    :: IN_USE(n) -> n++
    :: else -> break
    od;
    assert(n <= 6);
    mine = n;
    n = 0
#endif
}

/* The lease service's scripts. */

inline service_count(token_seen)
{
    counter = (counter < token_seen -> token_seen : counter)
}

inline service_drop(which)
{
    if
    :: s_token == token -> entries[me] = entries[me] & ~which
    :: else
    fi
}

inline service_grant()
{
    if
    :: FREE || (dead && s_token == refused) ->
        said = GRANTED;
        as_shared = (what == SHARED);
        ALL_ZERO(entries);
        if
#ifndef FAULT_EMPTY_MINTS
        :: as_shared && generation != 0 -> /* it begins again */
            token = generation;
            service_count(token)
        :: else ->
#else
        :: true ->
#endif
            service_count(floor);
            counter++;
            token = counter
        fi;
        s_token = token;
        s_shared = as_shared;
        entries[me] = BIT(mine)
    :: !(FREE || (dead && s_token == refused)) && s_shared && what == SHARED ->
        said = GRANTED;
        as_shared = true;
        token = s_token;
        entries[me] = entries[me] | BIT(mine)
    :: !(FREE || (dead && s_token == refused)) && !s_shared && entries[me] != 0 ->
        said = OWN;
        as_shared = false;
        token = s_token;
        mine = 1;
        do
        :: entries[me] & BIT(mine) -> break
        :: else -> mine++
        od
    :: else -> said = HELD
    fi
}

/* The entry again, with its TTL restarted; false where another lease stands there. */
inline service_renew()
{
    if
    :: FREE -> /* lost, or over: it takes it back */
        s_token = token;
        s_shared = as_shared;
        service_count(token);
        entries[me] = BIT(mine);
        said = GRANTED
    :: !FREE && s_token == token && s_shared == as_shared && (s_shared || entries[me] != 0) ->
        entries[me] = entries[me] | BIT(mine);
        said = GRANTED
    :: else -> said = HELD
    fi
}

/* From exclusive to shared: the entry stays. */
inline service_inherit()
{
    if
    :: !FREE && s_token == from && !s_shared && (entries[me] & BIT(mine)) ->
        s_token = token;
        s_shared = true;
        service_count(token);
        said = GRANTED
    :: else -> service_renew()
    fi
}

/* The store's commits. */

inline store_read()
{
    floor = newest;
    generation = (live && shared -> newest : 0);
    entered = (live && row[me] != 0);
    as_shared = shared;
    if
    :: entered -> mine = row[me]
    :: else -> make_nonce()
    fi
}

#define WAITS_FOR_ITSELF entered && generation != 0 && what == EXCLUSIVE

/* A token becomes the newest: all others are dead from here on. */
inline store_make(how)
{
    assert(token > highest); /* P2 */
    highest = token;
    newest = token;
    live = true;
    shared = how;
    ALL_ZERO(row);
    ALL_ZERO(holds);
    ALL_ZERO(over)
}

inline store_record()
{
    admitted = false;
    if
#ifndef FAULT_MODE_NOT_COMPARED
    :: token == newest && live && shared == as_shared && (shared || row[me] != 0) ->
#else
    :: token == newest && live && (shared || as_shared || row[me] != 0) ->
#endif
#ifdef FAULT_NONCE_PUT_BACK
        admitted = (row[me] == mine || row[me] == 0)
#else
        admitted = (row[me] == mine || (row[me] == 0 && !entered))
#endif
#ifdef FAULT_RETIRE_UNSEEN
    :: token > newest && said == OWN ->
        newest = token;
        highest = token;
        live = false
#endif
#ifdef FAULT_SHARED_OVER_SHARED
    :: token > newest ->
#else
    :: token > newest && !(as_shared && live && shared) ->
#endif
        if
        :: live && as_shared -> assert(EACH(KEPT_FROM_SHARED))
        :: live && !as_shared -> assert(EACH(KEPT_FROM_EXCLUSIVE))
        :: else
        fi;
        store_make(as_shared);
        admitted = true
    :: else
    fi;
    if
    :: admitted ->
        row[me] = mine;
        over[me] = false;
        holds[me]++
    :: else ->
        refused = token;
        dead = (token < newest || (token == newest && (!live || shared != as_shared)));
        gone = BIT(mine)
    fi
}

/* One hold less; with the last one the row goes, with the last row the generation. */
inline store_release()
{
    safe[me] = safe[me] && !(what == RELEASE && row[me] != mine); /* too late: README.md */
    gone = 0;
    if
    :: newest == token && live && row[me] != 0 && (what == RELEASE || row[me] == mine) ->
        holds[me]--;
        if
        :: holds[me] == 0 ->
            gone = BIT(row[me]);
            row[me] = 0;
            over[me] = false;
#ifdef FAULT_RELEASE_ENDS_ALL
            if
            :: true ->
#else
            if
            :: EACH(NO_ROW) ->
#endif
                assert(EACH(KEPT));
                retired = (token > retired -> token : retired);
#ifndef FAULT_LAST_KEEPS_GENERATION
                live = false
#endif
            :: else
            fi
        :: else
        fi
    :: else
    fi
}

/* The end of a request, with the step before it. */
inline forget()
{
    me = 0; mine = 0; gone = 0; late[_pid] = false; busy[_pid] = false;
    what = 0; said = 0; token = 0; from = 0; floor = 0; generation = 0; refused = 0; rounds = 0;
    admitted = false; dead = false; entered = false; as_shared = false
}

inline tell_grant()
{
    assert(token <= highest); /* P3 */
    assert(token > retired);
    acknowledged = (token > acknowledged -> token : acknowledged);
    if
    :: told[me] == token -> frames[me] = (holds[me] == 1 -> 1 : frames[me] + 1)
    :: told[me] < token ->
        told[me] = token;
        frames[me] = 1;
        changed[me] = false
    :: else
    fi;
    told_shared[me] = as_shared;
    safe[me] = !late[_pid]
}

inline tell_over()
{
    if
    :: told[me] == token ->
        told[me] = 0;
        told_shared[me] = false;
        frames[me] = 0;
        safe[me] = false;
        changed[me] = false
    :: else
    fi
}

#define MAY_CRASH \
    :: atomic { \
        crashes < CRASHES -> crashes++; \
        if \
        :: what == DOWN -> token = from; tell_over() \
        :: else \
        fi; \
        forget(); \
        goto idle \
       }

/* After a mishap, another's entry may stand in the way until that one is done: HELD. */
#if DAEMONS == 1
#define MAY_WAIT false
#else
#define MAY_WAIT (mishaps > 0 && busy[1 - _pid])
#endif

/* Daemons are alike: the second one is asked where the first one is busy. */
#define IS_ASKED(o) left[o] > 0 && (_pid == 0 || busy[0])

active [DAEMONS] proctype daemon()
{
    mtype what, said;
    byte n, token, from, floor, generation, refused, rounds;
    bool admitted, entered, as_shared, dead;

idle:
end_idle:
    atomic {
        if
        :: IS_ASKED(0) -> me = 0
#if OWNERS > 1
        :: IS_ASKED(1) -> me = 1
#endif
#if OWNERS > 2
        :: IS_ASKED(2) -> me = 2
#endif
        fi;
        if
        :: me >= SHARERS -> what = SHARED
        :: me < WRITERS -> what = EXCLUSIVE
#ifdef STEPS_DOWN
        :: told[me] != 0 && !told_shared[me] -> what = DOWN; token = told[me]
#endif
#ifdef RENEWS
        :: told[me] != 0 -> what = RENEW; token = told[me]
#endif
        :: told[me] != 0 ->
            what = RELEASE;
            token = told[me];
            mine = row[me]; /* for the oracle */
            frames[me]--;
            if
            :: frames[me] == 0 -> tell_over()
            :: else
            fi
        fi;
        left[me]--;
        busy[_pid] = true;
        if
        :: what == SHARED || what == EXCLUSIVE -> skip
        :: what == DOWN -> goto step_down
        :: what == RENEW -> goto renew
        :: what == RELEASE -> goto release
        fi
    };

    if
    MAY_CRASH
    :: atomic {
        true;
        store_read();
        if
        :: WAITS_FOR_ITSELF -> forget(); goto idle /* DEADLOCK */
        :: else
        fi
#ifdef FAULT_PLAIN_STEPS_DOWN
        ;
        if
        :: entered && generation == 0 && what == SHARED -> token = newest; goto step_down
        :: else
        fi
#endif
       }
    fi;
ask:
    if
    MAY_CRASH
    :: atomic {
        true;
        late[_pid] = false;
        if
        :: gone != 0 && s_token == refused -> entries[me] = entries[me] & ~gone
        :: else
        fi;
        gone = 0;
        service_grant();
        refused = 0;
        dead = false;
        if
        :: said == HELD -> forget(); goto idle
        :: else
        fi
       }
    fi;
    if
    MAY_CRASH
    :: goto unlock /* nobody hears it any more */
    :: atomic {
        true;
        store_record();
        if
        :: admitted -> tell_grant(); forget(); goto idle
        :: admitted -> goto release /* its time is over by now, or nobody hears it */
        :: !admitted ->
            rounds = (MAY_WAIT -> rounds : rounds + 1);
            assert(rounds <= ROUNDS_MAX || crashes > 0 || (mishaps > 0 && !lost));
            if
            :: rounds > ROUNDS_MAX -> goto drop_it
            :: else ->
                token = 0;
                store_read();
                if
#ifndef FAULT_DEADLOCK_ASKED_ONCE
                :: WAITS_FOR_ITSELF -> token = refused; goto drop_it
#endif
                :: else -> goto ask
                fi
            fi
        fi
       }
    fi;

drop_it:
    if
    MAY_CRASH
    :: atomic { true; service_drop(gone); forget(); goto idle }
    fi;

    /* Granted, and not recorded: an entry of its own goes, a row's stays. An exclusive lock is its
     * owner's, for whom another daemon may be about to record it: who is here first decides. */
unlock:
    if
    MAY_CRASH
    :: atomic {
        true;
#ifdef FAULT_UNLOCK_UNASKED
        gone = (said == OWN || entered -> 0 : BIT(mine));
#else
        gone = (row[me] == mine -> 0 : BIT(mine));
        if
        :: !as_shared && newest < token ->
            if
            :: live -> assert(EACH(KEPT_FROM_EXCLUSIVE))
            :: else
            fi;
            store_make(false);
            live = false
        :: else
        fi;
#endif
        goto drop_it
       }
    fi;

step_down:
#ifdef FAULT_SERVICE_FIRST
    if
    MAY_CRASH
    :: atomic {
        true;
        from = token;
        mine = row[me];
        as_shared = true;
        token++;
        service_inherit();
        token = from
       }
    fi;
#endif
    if
    MAY_CRASH
    :: atomic {
        true;
        from = token;
#ifdef FAULT_STEPS_DOWN_WITH_TWO
        admitted = (newest == token && live && !shared && row[me] != 0);
#else
        admitted = (newest == token && live && !shared && row[me] != 0 && holds[me] == 1);
#endif
        if
        :: admitted ->
            assert(OTHERS(KEPT));
            assert(!LOSES(me) || what == DOWN && frames[me] == 1);
            mine = row[me];
            token = newest + 1;
            store_make(true);
            row[me] = mine;
            holds[me] = 1;
            as_shared = true
        :: else -> forget(); goto idle
        fi
       }
    fi;
    if
    MAY_CRASH
    :: atomic {
        true;
        service_inherit();
        if
        :: said != GRANTED -> goto release
#ifdef FAULT_STEP_DOWN_UNCONFIRMED
        :: said == GRANTED -> tell_grant(); forget(); goto idle
#endif
        :: else
        fi
       }
    fi;
    if
    MAY_CRASH
    :: atomic {
        true;
        if
        :: newest == token && live && row[me] == mine -> tell_grant(); forget(); goto idle
        :: else -> gone = BIT(mine); goto drop_it /* revoked since: it took back what is over */
        fi
       }
    fi;

renew:
    if
    MAY_CRASH
    :: atomic {
        true;
        if
        :: newest == token && live && row[me] != 0 -> mine = row[me]; as_shared = shared
        :: else ->
            assert(told[me] != token || !LOSES(me) || lost);
            tell_over();
            forget();
            goto idle
        fi
       }
    fi;
    if
    MAY_CRASH
    :: atomic {
        true;
        late[_pid] = false;
        service_renew();
        if
        :: said == HELD -> tell_over(); forget(); goto idle
        :: else
        fi
       }
    fi;
    if
    MAY_CRASH
    :: atomic {
        true;
#ifdef FAULT_RENEW_WITHOUT_ROW
        if
        :: newest == token && live ->
#else
        if
        :: newest == token && live && row[me] == mine ->
#endif
            over[me] = false;
            if
            :: told[me] == token -> safe[me] = !late[_pid]
            :: else
            fi;
            forget();
            goto idle
        :: else -> gone = BIT(mine)
        fi
       }
    fi;
    if
    MAY_CRASH
    :: atomic { true; service_drop(gone); gone = 0; goto renew }
    fi;

release:
    if
    MAY_CRASH
    :: atomic {
        true;
        store_release();
        if
        :: gone == 0 -> forget(); goto idle
        :: else -> goto drop_it
        fi
       }
    fi
}

/* What owners do with their leases. */

/* A condition for a write elsewhere: what was read holds. */
#define PRESENTS(o) \
    :: d_step { \
        told[o] != 0 && live && newest == told[o] -> \
            assert(!changed[o]); \
            assert(told[o] >= acknowledged) /* P1 */ \
       }

#define CHANGE(o, by) changed[o] = changed[o] || (told[o] != 0 && o != by)
#ifdef FAULT_SHARED_WRITES
#define IS_WRITABLE true
#else
#define IS_WRITABLE !shared
#endif
#define WRITES(o) \
    :: d_step { \
        told[o] != 0 && live && newest == told[o] && IS_WRITABLE -> \
            assert(!told_shared[o] && !changed[o]); \
            assert(told[o] >= acknowledged); /* P1 */ \
            CHANGES(o) \
       }

#if OWNERS == 1
#define CHANGES(by) CHANGE(0, by)
#elif OWNERS == 2
#define CHANGES(by) CHANGE(0, by); CHANGE(1, by)
#else
#define CHANGES(by) CHANGE(0, by); CHANGE(1, by); CHANGE(2, by)
#endif

/* The TTL of an entry ends. */
#define IS_LATE(d, o, n) late[d] = late[d] || (who[d] == o && nonce[d] == n)
#if DAEMONS == 1
#define ARE_LATE(o, n) IS_LATE(0, o, n)
#else
#define ARE_LATE(o, n) IS_LATE(0, o, n); IS_LATE(1, o, n)
#endif
#define RUNS_OUT(o, n) \
    :: d_step { \
        mishaps < MISHAPS && (entries[o] & BIT(n)) -> mishaps++; \
            entries[o] = entries[o] & ~BIT(n); \
            ARE_LATE(o, n); \
            over[o] = over[o] || row[o] == n; \
            safe[o] = safe[o] && row[o] != n \
       }

/* Rows of holders whose time is over go; the last one stays, for the newest token stands in it. */
#ifdef FAULT_SWEEPS_LAST_ROW
#define MAY_SWEEP(o) true
#else
#define MAY_SWEEP(o) ANOTHER_ROW(o)
#endif
#if OWNERS == 1
#define ANOTHER_ROW(o) false
#elif OWNERS == 2
#define ANOTHER_ROW(o) (row[1 - o] != 0)
#else
#define ANOTHER_ROW(o) (row[(o + 1) % 3] != 0 || row[(o + 2) % 3] != 0)
#endif
#define SWEEP(o) \
    :: d_step { \
        live && shared && over[o] && row[o] != 0 && MAY_SWEEP(o) -> \
            row[o] = 0; holds[o] = 0; over[o] = false; \
            if \
            :: EACH(NO_ROW) -> live = false; newest = 0 \
            :: else \
            fi \
       }

/* Where nothing went wrong, each row has its entry and each entry its row, once all is done. */
#define TIDY(o) (entries[o] == (live && row[o] != 0 -> BIT(row[o]) : 0))
#if DAEMONS == 1
#define QUIET !busy[0]
#else
#define QUIET (!busy[0] && !busy[1])
#endif

#if OWNERS == 1
#define OF_EACH(deed) deed(0)
#elif OWNERS == 2
#define OF_EACH(deed) deed(0) deed(1)
#else
#define OF_EACH(deed) deed(0) deed(1) deed(2)
#endif
#define RUN_OUT(o) RUNS_OUT(o, 1) RUNS_OUT(o, 2) RUNS_OUT(o, 3) \
    RUNS_OUT(o, 4) RUNS_OUT(o, 5) RUNS_OUT(o, 6)

active proctype world()
{
end_world:
    do
    OF_EACH(PRESENTS)
    OF_EACH(WRITES)
#ifdef TTL
    OF_EACH(RUN_OUT)
    OF_EACH(SWEEP)
#endif
#ifdef LOSS
    :: atomic {
        !FREE && mishaps < MISHAPS -> mishaps++;
        lost = true; /* all of it, or the counter's last steps, or nothing of the counter */
        ALL_ZERO(entries);
        late[0] = late[0] || nonce[0] != 0;
#if DAEMONS > 1
        late[1] = late[1] || nonce[1] != 0;
#endif
        do
        :: counter > 0 -> counter--
        :: break
        od
       }
#endif
#ifdef REVOKE
    :: d_step {
        live && mishaps < MISHAPS -> mishaps++; /* an operator revokes; its daemon dies then */
        live = false;
        ALL_ZERO(row);
        ALL_ZERO(holds);
        ALL_ZERO(over);
        ALL_ZERO(safe);
        late[0] = late[0] || nonce[0] != 0;
#if DAEMONS > 1
        late[1] = late[1] || nonce[1] != 0;
#endif
       }
#endif
    :: d_step { QUIET && mishaps == 0 && crashes == 0 -> assert(EACH(TIDY)) }
    od
}

init
{
    d_step {
        byte o;
        do
        :: o < OWNERS -> left[o] = (o == 0 -> REQUESTS_FIRST : REQUESTS); o++
        :: else -> o = 0; break
        od
    }
}
