/* SPDX-License-Identifier: Apache-2.0 */
/* Many who do not log in, send what they like, and read nothing. All of them together hold no more
 * than their bound, as counted and as allocated; who has logged in is answered; and what they held
 * is gone when they are.
 *
 * An input is steps: a byte that says who, one that says how often, and what is sent so often, up
 * to 0xff. Without text the client goes away. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/twins/world.h"

#define PASSWORD "nobody-comes-to-think-of-this-one"

enum {
    BOUND = 256 << 10,
    SLACK = 192 << 10, /* of `received`, and of what is being closed */
    AT_ONCE_MAX = 96 << 10,
    STEPS_MAX = 200,
};

/* AddressSanitizer's; without it nobody knows. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated(void)
{
    return __sanitizer_get_current_allocated_bytes == NULL
               ? 0
               : __sanitizer_get_current_allocated_bytes();
}

static void check_held(const struct world *world, size_t before)
{
    size_t now = allocated();

    if (world->engine->strangers.bytes > BOUND)
        fuzz_wrong("strangers hold %zu bytes by their count", world->engine->strangers.bytes);
    if (now > before + BOUND + SLACK)
        fuzz_wrong("strangers hold %zu bytes", now - before);
    if (world->engine->replies.bytes > 0)
        fuzz_wrong("strangers take the room for replies: %zu",
                   (size_t)world->engine->replies.bytes);
}

/* Send the text so often, in pieces as a socket would. */
static void send_often(struct world *world, int number, struct bytes text, unsigned times)
{
    struct buf all = {0};

    for (unsigned i = 0; i <= times && all.len + text.len <= AT_ONCE_MAX; i++)
        buf_append_bytes(&all, text);
    for (size_t at = 0; at < all.len && world->clients[number].session != NULL;) {
        struct session *session = world->clients[number].session;
        size_t len = session_read_max(session);
        if (!session_wants_input(session))
            break;
        len = len < all.len - at ? len : all.len - at;
        session_input(session, all.data + at, len);
        at += len;
        world_settle(world);
    }
    buf_free(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = {(const char *)data, size};
    struct world *world = world_new(
        &(struct engine_options){.acl = acl_without_file(PASSWORD, commands, commands_count),
                                 .user_limits = {.rate = 1000, .bytes = 1 << 20},
                                 .strangers_bytes_max = BOUND});

    check(strcmp(world_call(world, 0, "AUTH " PASSWORD), "+OK\r\n") == 0);
    check(strcmp(world_call(world, 0, "GET k"), "$-1\r\n") == 0);
    size_t before = allocated();
    for (int step = 0; step < STEPS_MAX && rest.len > 0; step++) {
        int number = 1 + (int)(fuzz_byte(&rest) % (WORLD_CLIENTS_MAX - 1));
        unsigned times = fuzz_byte(&rest);
        struct bytes text = fuzz_cut(&rest, '\xff');
        if (text.len == 0) {
            world_disconnect(world, number);
            continue;
        }
        if (world->clients[number].session == NULL)
            world_connect(world, number);
        world->clients[number].stalls = true;
        send_often(world, number, text, times * times);
        check_held(world, before);
    }
    if (strcmp(world_call(world, 0, "GET k"), "$-1\r\n") != 0)
        fuzz_wrong("who has logged in is disturbed");
    for (int number = 1; number < WORLD_CLIENTS_MAX; number++)
        world_disconnect(world, number);
    if (world->engine->strangers.bytes != 0)
        fuzz_wrong("%zu bytes are counted of nobody", world->engine->strangers.bytes);
    world_free(world);
    return 0;
}
