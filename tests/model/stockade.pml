/* SPDX-License-Identifier: Apache-2.0 */
/* The grant and write protocol on one resource: who may write, whatever is lost, late or dead.
 * README.md has the picture and what is left out.
 *
 * Each step of a daemon is one atomic step of Redis (a script) or of the store (a commit). Between
 * any two of them everybody else may go on: so every pause, delay and expiry is in it. -DFAULT_...
 * puts a defect in; tests/model/run demands that spin finds it. */

#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef DAEMONS
#define DAEMONS 2
#endif
#ifndef SETTERS_REQUESTS
#define SETTERS_REQUESTS 3 /* that client 0 sends, at most */
#endif
#ifndef TAKERS_REQUESTS
#define TAKERS_REQUESTS 3 /* and each of the others */
#endif
#ifndef STOCK
#define STOCK 3 /* pieces at the beginning */
#endif
#ifndef MISHAPS
#define MISHAPS 1 /* leases that run out, losses of Redis, revokes: so many together */
#endif
#ifndef LOST_ANSWERS
#define LOST_ANSWERS 1 /* clients that hang up, and daemons that die: so many together */
#endif
#define ROUNDS   1   /* of minting, where the store does not admit what Redis minted */
#define NOBODY   255
#define NONE     255 /* no sale under way */
#define TAKE_ONE 254 /* the write "one less, not below 0"; other writes set the stock */

mtype = {ACQUIRE, WRITE, RELEASE};
mtype = {DONE, NO, STALE, UNKNOWN, LOST}; /* answers; NO: held by another, try again, sold out */
mtype = {GRANTED, OWN, HELD};             /* Redis's words */

/* Redis, and what it comes back with where it loses its tail: at first, nothing. */
byte counter, lock_token, lock_owner = NOBODY;

/* The store. It survives everything, and takes one step after the other. */
byte newest;           /* the fence: the newest token granted; 0: none */
bool live;             /* not retired */
byte owner = NOBODY;
byte stock = STOCK;
byte receipts[CLIENTS]; /* a bit for each of a client's sales */

/* The oracle: what has happened, whatever the others believe. */
byte sales;            /* writes applied */
byte highest;          /* token recorded */
byte acknowledged;     /* the highest token of an acknowledged grant */
byte retired;          /* the highest token released or revoked */
byte applied[CLIENTS]; /* a bit for each sale */

/* With -DONLY_STOCK the oracle counts pieces, and cares for nothing else. */
#ifdef ONLY_STOCK
#define promise(condition) skip
#else
#define promise(condition) assert(condition)
#endif

/* To a daemon: what, client, token, value, sale. Back, unless the client has hung up: what, token.
 * Daemons are alike: the second one is asked where the first one is busy. */
chan request[DAEMONS] = [0] of {mtype, byte, byte, byte, byte};
chan answer[DAEMONS] = [0] of {mtype, byte};
byte lost;
bool busy;               /* the first daemon */
bool hung_up[DAEMONS];   /* its client has */

#define unlock lock_token = 0; lock_owner = NOBODY

/* Redis's scripts. */

inline redis_grant()
{
    if
    :: lock_owner == client && lock_token != voided ->
        said = OWN;
        token = lock_token
    :: lock_owner != client && lock_owner != NOBODY ->
        said = HELD
    :: else ->
        said = GRANTED;
#ifndef FAULT_NO_FLOOR
        counter = (counter < floor -> floor : counter);
#endif
        counter++;
        token = counter;
        lock_token = token;
        lock_owner = client
    fi
}

inline redis_release(whose, which)
{
    if
    :: lock_owner == whose && lock_token == which -> unlock
    :: else
    fi
}

/* The store's steps. */

inline store_record()
{
    if
    :: said == OWN ->
#ifdef FAULT_REENTRY_UNSEEN
        admitted = true
#else
        admitted = (live && newest == token && owner == client)
#endif
    :: else ->
#if defined(FAULT_NO_FLOOR) || defined(FAULT_FENCE_AT_WRITE)
        admitted = true;
#else
        admitted = (token > newest);
#endif
        if
        :: admitted ->
#ifndef FAULT_FENCE_AT_WRITE
            newest = token;
            live = true;
            owner = client;
#endif
            promise(token > highest); /* P2 */
            highest = (token > highest -> token : highest)
        :: else
        fi
    fi;
    if
    :: !admitted ->
        floor = newest;
        voided = token
    :: else
    fi
}

