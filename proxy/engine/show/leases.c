/* SPDX-License-Identifier: Apache-2.0 */
/* The list of leases, filtered and sorted, from which the page asks for windows:
 *
 *   asked ──▶ COPYING ──whole table seen──▶ MERGING ──as far as a window wants──▶ answered
 *               ▲                              │
 *               └────────── too old ───────────┘
 *
 * COPYING goes through the table of leases a part at a time, and copies what matches: leases come
 * and go meanwhile. Each RUN of copies is sorted at once. MERGING takes the first of all runs,
 * again and again, which costs no more than how far down a window lies.
 *
 * Bounds: STEP rows in a step; LISTS_MAX lists; ROWS_MAX rows and TEXT_MAX bytes of names in a
 * list, of which the page is told (`cut`). A list that nobody has asked for within UNUSED_MS is
 * freed. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/glob.h"
#include "fence/base/mem.h"
#include "proxy/engine/show/lease_json.h"
#include "proxy/engine/show/show.h"

enum {
    STEP = 3000,
    RUN = 512,
    LISTS_MAX = 16,
    ROWS_MAX = 200000,
    TEXT_MAX = 32 << 20,  /* bytes of a list's names */
    BYTES_MAX = 96 << 20, /* of all lists together, beyond which one that is not in use goes */
    UNUSED_MS = 10000,
    /* A list of so many leases is used again for 1 ms, a longer one longer: that bounds the share
     * of the loop that making it takes, however many pages are open. */
    ROWS_FRESH_ONE_MS = 30
};

/* One lease, as it was when it was copied. */
struct row {
    int64_t token, granted_ms, until_ms, waiting_since_ms, waiters, key;
    int32_t ttl_ms;
    uint32_t text; /* where its names begin */
    uint16_t resource_len, owner_len, client_len, address_len;
};

/* A run that is sorted, and how far it is merged. */
struct run {
    size_t at, end;
};

enum phase { COPYING, MERGING };

struct view {
    struct list link; /* lists->views, the one used last at the end */
    struct engine *engine;
    struct buf match, sort; /* as asked */
    struct reader reader;   /* the same; its acl is kept */
    const struct order *order;
    bool down;
    struct glob *glob; /* of `match`; NULL: a part of a name */
    enum phase phase;
    struct held_walk walk;
    size_t seen, matched, total;
    struct row *rows;
    size_t count, cap;
    struct buf text;
    uint32_t *sorted; /* rows: RUN by RUN while COPYING */
    uint32_t *merged; /* rows in their order, as far as they are known */
    size_t merged_count;
    struct run *runs; /* a heap: the run with the first row on top */
    size_t runs_count;
    int64_t made_ms, used_ms;
    uint64_t changes;    /* show_counts, when it was begun */
    struct list windows; /* that wait for it */
};

struct lists {
    struct engine *engine;
    struct list views;
    size_t count;
};

/* Orders. */

static int64_t key_wait(const struct shown_lease *lease)
{
    return lease->waiting_since_ms < 0 ? INT64_MAX : lease->waiting_since_ms;
}

static int64_t key_token(const struct shown_lease *lease)
{
    return lease->token;
}

static int64_t key_left(const struct shown_lease *lease)
{
    return lease->until_ms;
}

static int64_t key_granted(const struct shown_lease *lease)
{
    return lease->granted_ms;
}

static int64_t key_waiters(const struct shown_lease *lease)
{
    return -lease->waiters;
}

/* The first bytes as a number, which decides most comparisons. */
static int64_t key_text(struct bytes text)
{
    uint64_t key = 0;

    for (size_t i = 0; i < 7; i++)
        key = key << 8 | (i < text.len ? (unsigned char)text.data[i] : 0);
    return (int64_t)key;
}

static int64_t key_resource(const struct shown_lease *lease)
{
    return key_text(lease->resource);
}

static int64_t key_owner(const struct shown_lease *lease)
{
    return key_text(lease->owner);
}

static int64_t key_client(const struct shown_lease *lease)
{
    return key_text(lease->client);
}

static struct bytes resource_of(const struct view *view, const struct row *row)
{
    return (struct bytes){view->text.data + row->text, row->resource_len};
}

