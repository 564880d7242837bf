/* SPDX-License-Identifier: Apache-2.0 */
/* What was granted and cannot be told, for its client has gone or its time is over, goes back: in
 * the store first where that has recorded it, so that the token writes nothing more, and then the
 * lease service's lock. */
#include <stdlib.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/scope.h"

/* Memory of its own: it is rare, and every acquire would have to carry it. */
struct giving_back {
    struct release release;
    struct acquire *acquire;
    void (*on_end)(struct acquire *acquire);
};

static void on_given_back(struct release *release)
{
    struct giving_back *back = list_entry(release, struct giving_back, release);
    struct acquire *acquire = back->acquire;
    void (*on_end)(struct acquire *) = back->on_end;

    acquire->engine->counters.leases_given_back++;
    if (release->error != STK_OK) /* nobody knows of the lease who could end it */
        release_owe(release, acquire->call.answer_until_ms);
    if (release->ended) /* else it was entered again, and goes on */
        engine_tell(acquire->engine, &(struct fact){
                                         .kind = FACT_GIVEN_BACK,
                                         .resource = acquire->resource,
                                         .owner = scope_name(acquire->grant.owner),
                                         .user = bytes_of(account_name(acquire->account)),
                                         .token = release->hold.token,
                                         .ttl_ms = acquire->ttl_ms,
                                         .holder = acquire->session,
                                     });
    free(back);
    on_end(acquire);
}

/* The store retires the token, the service lets go. A repeat that counted nothing has nothing to
 * give back; and what a repeat of this one has been told meanwhile is its client's. (Of one in a
 * basket there is no repeat yet.) */
void acquire_give_back(struct acquire *acquire, void (*on_end)(struct acquire *acquire))
{
    struct giving_back *back = mem_zalloc(sizeof *back);
    struct release *release = &back->release;
    bool has_repeats = acquire->options.id.len > 0 && acquire->way != WAY_BASKET;

    back->acquire = acquire;
    back->on_end = on_end;
    *release =
        (struct release){.engine = acquire->engine,
                         .kind = RELEASE_HOLD,
                         .hold = {acquire->resource, acquire->call.answer_token},
                         .opening = acquire->opening,
                         .connection = acquire_row_connection(acquire),
                         .own_only = has_repeats,
                         .grant_id = has_repeats ? acquire->options.id : (struct bytes){"", 0},
                         .value = acquire_is_by_value(acquire) ? scope_name(acquire->grant.owner)
                                                               : (struct bytes){"", 0},
                         .unannounced = true,
                         .on_end = on_given_back};
    if (acquire->recorded != RECORDED_REPEAT) {
        release_start(release);
        return;
    }
    if (acquire->options.ephemeral && acquire->session == NULL) /* it ends with that connection */
        release_ephemeral(acquire->engine, release->hold, (uint64_t)acquire->connection);
    on_given_back(release);
}

void acquire_let_go(struct acquire *acquire, void (*done)(struct lease_call *call))
{
    struct lease_call *call = &acquire->call;

    call->verb = LEASE_RELEASE;
    call->token = call->answer_token;
    call->done = done;
    lease_ask(acquire->engine->options.provider, call);
}
