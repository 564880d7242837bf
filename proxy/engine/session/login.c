/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/session/login.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/account.h"
#include "proxy/engine/session/identity.h"
#include "proxy/engine/session/rights.h"

/* A password that is being checked on another thread. */
struct login {
    struct engine_job job;
    struct request *request;
    struct acl_trial *trial;
    void (*on_success)(struct request *request);
};

/* Is there neither a file of users nor a password? */
static bool is_open(const struct engine *engine)
{
    return !acl_has_file(engine->acl) && acl_newcomer(engine->acl, true) != NULL;
}

/* `user` is the name that was given. */
static void fail(struct request *request, struct bytes user)
{
    struct session *session = request->session;
    bool no_password = is_open(request->engine);

    if (session != NULL) {
        session_audit(session, (struct audit_note){.event = AUDIT_LOGIN_FAILED,
                                                   .code = no_password ? STK_ERR : STK_WRONGPASS,
                                                   .user = user});
        session_log_denial(session, "auth", BYTES_LITERAL("AUTH"), user);
    }
    if (no_password)
        request_fail(request, STK_ERR,
                     "AUTH <password> called without any password configured for the default "
                     "user. Are you sure your configuration is correct?");
    else
        request_fail(request, STK_WRONGPASS, NULL);
}

/* For now: it may be tried again. What was sent behind it is meant for the user that it names, and
 * is not done for the one that is still there. */
static void refuse(struct request *request, const char *why)
{
    if (request->session->refused == NULL)
        request->session->refused = request->command;
    request_fail(request, STK_BUSY, "%s", why);
}

static void succeed(struct request *request, const struct acl_user *user,
                    void (*on_success)(struct request *request))
{
    struct session *session = request->session;
    char why[ACCOUNT_WHY_SIZE];

    if (!identity_has_room(session, user->name, why)) {
        refuse(request, why);
        return;
    }
    if (session->refused != NULL && !(session->refused->flags & COMMAND_BEGINS))
        session->refused = NULL;
    identity_take(session, user, user->name, true);
    session_audit(session, (struct audit_note){.event = AUDIT_LOGIN, .user = bytes_of(user->name)});
    pubsub_drop_unheard(session);
    on_success(request);
}

static void run(struct engine_job *job)
{
    acl_trial_run(list_entry(job, struct login, job)->trial);
}

static void done(struct engine_job *job)
{
    struct login *login = list_entry(job, struct login, job);
    struct request *request = login->request;
    struct engine *engine = request->engine;
    char name[ACL_USER_MAX + 1];
    void (*on_success)(struct request *) = login->on_success;

    snprintf(name, sizeof name, "%s", acl_trial_user(login->trial));
    bool right = acl_trial_end(login->trial, engine->acl);
    engine->logins--;
    free(login);
    if (request->session != NULL)
        request->session->login = NULL;
    if (request->session == NULL)
        request_finish(request); /* nobody waits for the answer */
    else if (right)
        succeed(request, acl_find(engine->acl, bytes_of(name)), on_success);
    else
        fail(request, bytes_of(name));
}

/* Check against crypt(3), which takes long on purpose, on another thread. */
static void start_trial(struct request *request, const struct acl_user *user, struct bytes password,
                        void (*on_success)(struct request *request))
{
    struct engine *engine = request->engine;

    if (engine->logins >= LOGINS_MAX) {
        char why[ACCOUNT_WHY_SIZE];
        snprintf(why, sizeof why, "%d passwords are being checked already; try again", LOGINS_MAX);
        refuse(request, why);
        return;
    }
    struct login *login = mem_zalloc(sizeof *login);
    *login = (struct login){.job = {run, done, NULL},
                            .request = request,
                            .trial = acl_trial_new(engine->acl, user, password),
                            .on_success = on_success};
    engine->logins++;
    request->session->login = request;
    run_aside(engine, &login->job);
}

void login_start(struct request *request, struct bytes name, struct bytes password,
                 void (*on_success)(struct request *request))
{
    const struct acl_user *user = acl_find(request->engine->acl, name);
    enum acl_login answer = user == NULL || !user->on || is_open(request->engine)
                                ? ACL_WRONG
                                : acl_check_password(user, password);

    if (!request_may_audit(request, AUDIT_BIT(AUDIT_LOGIN) | AUDIT_BIT(AUDIT_LOGIN_FAILED)))
        return;
    switch (answer) {
    case ACL_RIGHT: succeed(request, user, on_success); break;
    case ACL_WRONG: fail(request, name); break;
    case ACL_SLOW: start_trial(request, user, password, on_success); break;
    }
}

/* Users have changed. */

/* May it still do what it waits for? */
static bool may_wait(const struct session *session)
{
    struct denial denial;

    for (struct list *at = session->pending.next; at != &session->pending; at = at->next) {
        struct request *request = list_entry(at, struct request, link);
        if (request->stage != REQUEST_FINISHED && request->command->abandon != NULL &&
            (session->rights == NULL || !rights_permit(session->rights, request, &denial)))
            return false;
    }
    return true;
}

/* Give it its user's new rights. False: it waits for or listens to what it now may not, or its user
 * is gone. */
static bool update_rights(struct session *session)
{
    bool was_logged_in = session->logged_in;

    if (was_logged_in) {
        const struct acl_user *user =
            acl_find(session->engine->acl, bytes_of(account_name(session->account)));
        user = user != NULL && user->on ? user : NULL;
        if (session->rights == NULL && user != NULL) /* a certificate's, which was unknown */
            identity_take(session, user, user->name, true);
        else
            session->rights = user;
    } else {
        identity_forget(session);
    }
    return (session->rights != NULL || !was_logged_in) && may_wait(session) &&
           pubsub_may_listen(session);
}

void engine_set_acl(struct engine *engine, struct acl *acl)
{
    struct acl *old = engine->acl;
    size_t ended = 0;

    engine->acl = acl;
    for (struct list *at = engine->sessions.next; at != &engine->sessions; at = at->next) {
        struct session *session = list_entry(at, struct session, link);
        if (update_rights(session))
            continue;
        ended++;
        session_kill(session);
    }
    acl_drop(old);
    if (ended > 0)
        log_info(engine->options.log,
                 "users have changed: closed %zu connections that did what is not allowed any more",
                 ended);
}