static struct bytes owner_of(const struct view *view, const struct row *row)
{
    return (struct bytes){view->text.data + row->text + row->resource_len, row->owner_len};
}

static struct bytes client_of(const struct view *view, const struct row *row)
{
    return (struct bytes){view->text.data + row->text + row->resource_len + row->owner_len,
                          row->client_len};
}

static const struct order {
    const char *name;
    int64_t (*key)(const struct shown_lease *lease);
    struct bytes (*text)(const struct view *view, const struct row *row); /* where keys are equal */
} orders[] = {
    {"wait", key_wait, NULL},       {"resource", key_resource, NULL},
    {"owner", key_owner, owner_of}, {"client", key_client, client_of},
    {"token", key_token, NULL},     {"left", key_left, NULL},
    {"granted", key_granted, NULL}, {"waiters", key_waiters, NULL},
};

static const struct order *order_of(struct bytes sort, bool *down)
{
    *down = sort.len > 0 && sort.data[0] == '-';
    if (*down)
        sort = (struct bytes){sort.data + 1, sort.len - 1};
    else if (sort.len == 0)
        return &orders[0];
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (bytes_equal(sort, bytes_of(orders[i].name)))
            return &orders[i];
    return NULL;
}

bool lists_know(struct bytes sort)
{
    bool down;
    return order_of(sort, &down) != NULL;
}

/* No two rows are equal, since no two have one resource. */
static int compare(const struct view *view, uint32_t a, uint32_t b)
{
    const struct row *left = &view->rows[a], *right = &view->rows[b];
    int order = (left->key > right->key) - (left->key < right->key);

    if (order == 0 && view->order->text != NULL)
        order = bytes_compare(view->order->text(view, left), view->order->text(view, right));
    if (order == 0)
        order = bytes_compare(resource_of(view, left), resource_of(view, right));
    return view->down ? -order : order;
}

static int compare_for_qsort(const void *a, const void *b, void *context)
{
    return compare(context, *(const uint32_t *)a, *(const uint32_t *)b);
}

/* Copying. */

static void grow(struct view *view)
{
    view->cap = view->cap == 0 ? RUN : view->cap * 2;
    view->rows = mem_realloc(view->rows, view->cap * sizeof *view->rows);
    view->sorted = mem_realloc(view->sorted, view->cap * sizeof *view->sorted);
}

static void sort_run(struct view *view)
{
    size_t begin = view->count == 0 ? 0 : (view->count - 1) / RUN * RUN;

    qsort_r(view->sorted + begin, view->count - begin, sizeof *view->sorted, compare_for_qsort,
            view);
}

static void copy(void *context, const struct held_shown *held)
{
    struct view *view = context;

    view->seen++;
    if (!show_matches(buf_bytes(&view->match), view->glob, held->resource) ||
        !reader_may(view->reader, held->resource))
        return;
    view->matched++;
    if (view->count == ROWS_MAX || view->text.len > TEXT_MAX)
        return;
    if (view->count == view->cap)
        grow(view);
    const struct shown_lease lease = lease_shown(view->engine, held);
    view->rows[view->count] = (struct row){
        .token = lease.token,
        .granted_ms = lease.granted_ms,
        .until_ms = lease.until_ms,
        .waiting_since_ms = lease.waiting_since_ms,
        .waiters = lease.waiters,
        .key = view->order->key(&lease),
        .ttl_ms = (int32_t)lease.ttl_ms,
        .text = (uint32_t)view->text.len,
        .resource_len = (uint16_t)lease.resource.len,
        .owner_len = (uint16_t)lease.owner.len,
        .client_len = (uint16_t)lease.client.len,
        .address_len = (uint16_t)lease.address.len,
    };
    buf_append_bytes(&view->text, lease.resource);
    buf_append_bytes(&view->text, lease.owner);
    buf_append_bytes(&view->text, lease.client);
    buf_append_bytes(&view->text, lease.address);
    view->sorted[view->count] = (uint32_t)view->count;
    view->count++;
    if (view->count % RUN == 0)
        sort_run(view);
}

static void begin(struct view *view)
{
    view->phase = COPYING;
    view->changes = show_counts(view->engine).changes;
    view->walk = (struct held_walk){0};
    view->seen = view->matched = view->count = view->merged_count = view->runs_count = 0;
    buf_clear(&view->text);
}

