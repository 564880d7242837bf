/* SPDX-License-Identifier: Apache-2.0 */
/* REVOKE from the page. Somebody has seen a lease there, thought about it, and confirmed: by then
 * another may hold the resource, who must not lose it. So the token is named, and where it is not
 * the newest one any more nothing happens. */
#include <stdlib.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/show/show.h"

struct job {
    struct release release;
    struct audit_wait audited;
    bool released, untold; /* untold: the audit could not take it */
    struct revocation *revocation;
};

/* Both have ended: the release, and the wait for its line in the audit. */
static void end(struct job *job)
{
    const struct release *release = &job->release;
    struct revocation *revocation = job->revocation;

    revocation->engine->requests_open--;
    revocation->error = release->error != STK_OK ? release->error : release->verdict;
    revocation->newest = release->retired_token;
    revocation->ended = release->error == STK_OK && release->ended;
    if (job->untold) {
        revocation->error = STK_STORE;
        revocation->ended = false;
    }
    free(job);
    revocation->on_end(revocation);
}

static void on_end(struct release *release)
{
    struct job *job = list_entry(release, struct job, release);

    job->released = true;
    if (list_empty(&job->audited.link))
        end(job);
}

static void on_audited(struct audit_wait *wait, bool on_disk)
{
    struct job *job = list_entry(wait, struct job, audited);

    job->untold = !on_disk;
    if (job->released)
        end(job);
}

void revocation_start(struct revocation *revocation)
{
    const struct audit *audit = &revocation->engine->options.audit;

    if (audit_refuses(audit, AUDIT_BIT(AUDIT_REVOKE)) != NULL) {
        revocation->error = STK_STORE;
        revocation->on_end(revocation);
        return;
    }
    struct job *job = mem_zalloc(sizeof *job);
    job->revocation = revocation;
    job->audited.on_end = on_audited;
    list_init(&job->audited.link);
    job->release = (struct release){.engine = revocation->engine,
                                    .kind = RELEASE_REVOKE,
                                    .hold = {revocation->resource, revocation->token},
                                    .by = {.user = bytes_of(revocation->user),
                                           .address = bytes_of(revocation->from),
                                           .audited = &job->audited},
                                    .reason = revocation->reason,
                                    .on_end = on_end};
    revocation->engine->requests_open++;
    release_start(&job->release);
}
