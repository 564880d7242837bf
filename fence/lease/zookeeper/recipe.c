/* SPDX-License-Identifier: Apache-2.0 */
/* The lock recipe. All znodes of a resource are ephemeral and sequential. The lowest one has the
 * resource: it is a lease, or a place in line whose turn has come.
 *
 *   list ──▶ get the head ──▶ decide ──┬──▶ create ──▶ list: is it the lowest? ──▶ granted
 *    ▲                                 ├──▶ set         our turn, entered again, renewed
 *    │                                 ├──▶ move        the same, where it is another daemon's
 *    │                                 ├──▶ delete      released, void, over
 *    │                                 └──▶ line up     watch the predecessor, answer HELD
 *    └───── another was faster ────────────┘
 *
 * - Each change names the version that it was decided on, so it cannot undo a later one.
 * - A lease's znode that turns out not to be the lowest is removed again. Only places in line stay,
 *   one for each daemon.
 * - Where an owner enters or renews a lease here that another daemon took, its znode moves to this
 *   daemon with its number, in one transaction. It would end with the other's session otherwise.
 * - A znode of ours that is not known here, because its creation was not answered, is a stray. It
 *   is removed when it is seen.
 *
 * Where the connection is lost on the way the call is answered DOWN. Nobody knows then whether a
 * change was made, so the resource is read again before anything counts. */
#include "fence/lease/zookeeper/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/provider_impl.h"

#define STEPS_MAX      50  /* of one task */
#define OTHERS_TURN_MS 100 /* when to ask again while another daemon has not taken its turn yet */

static void list_nodes(struct zk_task *task);
static void decide(struct zk_task *task);
static void run(struct zk_task *task);

static struct zk_connection *connection_of(const struct zk_task *task)
{
    return task->resource->all->connection;
}

static struct zk_session *session_of(const struct zk_task *task)
{
    return connection_of(task)->session;
}

static int64_t now_ms(const struct zk_task *task)
{
    return zk_now_ms(connection_of(task));
}

static bool same(const struct node_name *a, const struct node_name *b)
{
    return strcmp(a->text, b->text) == 0;
}

/* The path of one of the resource's znodes; good until the next call. */
static const char *path_of(const struct zk_task *task, const char *node)
{
    char *out = task->resource->all->path;

    text_print(out, NODE_PATH_MAX + 1, "%s/%s", task->resource->path, node);
    return out;
}

/* Tasks of a resource, one after the other. */

/* Run tasks until one has to wait for ZooKeeper. Tasks that end at once do not nest. */
static void run_tasks(struct zk_resource *resource)
{
    unsigned ended;

    if (resource->starting_tasks)
        return;
    resource->starting_tasks = true;
    do {
        ended = resource->tasks_ended;
        if (!list_empty(&resource->tasks))
            run(list_entry(resource->tasks.next, struct zk_task, link));
    } while (resource->tasks_ended != ended);
    resource->starting_tasks = false;
    zk_resource_free_if_idle(resource);
}

static struct zk_task *task_new(struct zk_resource *resource, enum zk_task_kind kind)
{
    struct zk_task *task = mem_zalloc(sizeof *task);

    task->resource = resource;
    task->kind = kind;
    list_init(&task->in_asked);
    return task;
}

struct zk_task *zk_task_new(struct zk_resource *resource, struct lease_call *call,
                            void (*on_answered)(struct zk_task *task, struct lease_call *call))
{
    struct zk_task *task = task_new(resource, ZK_TASK_CALL);

    task->ask = *call;
    task->ask.resource = resource->name;
    task->call = call;
    task->on_answered = on_answered;
    return task;
}

void zk_task_add(struct zk_task *task)
{
    struct zk_resource *resource = task->resource;
    bool idle = list_empty(&resource->tasks);

    list_append(&resource->tasks, &task->link);
    if (idle)
        run_tasks(resource);
}

/* Add a task, unless one of this kind waits already. (A running one may be past the point.) */
static void add_once(struct zk_resource *resource, enum zk_task_kind kind)
{
    for (const struct list *at = resource->tasks.next; at != &resource->tasks; at = at->next)
        if (at != resource->tasks.next && list_entry(at, struct zk_task, link)->kind == kind)
            return;
    zk_task_add(task_new(resource, kind));
}