/* Merging. */

static bool run_is_before(const struct view *view, size_t a, size_t b)
{
    return compare(view, view->sorted[view->runs[a].at], view->sorted[view->runs[b].at]) < 0;
}

/* Let the run at `at` go down the heap to its place. */
static void sift(struct view *view, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < view->runs_count; at = child) {
        if (child + 1 < view->runs_count && run_is_before(view, child + 1, child))
            child++;
        if (!run_is_before(view, child, at))
            return;
        struct run run = view->runs[at];
        view->runs[at] = view->runs[child];
        view->runs[child] = run;
    }
}

static void begin_merge(struct view *view)
{
    if (view->count % RUN != 0)
        sort_run(view);
    view->phase = MERGING;
    view->total = view->engine->held.count;
    view->made_ms = engine_now_ms(view->engine);
    view->runs_count = (view->count + RUN - 1) / RUN;
    view->runs = mem_realloc(view->runs, (view->runs_count + 1) * sizeof *view->runs);
    view->merged = mem_realloc(view->merged, (view->count + 1) * sizeof *view->merged);
    for (size_t i = 0; i < view->runs_count; i++) {
        size_t end = (i + 1) * RUN;
        view->runs[i] = (struct run){i * RUN, end < view->count ? end : view->count};
    }
    for (size_t i = view->runs_count / 2; i-- > 0;)
        sift(view, i);
}

/* Merge until `wanted` rows are in their order, at most `max` of them now. */
static void merge(struct view *view, size_t wanted, size_t max)
{
    for (; max > 0 && view->merged_count < wanted && view->runs_count > 0; max--) {
        struct run *first = &view->runs[0];
        view->merged[view->merged_count++] = view->sorted[first->at++];
        if (first->at == first->end)
            *first = view->runs[--view->runs_count];
        sift(view, 0);
    }
}

/* Answers. */

static size_t end_of(const struct view *view, const struct window *window)
{
    size_t from = window->from < view->count ? window->from : view->count;
    return window->count < view->count - from ? from + window->count : view->count;
}

/* Has nothing changed since it was begun? */
static bool is_current(const struct view *view)
{
    return view->changes == show_counts(view->engine).changes;
}

static void write_window(struct view *view, struct window *window)
{
    struct buf *json = &window->json;
    size_t end = end_of(view, window);

    buf_printf(json,
               "{\"total\":%zu,\"matched\":%zu,\"cut\":%s,\"current\":%s,\"from\":%zu,\"leases\":[",
               view->total, view->matched, view->matched > view->count ? "true" : "false",
               is_current(view) ? "true" : "false", window->from);
    for (size_t i = window->from; i < end; i++) {
        const struct row *row = &view->rows[view->merged[i]];
        struct bytes client = client_of(view, row);
        const struct shown_lease lease = {
            .resource = resource_of(view, row),
            .owner = owner_of(view, row),
            .client = client,
            .address = {client.data + client.len, row->address_len},
            .token = row->token,
            .granted_ms = row->granted_ms,
            .until_ms = row->until_ms,
            .ttl_ms = row->ttl_ms,
            .waiters = row->waiters,
            .waiting_since_ms = row->waiting_since_ms,
        };
        if (i > window->from)
            buf_append_text(json, ",");
        lease_json(view->engine, &lease, json);
    }
    buf_append_text(json, "]}\n");
}

/* Do at most a step of what its windows want. */
static void work(struct view *view)
{
    struct list *next;
    bool restarted;

    if (view->phase == COPYING) {
        bool more = held_walk(view->engine, &view->walk, STEP, &restarted, copy, view);
        if (restarted) { /* what was copied before this part would come again */
            begin(view);
            return;
        }
        if (more)
            return;
        begin_merge(view);
    }
    for (struct list *link = view->windows.next; link != &view->windows; link = next) {
        struct window *window = list_entry(link, struct window, link);
        next = link->next;
        merge(view, end_of(view, window), STEP);
        if (view->merged_count < end_of(view, window))
            return;
        list_remove(link);
        write_window(view, window);
        window->on_end(window);
    }
}

/* Lists. */