inline store_judge(presented)
{
#ifdef FAULT_FENCE_AT_WRITE
    if
    :: presented >= newest ->
        newest = presented;
        live = true;
        said = DONE
    :: else -> said = STALE
    fi
#else
    if
    :: newest == 0 || presented > newest ->
#ifdef FAULT_UNKNOWN_ACCEPTED
        newest = presented;
        said = DONE
#else
        said = UNKNOWN
#endif
    :: newest != 0 && (presented < newest || (presented == newest && !live)) -> said = STALE
    :: else -> said = DONE
    fi
#endif
}

inline store_write()
{
    if
    :: receipts[client] & (1 << sale) -> said = DONE /* a repeat: the first reply */
    :: else ->
        store_judge(token);
        if
        :: said == DONE && value == TAKE_ONE && stock == 0 -> said = NO
        :: said == DONE && !(value == TAKE_ONE && stock == 0) ->
            promise(token >= acknowledged);           /* P1: fenced at the grant */
            promise(token > retired);                 /* P1: fenced by release and revoke */
            promise(token <= highest);                /* P3 */
            promise(!(applied[client] & (1 << sale))); /* P6 */
            applied[client] = applied[client] | (1 << sale);
            stock = (value == TAKE_ONE -> stock - 1 : value);
            sales++;
            assert(stock + sales == STOCK); /* what is sold is gone, and once */
#ifndef FAULT_RECEIPT_APART
            receipts[client] = receipts[client] | (1 << sale)
#endif
        :: else
        fi
    fi
}

inline store_retire(which)
{
    if
    :: newest == which && live ->
#ifndef FAULT_RELEASE_KEEPS_TOKEN
        live = false;
#endif
        retired = (which > retired -> which : retired);
        said = DONE
    :: newest == which && !live -> said = DONE
    :: else -> said = STALE
    fi
}

inline forget()
{
    what = 0; value = 0; sale = 0; floor = 0; voided = 0; rounds = 0; admitted = false
}

/* The answer, with the step before it: an answer that takes its time is a client that takes its. An
 * answer that is lost is a client that has hung up. */
inline tell(what_to_say)
{
    said = what_to_say;
    forget();
    if
    :: hung_up[_pid] ->
        hung_up[_pid] = false;
        busy = (_pid == 0 -> false : busy)
    :: else -> answer[_pid]!said, token
    fi
}

inline grant()
{
    acknowledged = (token > acknowledged -> token : acknowledged);
#ifndef FAULT_REPLY_FIRST
    promise(token <= highest);                   /* P3: what is handed out is in the store */
    promise(token != newest || owner == client); /* and nobody else's */
#endif
    tell(DONE)
}

/* In front of a step: the daemon dies, forgets what it was doing, and comes back. */
#define MAY_CRASH \
    :: atomic { \
        hung_up[_pid] || lost < LOST_ANSWERS -> \
            token = 0; \
            lost = (hung_up[_pid] -> lost : lost + 1); \
            tell(LOST); \
            goto idle \
       }

active [DAEMONS] proctype daemon()
{
    mtype what, said;
    byte client, token, value, sale, floor, voided, rounds;
    bool admitted;
#ifdef FAULT_REPLY_FIRST
    byte late;
#endif

idle:
    client = 0; token = 0; said = 0;
end_idle:
    atomic {
        request[_pid]?what, client, token, value, sale;
        busy = (_pid == 0 -> true : busy);
        if
        :: what == ACQUIRE -> goto acquire
        :: what == WRITE -> goto write
        :: what == RELEASE -> goto release
        fi
    };

acquire:
    if
    MAY_CRASH
    :: floor = newest
    fi;
ask:
    if
    MAY_CRASH
    :: atomic {
        true;
        redis_grant();
        if
        :: said == HELD -> tell(NO); goto idle
        :: else
        fi
       }
    fi;
#ifdef FAULT_REPLY_FIRST
    atomic {
        late = token;
        grant()
    };
    said = GRANTED;
    token = late;
    d_step { store_record() };
    goto idle;
#endif
    if
    MAY_CRASH
    :: atomic {
        true;
        store_record();
        if
        :: admitted -> grant(); goto idle
        :: admitted -> goto give_back /* its time is over by now, or nobody hears it */
        :: !admitted && rounds < ROUNDS -> rounds++; goto ask
        :: !admitted && rounds == ROUNDS -> goto unlock_it
        fi
       }
    fi;

give_back:
    if
    MAY_CRASH
    :: d_step { true; store_retire(token) }
    fi;
unlock_it:
    if
    MAY_CRASH
    :: atomic { true; redis_release(client, token); tell(NO); goto idle }
    fi;

write:
    if
    MAY_CRASH
    :: atomic {
        true;
        store_write();
#ifndef FAULT_RECEIPT_APART
        tell(said);
        goto idle
#endif
       }
    fi;
    if
    MAY_CRASH
    :: atomic {
        true;
        if
        :: said == DONE -> receipts[client] = receipts[client] | (1 << sale)
        :: else
        fi;
        tell(said);
        goto idle
       }
    fi;

release:
    if
    MAY_CRASH
    :: d_step { true; store_retire(token) }
    fi;
    if
    MAY_CRASH
    :: atomic {
        true;
        if
        :: said == DONE -> redis_release(client, token)
        :: else
        fi;
        tell(said);
        goto idle
       }
    fi
}