void zk_recipe_tidy(struct zk_resource *resource)
{
    add_once(resource, ZK_TASK_TIDY);
}

void zk_recipe_line_up(struct zk_resource *resource)
{
    add_once(resource, ZK_TASK_LINE_UP);
}

void zk_recipe_line_moved(struct zk_resource *resource, const char *node)
{
    if (strcmp(resource->place.predecessor.text, node) == 0)
        resource->place.predecessor.text[0] = '\0'; /* a watch reports one change */
    if (zk_is_in_line(resource) && resource->all->connection->state == ZK_READY)
        zk_recipe_line_up(resource);
}

/* End the running task and start the next one. */
static void end(struct zk_task *task)
{
    struct zk_resource *resource = task->resource;

    check(resource->tasks.next == &task->link && task->call == NULL);
    list_remove(&task->link);
    free(task);
    resource->tasks_ended++;
    run_tasks(resource);
}

/* The end of a task. */

static void report(struct zk_task *task)
{
    struct lease_call *call = task->call;

    task->call = NULL;
    task->on_answered(task, call);
}

static void answer(struct zk_task *task, enum lease_answer verdict, int64_t token, int64_t ttl_ms)
{
    reconnect_accepted(&connection_of(task)->reconnect);
    if (task->call != NULL) {
        lease_answer(task->call, verdict, token, ttl_ms);
        report(task);
    }
    end(task);
}

static void answer_down(struct zk_task *task, const char *why)
{
    if (task->call == NULL)
        return;
    lease_answer_down(task->call, "%s", why);
    report(task);
}

void zk_recipe_owe_release(struct zk_resource *resource, const struct lease_call *call)
{
    if (call->verb == LEASE_RELEASE && zk_holds(resource) &&
        strcmp(resource->held.lease.nonce, call->nonce) == 0 &&
        resource->held.lease.token == call->token)
        zk_hold_end(resource);
}

static void fail(struct zk_task *task, const char *why)
{
    zk_recipe_owe_release(task->resource, &task->ask);
    answer_down(task, why);
    end(task);
}

void zk_task_abandon(struct zk_task *task, const char *why)
{
    bool running = task->resource->tasks.next == &task->link;

    answer_down(task, why);
    if (running)
        return;
    zk_recipe_owe_release(task->resource, &task->ask);
    list_remove(&task->link);
    free(task);
}

/* Was that the client library, and not ZooKeeper's own word? */
static bool outcome_unknown(int rc)
{
    return (rc != ZOK && rc > ZAPIERROR) || rc == ZCLOSING;
}

static void fail_with(struct zk_task *task, int rc)
{
    char why[128];

    if (outcome_unknown(rc))
        task->resource->held.may_differ = true;
    zk_connection_refused(connection_of(task), rc, why, sizeof why);
    fail(task, why);
}

/* Has somebody else been there first? */
static bool overtaken(const struct zk_task *task)
{
    int rc = task->request.rc;
    return rc == ZNONODE || rc == ZNODEEXISTS || rc == ZBADVERSION;
}

static void on_answer(struct zk_request *request)
{
    struct zk_task *task = list_entry(request, struct zk_task, request);

    zk_connection_heard(connection_of(task), request->rc);
    if (request->rc == ZOK || overtaken(task))
        task->next(task);
    else
        fail_with(task, request->rc);
}

/* Return the task's request. Its answer leads to `next`, unless it is an error: that ends the task.
 */
static struct zk_request *request_for(struct zk_task *task, void (*next)(struct zk_task *task))
{
    task->next = next;
    task->request.on_answer = on_answer;
    return &task->request;
}

/* Does the task go on? If not it has ended here. */
static bool may_step(struct zk_task *task)
{
    if (connection_of(task)->state != ZK_READY)
        fail(task, zk_connection_why(connection_of(task)));
    else if (++task->steps > STEPS_MAX)
        fail(task, "others are always faster at this resource");
    else
        return true;
    return false;
}

/* List and read: who is at the head? What is over or left behind is removed on the way. */

