/* SPDX-License-Identifier: Apache-2.0 */
/* The Lua scripts of lock libraries that Stockade knows, as data: what each does to which lease,
 * and how it replies. They are never run. */
#ifndef STOCKADE_ENGINE_LOCK_SCRIPTS_H
#define STOCKADE_ENGINE_LOCK_SCRIPTS_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"

struct lock_run;

#define LOCK_SHA1_SIZE 41 /* 40 hexadecimal digits in lower case, and the end */

enum lock_verb {
    LOCK_NO_VERB, /* a form that was forgotten */
    LOCK_LOOK,    /* how does it stand? */
    LOCK_TAKE,    /* take them all, or none */
    LOCK_EXTEND,  /* the value's own live for ttl */
    LOCK_GIVE,    /* the value's own are given back */
    LOCK_REVOKE,  /* whoever has them */
};

enum lock_flag {
    LOCK_REENTERS = 1 << 0,   /* TAKE: what the value holds already is entered again */
    LOCK_TAKES_FREE = 1 << 1, /* EXTEND: what nobody holds is taken */
    LOCK_EACH = 1 << 2,       /* EXTEND, GIVE: each key for itself; else all of them or none */
    LOCK_ONE_HOLD = 1 << 3,   /* GIVE: one entry; the lease ends with the last one */
    LOCK_SECONDS = 1 << 4,    /* ttl is in seconds; else in milliseconds */
    LOCK_VALUES = 1 << 5,     /* each key has a value of its own, from `value` on */
    LOCK_TTL_LAST = 1 << 6,   /* ttl is the last of ARGV, behind the values */
};

/* Places in KEYS and ARGV count from 1, as in Lua; 0: there is none. */
struct lock_form {
    enum lock_verb verb;
    unsigned flags;
    unsigned char keys;        /* so many of KEYS are locks, the first ones; 0: all */
    unsigned char value, ttl;  /* in ARGV */
    unsigned char db;          /* in ARGV: the database, of which there is one */
    unsigned char adds;        /* in ARGV: "0" where ttl is added to what is left */
    unsigned char least;       /* in ARGV: what must be left for EXTEND, in milliseconds */
    unsigned char if_yes;      /* in ARGV: a free lease is taken only where this is "yes" */
    unsigned char channel_key; /* in KEYS: told of a release, as is */
    unsigned char channel;     /* in ARGV: the same */
    unsigned char message;     /* in ARGV: what it is told; 0: the first key */
    void (*reply)(const struct lock_run *run, struct buf *out);
    const char *refused; /* it is known, and not done: why, and what to do instead; the verb says
                            what it would do */
};

struct lock_script {
    const char *sha1;  /* of the text */
    const char *plain; /* of the text as lock_plain_sha1 reads it */
    const char *library;
    const struct lock_form *form;
};

/* Each of them; NULL behind the last one. */
const struct lock_script *lock_script_at(size_t i);
/* NULL: not known. */
const struct lock_script *lock_script_find(const char *sha1);
const struct lock_script *lock_script_find_plain(const char *plain);

/* The SHA1 of a text; and without its whitespace, kind of quotes and case, in which versions of one
 * script differ. */
void lock_sha1(struct bytes text, char sha1[LOCK_SHA1_SIZE]);
void lock_plain_sha1(struct bytes text, char sha1[LOCK_SHA1_SIZE]);

/* The forms of plain commands. */
extern const struct lock_form lock_form_set, lock_form_set_again, lock_form_get, lock_form_pttl,
    lock_form_ttl, lock_form_exists, lock_form_del, lock_form_del_own, lock_form_hexists,
    lock_form_hget;

#endif
