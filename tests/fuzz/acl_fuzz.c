/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds files of users to their parser. What is refused is told in one printable line; what is
 * taken makes, when it is shown and read again, the same users with the same rights; and who has
 * the right to everything has each right, as who has not lacks one. */
#include <ctype.h>
#include <string.h>

#include "fence/base/check.h"
#include "proxy/engine/acl/acl.h"
#include "tests/fuzz/fuzz.h"

static struct buf show(const struct acl *acl)
{
    struct buf text = {0};
    const struct acl_user *user;

    for (size_t i = 0; (user = acl_at(acl, i)) != NULL; i++) {
        acl_show_user(user, &text);
        buf_append_text(&text, "\n");
    }
    return text;
}

/* Of one user: what is allowed as a whole is allowed in each of its parts. */
static void ask(const struct acl_user *user)
{
    bool all = true;

    for (size_t i = 0; i < commands_count; i++) {
        const struct subcommand *sub = commands[i].subcommands;
        all &= acl_may_run(user, &commands[i], NULL);
        for (; sub != NULL && sub->name != NULL; sub++)
            all &= acl_may_run(user, &commands[i], sub);
    }
    check(user->all == (all && user->all_keys && user->all_channels));
    for (size_t i = 0; i < user->keys_count; i++) {
        struct bytes pattern = bytes_of(user->keys[i].text);
        if (strcspn(user->keys[i].text, "*?[\\") == pattern.len) /* it matches itself */
            check(acl_may_touch(user, pattern, user->keys[i].needs));
        check(!user->all_keys || acl_may_touch(user, pattern, ACL_READS | ACL_WRITES));
    }
    for (size_t i = 0; i < user->channels_count; i++)
        check(acl_may_hear(user, bytes_of(user->channels[i].text), true));
    check(acl_check_password(user, BYTES_LITERAL("no such password")) != ACL_RIGHT || user->nopass);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[ACL_WHY_SIZE];
    struct acl *acl =
        acl_parse((struct bytes){(const char *)data, size}, commands, commands_count, why);
    const struct acl_user *user;

    if (acl == NULL) {
        check(why[0] != '\0');
        for (const char *at = why; *at != '\0'; at++)
            check(!iscntrl((unsigned char)*at));
        return 0;
    }
    for (size_t i = 0; (user = acl_at(acl, i)) != NULL; i++) {
        check(acl_find(acl, bytes_of(user->name)) == user);
        ask(user);
    }
    struct buf shown = show(acl);
    struct acl *again = acl_parse(buf_bytes(&shown), commands, commands_count, why);
    check(again != NULL);
    struct buf shown_again = show(again);
    check(bytes_equal(buf_bytes(&shown), buf_bytes(&shown_again)));
    buf_free(&shown);
    buf_free(&shown_again);
    acl_drop(acl);
    acl_drop(again);
    return 0;
}