static void on_stray_removed(struct zk_request *request)
{
    free(request);
}

static void remove_stray(struct zk_task *task, const struct node_name *node)
{
    if (connection_of(task)->state != ZK_READY) {
        task->resource->may_have_stray = true;
        return;
    }
    struct zk_request *request = mem_zalloc(sizeof *request);
    request->on_answer = on_stray_removed;
    zk_delete(session_of(task), request, path_of(task, node->text), -1);
}

/* Find the head and our predecessor, and see whether our own znodes are still there. */
static void note_nodes(struct zk_task *task, const struct zk_request *listing)
{
    struct zk_resource *resource = task->resource;
    bool lease_seen = false, place_seen = false;

    task->head.text[0] = task->predecessor.text[0] = '\0';
    resource->may_have_stray = false;
    for (int i = 0; i < listing->names_count; i++) {
        struct node_name node;
        if (!node_name_parse(listing->names[i], &node))
            continue;
        bool is_lease = same(&node, &resource->held.node);
        bool is_place = same(&node, &resource->place.node);
        lease_seen |= is_lease;
        place_seen |= is_place;
        if (node_is_of(&node, connection_of(task)->origin) && !is_lease && !is_place &&
            !same(&node, &task->made)) {
            remove_stray(task, &node);
            continue;
        }
        if (task->head.text[0] == '\0' || node_before(&node, &task->head))
            task->head = node;
        if (zk_is_in_line(resource) && node_before(&node, &resource->place.node) &&
            (task->predecessor.text[0] == '\0' || node_before(&task->predecessor, &node)))
            task->predecessor = node;
    }
    if (!lease_seen)
        zk_hold_forget(resource);
    if (!place_seen)
        zk_place_forget(resource);
}

/* Remove the head, in the version that was decided on. */
static void remove_head(struct zk_task *task, void (*next)(struct zk_task *task))
{
    task->resource->held.removing |= same(&task->head, &task->resource->held.node);
    zk_delete(session_of(task), request_for(task, next), path_of(task, task->head.text),
              task->version);
}

/* The head is our own lease, as far as we know. */
static void see_own_lease(struct zk_task *task)
{
    const struct zk_resource *resource = task->resource;

    task->found = ZK_LEASE;
    task->head = resource->held.node;
    task->lease = resource->held.lease;
    task->version = resource->held.version;
    task->left_ms = resource->held.until_ms - now_ms(task);
}

/* What is left of another daemon's lease. It is over when it has not changed for its TTL since it
 * was first seen here: no clock but our own decides about that. */
static int64_t left_since_seen_ms(struct zk_task *task, int32_t version)
{
    struct zk_resource *resource = task->resource;

    if (!same(&resource->seen.node, &task->head) || resource->seen.version != version) {
        resource->seen.node = task->head;
        resource->seen.version = version;
        resource->seen.since_ms = now_ms(task);
    }
    return resource->seen.since_ms + task->lease.ttl_ms - now_ms(task);
}

/* The same by the servers' clock, where that makes sense: good enough to tell people. */
static int64_t left_by_server_ms(const struct zk_task *task, int64_t mtime_ms, int64_t or_else_ms)
{
    const struct zk_connection *connection = connection_of(task);
    int64_t ttl_ms = task->lease.ttl_ms;
    int64_t left_ms = mtime_ms + ttl_ms - (now_ms(task) + connection->server_ahead_ms);

    if (!connection->server_ahead_known)
        return ttl_ms;
    return left_ms <= 0 || left_ms > ttl_ms ? or_else_ms : left_ms;
}

static void see_lease(struct zk_task *task)
{
    const struct zk_request *read = &task->request;
    struct zk_resource *resource = task->resource;
    bool own = same(&task->head, &resource->held.node);
    int64_t ttl_ms = task->lease.ttl_ms, left_ms = ttl_ms;

    task->found = ZK_LEASE;
    if (own && resource->held.until_ms <= now_ms(task)) {
        /* It was released, and that was lost on the way: reading it must not revive it. */
        remove_head(task, list_nodes);
        return;
    }
    if (own) /* another daemon wrote it, or an answer was lost */
        zk_hold(resource, &task->head, &task->lease, read->version, now_ms(task) + ttl_ms);
    else
        left_ms = left_since_seen_ms(task, read->version);
    task->left_ms = left_by_server_ms(task, read->mtime_ms, left_ms);
    if (left_ms > 0)
        decide(task);
    else
        remove_head(task, list_nodes); /* its daemon is dead or asleep */
}