static bool is_fresh(const struct view *view)
{
    int64_t fresh_ms = (int64_t)view->seen / ROWS_FRESH_ONE_MS;
    return view->phase == MERGING &&
           (is_current(view) || engine_now_ms(view->engine) - view->made_ms < fresh_ms);
}

static void view_free(struct lists *lists, struct view *view)
{
    check(list_empty(&view->windows));
    list_remove(&view->link);
    lists->count--;
    acl_drop(view->reader.acl);
    buf_free(&view->match);
    glob_free(view->glob);
    buf_free(&view->sort);
    buf_free(&view->text);
    free(view->rows);
    free(view->sorted);
    free(view->merged);
    free(view->runs);
    free(view);
}

static size_t bytes_of_view(const struct view *view)
{
    return view->cap * (sizeof *view->rows + 2 * sizeof *view->sorted) + view->text.cap;
}

/* Free lists that nobody waits for, the one longest unused first, while there are too many. */
static void make_room(struct lists *lists)
{
    int64_t now_ms = engine_now_ms(lists->engine);
    size_t bytes = 0;
    struct list *link, *next;

    for (link = lists->views.next; link != &lists->views; link = link->next)
        bytes += bytes_of_view(list_entry(link, struct view, link));
    for (link = lists->views.next; link != &lists->views; link = next) {
        struct view *view = list_entry(link, struct view, link);
        next = link->next;
        if (!list_empty(&view->windows))
            continue;
        if (lists->count < LISTS_MAX && bytes <= BYTES_MAX && now_ms - view->used_ms < UNUSED_MS)
            return;
        bytes -= bytes_of_view(view);
        view_free(lists, view);
    }
}

static struct view *view_find(struct lists *lists, const struct window *window)
{
    for (struct list *link = lists->views.next; link != &lists->views; link = link->next) {
        struct view *view = list_entry(link, struct view, link);
        if (bytes_equal(buf_bytes(&view->match), window->match) &&
            bytes_equal(buf_bytes(&view->sort), window->sort) &&
            view->reader.rights == window->reader.rights)
            return view;
    }
    return NULL;
}

static struct view *view_new(struct lists *lists, const struct window *window)
{
    struct view *view = mem_zalloc(sizeof *view);

    view->engine = lists->engine;
    view->reader = window->reader;
    if (view->reader.acl != NULL)
        acl_keep(view->reader.acl);
    buf_append_bytes(&view->match, window->match);
    buf_append_bytes(&view->sort, window->sort);
    view->order = order_of(window->sort, &view->down);
    view->glob = show_glob(window->match);
    list_init(&view->windows);
    list_init(&view->link);
    lists->count++;
    begin(view);
    return view;
}

struct lists *lists_new(struct engine *engine)
{
    struct lists *lists = mem_zalloc(sizeof *lists);

    lists->engine = engine;
    list_init(&lists->views);
    return lists;
}

void lists_free(struct lists *lists)
{
    struct list *link;

    while ((link = list_pop(&lists->views)) != NULL)
        view_free(lists, list_entry(link, struct view, link));
    free(lists);
}

bool lists_ask(struct lists *lists, struct window *window)
{
    struct view *view = view_find(lists, window);

    if (view == NULL) {
        make_room(lists);
        if (lists->count >= LISTS_MAX)
            return false;
        view = view_new(lists, window);
    } else if (list_empty(&view->windows) && view->phase == MERGING && !is_fresh(view)) {
        begin(view);
    }
    view->used_ms = engine_now_ms(lists->engine);
    list_remove(&view->link);
    list_append(&lists->views, &view->link);
    list_append(&view->windows, &window->link);
    if (lists->engine->held.count < STEP || view->phase == MERGING)
        work(view);
    return true;
}

void lists_cancel(struct window *window)
{
    list_remove(&window->link);
}

bool lists_work(struct lists *lists)
{
    bool more = false, worked = false;

    for (struct list *link = lists->views.next; link != &lists->views; link = link->next) {
        struct view *view = list_entry(link, struct view, link);
        if (list_empty(&view->windows))
            continue;
        if (!worked)
            work(view);
        worked = true;
        more = more || !list_empty(&view->windows);
    }
    make_room(lists);
    return more;
}
