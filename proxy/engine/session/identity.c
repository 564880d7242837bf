/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/session/identity.h"

#include <string.h>

#include "proxy/engine/internal.h"
#include "proxy/engine/scope.h"

/* `name` is the account's: the user's, or where there is no file the certificate's. */
void identity_take(struct session *session, const struct acl_user *rights, const char *name,
                   bool logged_in)
{
    struct account *account = account_of(session->engine, name);

    identity_end(session);
    session->rights = rights;
    session->logged_in = logged_in;
    session->account = account;
    session->crowded = false;
    if (rights != NULL) {
        account_add(account, ACCOUNT_CONNECTIONS);
        session->counted = true;
    }
}

/* One that has not logged in, and is one too many, is told so as soon as it asks for something. */
static void take_newcomer(struct session *session, const struct acl_user *rights, const char *name,
                          bool logged_in)
{
    char why[ACCOUNT_WHY_SIZE];

    if (rights != NULL && session->rights == NULL) {
        struct account *account = account_of(session->engine, name);
        bool crowded = !account_take(account, ACCOUNT_CONNECTIONS, why);
        if (!crowded)
            account_give(account, ACCOUNT_CONNECTIONS);
        identity_take(session, rights, name, logged_in);
        session->crowded = crowded;
        account_drop(account);
        return;
    }
    identity_take(session, rights, name, logged_in);
}

/* A certificate names a user of the file, who then needs no password; one that names nobody lets
 * nobody in, not even as `default`. Without a file its name is only shown. */
void identity_forget(struct session *session)
{
    const struct acl *acl = session->engine->acl;
    const struct acl_user *user = acl_newcomer(acl, session->trusted);

    if (session->certified == NULL) {
        take_newcomer(session, user, ACL_DEFAULT_USER, false);
    } else if (!acl_has_file(acl)) {
        take_newcomer(session, user, session->certified, false);
    } else {
        user = acl_find(acl, bytes_of(session->certified));
        take_newcomer(session, user != NULL && user->on ? user : NULL, session->certified, true);
    }
}

void identity_end(struct session *session)
{
    if (session->counted)
        account_give(session->account, ACCOUNT_CONNECTIONS);
    session->counted = false;
    account_drop(session->account);
    session->account = NULL;
}

struct bytes identity_scope(const struct session *session, struct bytes name, struct buf *out)
{
    const char *user = session_user(session);
    size_t at = out->len;

    if (strcmp(user, ACL_DEFAULT_USER) == 0 &&
        (name.len == 0 || memchr(name.data, SCOPE_MARK, name.len) == NULL))
        return name;
    buf_append_bytes(out, name);
    buf_append(out, &(char){SCOPE_MARK}, 1);
    buf_append_text(out, user);
    return (struct bytes){out->data + at, out->len - at};
}