static void on_head_read(struct zk_task *task)
{
    const struct zk_request *request = &task->request;

    if (overtaken(task)) {
        list_nodes(task);
        return;
    }
    if (!may_step(task))
        return;
    task->version = request->version;
    if (!node_read((struct bytes){request->text, request->text_len}, request->zxid, &task->lease))
        task->lease = (struct node_lease){.ttl_ms = OTHERS_TURN_MS};
    if (!task->lease.queued) {
        see_lease(task);
        return;
    }
    task->found = ZK_OTHERS_PLACE;
    task->left_ms = OTHERS_TURN_MS;
    decide(task);
}

static void on_listed(struct zk_task *task)
{
    const struct zk_resource *resource = task->resource;

    task->no_container = task->request.rc == ZNONODE;
    note_nodes(task, &task->request);
    if (!may_step(task))
        return;
    if (task->head.text[0] == '\0') {
        task->found = ZK_NOBODY;
        decide(task);
    } else if (same(&task->head, &resource->place.node)) {
        task->found = ZK_OUR_PLACE;
        decide(task);
    } else if (task->kind == ZK_TASK_LINE_UP) {
        task->found = ZK_OTHERS_PLACE; /* or lease: it makes no difference */
        decide(task);
    } else if (same(&task->head, &resource->held.node) && !resource->held.may_differ) {
        see_own_lease(task);
        if (task->left_ms > 0 || task->kind == ZK_TASK_TIDY)
            decide(task);
        else
            remove_head(task, list_nodes);
    } else {
        zk_get(session_of(task), request_for(task, on_head_read), path_of(task, task->head.text));
    }
}

static void list_nodes(struct zk_task *task)
{
    if (may_step(task))
        zk_children(session_of(task), request_for(task, on_listed), task->resource->path);
}

/* Create: a lease, or a place in line. */

static void create(struct zk_task *task);

/* The lease is ours and lives its TTL from when it was asked for. (Others count from when they see
 * it.) */
static void hold(struct zk_task *task, const struct node_name *node, int32_t version)
{
    zk_hold(task->resource, node, &task->lease, version, task->ask.asked_ms + task->lease.ttl_ms);
}

/* A grant that nobody has heard of is over at once. */
static void answer_grant(struct zk_task *task, enum lease_answer verdict)
{
    int64_t token = task->lease.token, ttl_ms = task->lease.ttl_ms;

    if (task->call == NULL && task->ask.verb == LEASE_GRANT)
        zk_hold_end(task->resource);
    answer(task, verdict, token, ttl_ms);
}

static void on_container_created(struct zk_task *task)
{
    if (!may_step(task))
        return;
    if (task->request.rc == ZNONODE)
        zk_connection_make_base(connection_of(task));
    create(task);
}

static void create_container(struct zk_task *task)
{
    zk_create(session_of(task), request_for(task, on_container_created), task->resource->path, "",
              0, ZK_CONTAINER);
}

static void lease_created(struct zk_task *task)
{
    if (!same(&task->head, &task->made)) {
        remove_stray(task, &task->made); /* another was faster */
        task->made.text[0] = '\0';
        list_nodes(task);
        return;
    }
    if (task->ask.verb == LEASE_GRANT)
        task->lease.token = node_token(task->made_zxid, task->ask.floor);
    hold(task, &task->made, task->made_version);
    zk_hold_watch(task->resource);
    answer_grant(task, LEASE_GRANTED);
}