/* Sends, and waits for the answer, or no longer. */
inline ask(kind)
{
    if
    :: left == 0 -> goto done
    :: else -> left--
    fi;
    if
    :: request[0]!kind, me, token, value, sale; at = 0
#if DAEMONS > 1
    :: atomic { busy -> request[1]!kind, me, token, value, sale }; at = 1
#endif
    fi;
    if
    :: atomic { answer[at]?said, got; busy = (at == 0 -> false : busy) }
    :: d_step { lost < LOST_ANSWERS -> lost++; said = LOST; hung_up[at] = true }
    fi;
    at = 0
}

/* Sells pieces, each sale with an ID: reads the stock and sets it to one less, or takes one. */
proctype client(byte me)
{
    mtype said;
    byte left = (me == 0 -> SETTERS_REQUESTS : TAKERS_REQUESTS);
    byte token, got, sale, at, value = NONE;

take:
    token = 0;
    ask(ACQUIRE);
    if
    :: said == DONE -> token = got; got = 0
    :: else -> goto take
    fi;
look:
    if
    :: value != NONE -> skip /* the sale that began under an earlier token */
    :: value == NONE && stock == 0 -> goto give
    :: value == NONE && stock != 0 -> value = (me == 0 -> stock - 1 : TAKE_ONE)
    fi;
sell:
    ask(WRITE);
    if
    :: said == DONE ->
        promise(applied[me] & (1 << sale)); /* P6 */
        goto next
    :: said == NO -> goto next
    :: said == STALE ->
        promise(!(applied[me] & (1 << sale))); /* P6: refused, no trace */
        if
        :: value == TAKE_ONE -> goto take
        :: else -> value = NONE; sale++; goto take
        fi
    :: said == LOST -> goto sell
    :: said == LOST && value == TAKE_ONE -> goto take
    :: said == LOST -> goto give
    :: said == UNKNOWN -> promise(false) /* P3: a token that was handed out is known */
    fi;
next:
    value = NONE;
    sale++;
    if
    :: goto look
    :: goto give
    fi;
give:
    value = NONE;
    ask(RELEASE);
    sale++;
    goto take;
done:
    skip
}

/* What befalls Redis, an operator who revokes, and a stranger who guesses. */
active proctype world()
{
    mtype said;
    byte mishaps;

end_world:
    do
    :: d_step { lock_owner != NOBODY && mishaps < MISHAPS -> mishaps++; unlock } /* TTL over */
    :: atomic {
        counter > 0 && mishaps < MISHAPS -> mishaps++;
        unlock; /* all is lost, or the tail: any earlier state comes back */
        do
        :: counter > 1 -> counter--
        :: counter--; break
        od;
        if
        :: true
        :: counter > 0 -> lock_token = counter; lock_owner = 0;
            do
            :: lock_owner + 1 < CLIENTS -> lock_owner++
            :: break
            od
        fi
       }
    :: atomic {
        live && mishaps < MISHAPS -> mishaps++;
        store_retire(newest);
        said = 0;
        if
        :: redis_release(owner, newest)
        :: true /* its daemon died before */
        fi
       }
#ifndef ONLY_STOCK
    :: d_step {
        true;
        store_judge(newest + 1);
        promise(said == UNKNOWN); /* P3 */
        said = 0
       }
#endif
    od
}

init
{
    byte me;

    atomic {
        for (me : 0 .. CLIENTS - 1) {
            run client(me)
        }
    }
}
