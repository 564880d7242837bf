/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of fields by their hashes; the oldest one is replaced. */
#include "proxy/engine/command/cursors.h"

#include <pthread.h>
#include <stdlib.h>
#include <xxhash.h>

#include "fence/base/mem.h"

enum { CURSORS_MAX = 1024, CURSOR_BITS = 53 };

struct cursors {
    pthread_mutex_t lock;
    size_t next;
    struct {
        int64_t cursor; /* 0: none yet */
        struct buf field;
    } all[CURSORS_MAX];
};

struct cursors *cursors_new(void)
{
    struct cursors *cursors = mem_zalloc(sizeof *cursors);

    pthread_mutex_init(&cursors->lock, NULL);
    return cursors;
}

void cursors_free(struct cursors *cursors)
{
    for (size_t i = 0; i < CURSORS_MAX; i++)
        buf_free(&cursors->all[i].field);
    pthread_mutex_destroy(&cursors->lock);
    free(cursors);
}

int64_t cursor_of(struct bytes field)
{
    uint64_t hash = XXH3_64bits(field.data, field.len) >> (64 - CURSOR_BITS);

    return hash == 0 ? 1 : (int64_t)hash; /* 0 is the beginning, and the end */
}

int64_t cursors_note(struct cursors *cursors, struct bytes field)
{
    int64_t cursor = cursor_of(field);

    pthread_mutex_lock(&cursors->lock);
    size_t at = cursors->next++ % CURSORS_MAX;
    cursors->all[at].cursor = cursor;
    buf_clear(&cursors->all[at].field);
    buf_append_bytes(&cursors->all[at].field, field);
    pthread_mutex_unlock(&cursors->lock);
    return cursor;
}

bool cursors_find(struct cursors *cursors, int64_t cursor, struct buf *field)
{
    bool found = false;

    pthread_mutex_lock(&cursors->lock);
    for (size_t i = 0; i < CURSORS_MAX && !found; i++) {
        found = cursors->all[i].cursor == cursor;
        if (found)
            buf_append_bytes(field, buf_bytes(&cursors->all[i].field));
    }
    pthread_mutex_unlock(&cursors->lock);
    return found;
}