static void on_listed_after_create(struct zk_request *request)
{
    struct zk_task *task = list_entry(request, struct zk_task, listing);
    struct zk_resource *resource = task->resource;

    if (task->made_rc == ZNONODE) {
        if (may_step(task))
            create_container(task);
        return;
    }
    if (task->made_rc != ZOK || request->rc != ZOK) {
        resource->may_have_stray = task->made_rc == ZOK || outcome_unknown(task->made_rc) ||
                                   task->made_rc == ZDATAINCONSISTENCY;
        fail_with(task, task->made_rc != ZOK ? task->made_rc : request->rc);
        return;
    }
    if (task->kind == ZK_TASK_LINE_UP)
        zk_place_take(resource, &task->made, task->made_zxid);
    note_nodes(task, request);
    if (!may_step(task))
        return;
    if (task->kind == ZK_TASK_LINE_UP) {
        task->found = same(&task->head, &task->made) ? ZK_OUR_PLACE : ZK_OTHERS_PLACE;
        decide(task);
    } else {
        lease_created(task);
    }
}

/* Does the answer name a znode of this session? Else it is no ZooKeeper, or something between. */
static bool take_made(struct zk_task *task, const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL && node_name_parse(slash + 1, &task->made) &&
           node_is_of(&task->made, connection_of(task)->origin);
}

static void on_created(struct zk_request *request)
{
    struct zk_task *task = list_entry(request, struct zk_task, request);

    zk_connection_heard(connection_of(task), request->rc);
    task->made_rc = request->rc;
    if (request->rc != ZOK)
        return;
    if (!take_made(task, request->text)) {
        task->made.text[0] = '\0';
        task->made_rc = ZDATAINCONSISTENCY;
        return;
    }
    task->made_zxid = request->zxid;
    task->made_version = request->version;
    zk_connection_note_time(connection_of(task), request->mtime_ms);
}

/* Create the znode, and ask in the same go which one is the lowest now. */
static void create(struct zk_task *task)
{
    char prefix[NODE_NAME_MAX + 1], data[NODE_DATA_MAX];

    if (!may_step(task))
        return;
    text_print(prefix, sizeof prefix, "%s-", connection_of(task)->origin);
    int len = node_write(&task->lease, task->ask.verb == LEASE_RENEW, data);
    task->request.on_answer = on_created;
    task->listing.on_answer = on_listed_after_create;
    zk_create(session_of(task), &task->request, path_of(task, prefix), data, len,
              ZK_EPHEMERAL_SEQUENTIAL);
    zk_children(session_of(task), &task->listing, task->resource->path);
}

/* The lease that is asked for; `zxid`: of its znode, 0 where there is none yet. False: the task has
 * ended. */
static bool write_lease(struct zk_task *task, int64_t zxid)
{
    const struct lease_call *ask = &task->ask;

    task->lease = (struct node_lease){.ttl_ms = ask->ttl_ms};
    memcpy(task->lease.nonce, ask->nonce, sizeof task->lease.nonce);
    task->lease.token = ask->verb == LEASE_RENEW ? ask->token : node_token(zxid, ask->floor);
    if (task->lease.token != 0)
        return true;
    fail(task, "the tokens of this resource are used up");
    return false;
}

static void create_lease(struct zk_task *task)
{
    if (!write_lease(task, 0))
        return;
    if (task->no_container)
        create_container(task);
    else
        create(task);
}

/* Set: our place becomes a lease, or our lease lives longer. */

static void answer_kept(struct zk_task *task)
{
    if (task->ask.verb == LEASE_RENEW)
        answer(task, LEASE_GRANTED, task->lease.token, task->lease.ttl_ms);
    else if (task->found == ZK_OUR_PLACE)
        answer_grant(task, LEASE_GRANTED);
    else
        answer(task, LEASE_OWN, task->lease.token, task->lease.ttl_ms);
}

static void on_set(struct zk_task *task)
{
    bool our_turn = task->found == ZK_OUR_PLACE;

    if (our_turn)
        zk_place_forget(task->resource);
    if (overtaken(task)) {
        task->resource->held.may_differ = true;
        list_nodes(task);
        return;
    }
    zk_connection_note_time(connection_of(task), task->request.mtime_ms);
    hold(task, &task->head, task->request.version);
    if (our_turn)
        zk_hold_watch(task->resource);
    answer_kept(task);
}

static void set(struct zk_task *task)
{
    char data[NODE_DATA_MAX];
    int len = node_write(&task->lease, true, data);

    zk_set(session_of(task), request_for(task, on_set), path_of(task, task->head.text), data, len,
           task->version);
}

