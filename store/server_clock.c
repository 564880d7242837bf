/* SPDX-License-Identifier: Apache-2.0 */
/* A look tells between which two numbers the store's time less clock_monotonic's lies; they are as
 * far apart as the trip took. Where the looks contradict each other by more than
 * SERVER_CLOCK_JUMP_MS, one of the two clocks has jumped. */
#include "store/server_clock.h"

#include <string.h>

void server_clock_init(struct server_clock *clock)
{
    *clock = (struct server_clock){.known = false};
    pthread_mutex_init(&clock->lock, NULL);
}

void server_clock_destroy(struct server_clock *clock)
{
    pthread_mutex_destroy(&clock->lock);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The next three functions are called with the lock held. */

static void begin(struct server_clock *clock, const struct server_clock_look *look)
{
    clock->known = true;
    clock->distrusted = false;
    clock->number = look->number;
    clock->least_ms = look->now_ms - look->got_ms;
    clock->most_ms = look->now_ms - look->sent_ms;
    clock->since_ms = look->now_ms;
}

static bool agrees(struct server_clock *clock, const struct server_clock_look *look)
{
    int64_t least_ms = larger(clock->least_ms, look->now_ms - look->got_ms),
            most_ms = smaller(clock->most_ms, look->now_ms - look->sent_ms);

    if (least_ms - most_ms > SERVER_CLOCK_JUMP_MS)
        return false;
    clock->least_ms = least_ms;
    clock->most_ms = most_ms;
    return true;
}

static bool look_on(struct server_clock *clock, const struct server_clock_look *look)
{
    if (!clock->known || look->number > clock->number) {
        begin(clock, look);
        return true;
    }
    if (look->number < clock->number || !agrees(clock, look))
        return false;
    if (clock->distrusted)
        clock->since_ms = look->now_ms;
    clock->distrusted = false;
    return true;
}

bool server_clock_look(struct server_clock *clock, const struct server_clock_look *look,
                       int64_t *since_ms)
{
    pthread_mutex_lock(&clock->lock);
    bool good = look_on(clock, look);
    *since_ms = clock->since_ms;
    pthread_mutex_unlock(&clock->lock);
    return good;
}

void server_clock_follow(struct server_clock *clock, const struct server_clock_look *look)
{
    pthread_mutex_lock(&clock->lock);
    if (!clock->known || look->number != clock->number)
        begin(clock, look);
    pthread_mutex_unlock(&clock->lock);
}

void server_clock_of(struct server_clock *clock, struct bytes server)
{
    char name[SERVER_CLOCK_NAME_MAX];

    text_print(name, sizeof name, "%.*s", (int)server.len, server.data);
    pthread_mutex_lock(&clock->lock);
    clock->distrusted |= strcmp(clock->server, name) != 0;
    memcpy(clock->server, name, sizeof name);
    pthread_mutex_unlock(&clock->lock);
}

bool server_clock_is_known(struct server_clock *clock)
{
    pthread_mutex_lock(&clock->lock);
    bool known = clock->known;
    pthread_mutex_unlock(&clock->lock);
    return known;
}

bool server_clock_error_ms(struct server_clock *clock, const struct server_clock_look *look,
                           int64_t *error_ms)
{
    struct server_clock copy;

    pthread_mutex_lock(&clock->lock);
    copy = *clock;
    pthread_mutex_unlock(&clock->lock);
    *error_ms = 0;
    if (!copy.known || look->number > copy.number)
        return false;
    if (!agrees(&copy, look)) /* go by the smaller time, so that nothing gets too old */
        *error_ms = look->now_ms - (look->got_ms + smaller(copy.least_ms, copy.most_ms));
    return true;
}

int64_t server_clock_age_ms(int64_t now_ms, int64_t since_ms, int64_t dated_ms)
{
    return larger(now_ms - larger(dated_ms, since_ms) - SERVER_CLOCK_JUMP_MS, 0);
}

int64_t server_clock_gap_error_ms(const struct server_clock_note *note,
                                  const struct server_clock_look *look, int64_t wall_ms)
{
    int64_t here_ms = larger(wall_ms - note->wall_ms, 0), passed_ms = look->now_ms - note->now_ms,
            believed_ms = larger(smaller(passed_ms, here_ms), 0),
            error_ms = passed_ms - believed_ms;

    return note->now_ms == 0 ||
                   (error_ms >= -SERVER_CLOCK_JUMP_MS && error_ms <= SERVER_CLOCK_JUMP_MS)
               ? 0
               : error_ms;
}