static void take_turn(struct zk_task *task)
{
    task->version = -1; /* nobody else writes it */
    if (write_lease(task, task->resource->place.zxid))
        set(task);
}

/* Move: another daemon's lease becomes ours. */

static void on_moved(struct zk_task *task)
{
    if (overtaken(task)) {
        list_nodes(task);
        return;
    }
    hold(task, &task->made, 0);
    zk_hold_watch(task->resource);
    answer_kept(task);
}

static void on_move_answered(struct zk_request *request)
{
    struct zk_task *task = list_entry(request, struct zk_task, request);

    task->resource->may_have_stray |= outcome_unknown(request->rc);
    on_answer(request);
}

static void move(struct zk_task *task)
{
    char gone[NODE_PATH_MAX + 1], data[NODE_DATA_MAX];
    int len = node_write(&task->lease, true, data);

    task->made = node_name_at(&task->head, connection_of(task)->origin);
    text_print(gone, sizeof gone, "%s", path_of(task, task->head.text));
    request_for(task, on_moved)->on_answer = on_move_answered;
    zk_move(session_of(task), &task->request, gone, task->version, path_of(task, task->made.text),
            data, len);
}

static void extend(struct zk_task *task)
{
    task->lease.ttl_ms = task->ask.ttl_ms;
    if (node_is_of(&task->head, connection_of(task)->origin))
        set(task);
    else
        move(task);
}

/* Delete: the lease is released. */

static void on_released(struct zk_task *task)
{
    struct zk_resource *resource = task->resource;

    if (task->request.rc != ZBADVERSION && same(&task->head, &resource->held.node))
        zk_hold_forget(resource);
    if (overtaken(task)) { /* over, or with another daemon now */
        resource->held.may_differ = true;
        list_nodes(task);
    } else {
        answer(task, LEASE_FREE, 0, 0);
    }
}

static void on_marked(struct zk_task *task)
{
    if (task->request.rc != ZOK) {
        on_released(task);
    } else if (may_step(task)) {
        task->version = task->request.version;
        remove_head(task, on_released);
    }
}

/* Where it is taken from another daemon by force, that daemon is told first, by a mark. */
static void release(struct zk_task *task)
{
    if (!task->ask.revoked || node_is_of(&task->head, connection_of(task)->origin))
        remove_head(task, on_released);
    else
        zk_set(session_of(task), request_for(task, on_marked), path_of(task, task->head.text), "x",
               1, task->version);
}

/* Decide: what the call does about what was found. */

/* Another has it: where somebody waits for it, this daemon lines up. */
static void answer_held(struct zk_task *task)
{
    struct zk_resource *resource = task->resource;
    bool waits = task->ask.verb == LEASE_GRANT && !task->ask.reentry_only && task->ask.waits;
    int64_t token = task->found == ZK_LEASE ? task->lease.token : 0;

    if (waits) {
        resource->place.awaited_token = token;
        zk_place_keep(resource);
        if (!zk_is_in_line(resource) || resource->place.predecessor.text[0] == '\0')
            zk_recipe_line_up(resource);
    }
    answer(task, LEASE_HELD, token, task->left_ms > 0 ? task->left_ms : 1);
}

static void decide_grant(struct zk_task *task, bool mine)
{
    if (mine && task->lease.token != task->ask.void_token)
        extend(task);
    else if (task->found == ZK_OTHERS_PLACE || (task->found == ZK_LEASE && !mine))
        answer_held(task);
    else if (task->ask.reentry_only)
        answer(task, LEASE_FREE, 0, 0);
    else if (mine) /* void */
        remove_head(task, list_nodes);
    else if (task->found == ZK_OUR_PLACE)
        take_turn(task);
    else
        create_lease(task);
}

static void decide_call(struct zk_task *task)
{
    const struct lease_call *ask = &task->ask;
    bool lease = task->found == ZK_LEASE;
    bool mine = lease && strcmp(task->lease.nonce, ask->nonce) == 0;
    bool named = mine && task->lease.token == ask->token;

    if (ask->verb == LEASE_GRANT)
        decide_grant(task, mine);
    else if (ask->verb == LEASE_RENEW && named)
        extend(task);
    else if (ask->verb == LEASE_RENEW && task->found == ZK_OUR_PLACE)
        take_turn(task);
    else if (ask->verb == LEASE_RENEW && task->found == ZK_NOBODY)
        create_lease(task);
    else if (ask->verb == LEASE_RELEASE && named)
        release(task);
    else if (lease || (ask->verb == LEASE_RENEW && task->found == ZK_OTHERS_PLACE))
        answer_held(task);
    else
        answer(task, LEASE_FREE, 0, 0);
}

/* Is it about a lease that is held here? Then nothing has to be read first: ZooKeeper refuses the
 * change where it knows better. */
static bool knows_enough(const struct zk_task *task)
{
    const struct zk_resource *resource = task->resource;
    const struct lease_call *ask = &task->ask;
    int64_t token = resource->held.lease.token;

    if (!zk_holds(resource) || resource->held.may_differ ||
        resource->held.until_ms <= now_ms(task) ||
        strcmp(resource->held.lease.nonce, ask->nonce) != 0)
        return false;
    return ask->verb == LEASE_GRANT ? token != ask->void_token
                                    : ask->verb != LEASE_QUERY && token == ask->token;
}

/* Tidy: what is over or left behind is removed. Where that fails it is tried again, when the
 * resource's time is up the next time. */

static void tidy(struct zk_task *task);

static void on_place_removed(struct zk_task *task)
{
    zk_place_forget(task->resource);
    tidy(task);
}

static void on_own_lease_removed(struct zk_task *task)
{
    if (task->request.rc == ZBADVERSION) {
        task->resource->held.may_differ = true;
        list_nodes(task);
    } else {
        zk_hold_forget(task->resource);
        tidy(task);
    }
}

static void tidy(struct zk_task *task)
{
    struct zk_resource *resource = task->resource;

    if (!may_step(task))
        return;
    if (zk_holds(resource) && resource->held.until_ms <= now_ms(task)) {
        see_own_lease(task);
        remove_head(task, on_own_lease_removed);
    } else if (zk_is_in_line(resource) && resource->place.until_ms <= now_ms(task)) {
        zk_delete(session_of(task), request_for(task, on_place_removed),
                  path_of(task, resource->place.node.text), -1);
    } else if (resource->may_have_stray) {
        list_nodes(task);
    } else {
        end(task);
    }
}

/* Line up: behind the others, with a watch on the predecessor alone. */

static void on_predecessor_watched(struct zk_task *task)
{
    if (overtaken(task)) {
        list_nodes(task);
    } else {
        task->resource->place.predecessor = task->predecessor;
        end(task);
    }
}

static void line_up(struct zk_task *task)
{
    struct zk_resource *resource = task->resource;

    if (task->found == ZK_OUR_PLACE) {
        resource->place.our_turn = true;
        zk_place_keep(resource);
        zk_tell(resource, resource->place.awaited_token, false);
        end(task);
    } else if (!zk_is_in_line(resource) || task->predecessor.text[0] == '\0' ||
               same(&task->predecessor, &resource->place.predecessor)) {
        end(task); /* the place is lost, or all is done */
    } else {
        zk_watch(session_of(task), request_for(task, on_predecessor_watched),
                 path_of(task, task->predecessor.text));
    }
}

static void decide(struct zk_task *task)
{
    switch (task->kind) {
    case ZK_TASK_CALL: decide_call(task); break;
    case ZK_TASK_TIDY: tidy(task); break;
    case ZK_TASK_LINE_UP: line_up(task); break;
    }
}

static void run(struct zk_task *task)
{
    if (task->kind == ZK_TASK_TIDY) {
        tidy(task);
    } else if (!may_step(task)) {
        return;
    } else if (task->kind == ZK_TASK_LINE_UP && !zk_is_in_line(task->resource)) {
        task->lease = (struct node_lease){.queued = true};
        create(task);
    } else if (task->kind == ZK_TASK_CALL && knows_enough(task)) {
        see_own_lease(task);
        decide_call(task);
    } else {
        list_nodes(task);
    }
}
