/* SPDX-License-Identifier: Apache-2.0 */
/* The audit's chain: a change anywhere is found, and what a crash leaves is none.
 *
 * STOCKADE_AUDIT_CHANGES=n: so many random changes instead of some. */
#include "tests/unit/test.h"

#include <inttypes.h>

#include "fence/base/mem.h"
#include "proxy/server/audit/judge.h"

TESTS_HAVE_ONE_THREAD

enum { LINES = 100000, CHANGES = 10 };

/* A chain as one file would have it. */
struct chain {
    struct chain_hasher *hasher;
    struct chain_head head;
    struct buf text;
    size_t *starts; /* of each line, and where the last one ends */
};

static void add(struct chain *chain, enum audit_event event, const char *reason)
{
    chain_append(&chain->head, chain->hasher, 1700000000000 + (int64_t)chain->head.lines,
                 &(struct audit_note){.event = event,
                                      .token = (int64_t)chain->head.lines,
                                      .user = BYTES_LITERAL("default"),
                                      .address = BYTES_LITERAL("127.0.0.1:5123"),
                                      .resource = BYTES_LITERAL("sku:\"\\\n\xff"),
                                      .reason = bytes_of(reason)},
                 &chain->text);
}

static void begin(struct chain *chain, size_t lines)
{
    *chain = (struct chain){.hasher = chain_hasher_new()};
    assert_true(chain_begin(&chain->head));
    chain_append_begin(&chain->head, chain->hasher, 1700000000000, &chain->text);
    while (chain->head.lines < lines)
        add(chain, AUDIT_GRANT, "ttl_ms=30000 owner=till-3");
    chain->starts = mem_zalloc((lines + 1) * sizeof *chain->starts);
    for (size_t i = 0, line = 0; i < chain->text.len; i++)
        if (chain->text.data[i] == '\n')
            chain->starts[++line] = i + 1;
}

static void end(struct chain *chain)
{
    chain_hasher_free(chain->hasher);
    buf_free(&chain->text);
    free(chain->starts);
}

static struct judgement judge_pieces(const struct chain_head *known, const struct bytes *pieces,
                                     size_t count)
{
    struct judge *judge = judge_new(known);

    judge_begin_file(judge, "FILE");
    for (size_t i = 0; i < count; i++)
        judge_read(judge, pieces[i]);
    judge_end_file(judge, true);
    struct judgement judgement = *judge_end(judge);
    judge_free(judge);
    return judgement;
}

static struct judgement judge_text(const struct chain_head *known, struct bytes text)
{
    return judge_pieces(known, &text, 1);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static struct bytes part(const struct chain *chain, size_t from, size_t to)
{
    return (struct bytes){chain->text.data + from, to - from};
}

/* One change of a random kind at a random place. Return what the judge says. */
static struct judgement judge_changed(const struct chain *chain, uint64_t *state, char told[128])
{
    const size_t *starts = chain->starts, len = chain->text.len;
    uint64_t kind = next_random(state) % 5;
    size_t line = next_random(state) % LINES, at = next_random(state) % len;
    char byte = (char)(chain->text.data[at] ^ (char)(1 << next_random(state) % 8));
    struct bytes pieces[4];
    size_t count = 3;

    if (line + 1 == LINES && kind == 3)
        line--;
    snprintf(told, 128, "kind %" PRIu64 ", line %zu, byte %zu", kind, line, at);
    pieces[0] = part(chain, 0, kind == 0 ? at : starts[line]);
    switch (kind) {
    case 0: /* a bit of a byte */
        pieces[1] = (struct bytes){&byte, 1};
        pieces[2] = part(chain, at + 1, len);
        break;
    case 1: /* a line removed */
        pieces[1] = part(chain, starts[line + 1], len);
        count = 2;
        break;
    case 2: /* a line added: one that is there already */
        pieces[1] = part(chain, starts[line], starts[line + 1]);
        pieces[2] = part(chain, starts[line], len);
        break;
    case 3: /* two lines swapped */
        pieces[1] = part(chain, starts[line + 1], starts[line + 2]);
        pieces[2] = part(chain, starts[line], starts[line + 1]);
        pieces[3] = part(chain, starts[line + 2], len);
        count = 4;
        break;
    default: /* cut, anywhere */ pieces[0] = part(chain, 0, at); count = 1;
    }
    return judge_pieces(&chain->head, pieces, count);
}

TEST(every_single_change_is_found)
{
    const char *asked = getenv("STOCKADE_AUDIT_CHANGES");
    long changes = asked == NULL ? CHANGES : atol(asked);
    uint64_t state = 20261125;
    struct chain chain;
    char told[128];

    begin(&chain, LINES);
    struct judgement whole = judge_text(&chain.head, buf_bytes(&chain.text));
    assert_false(whole.broken);
    assert_true(whole.head_seen);
    assert_int_equal(whole.head.lines, LINES);
    for (long i = 0; i < changes; i++)
        if (!judge_changed(&chain, &state, told).broken)
            fail_msg("not found: %s", told);
    end(&chain);
}

TEST(a_change_is_found_without_the_store_where_a_line_stands_behind_it)
{
    struct chain chain;

    begin(&chain, 50);
    for (size_t at = 0; at < chain.starts[49]; at++) {
        chain.text.data[at] ^= 1;
        struct judgement judgement = judge_text(NULL, buf_bytes(&chain.text));
        if (!judgement.broken)
            fail_msg("byte %zu was changed, and nobody sees it", at);
        chain.text.data[at] ^= 1;
    }
    end(&chain);
}

TEST(what_is_found_names_its_line)
{
    struct chain chain;

    begin(&chain, 10);
    const struct bytes pieces[] = {part(&chain, 0, chain.starts[4]),
                                   part(&chain, chain.starts[5], chain.text.len)};
    struct judgement judgement = judge_pieces(NULL, pieces, 2);
    assert_true(judgement.broken);
    assert_true(strncmp(judgement.why, "FILE:5: ", 8) == 0);
    end(&chain);
}

TEST(a_file_that_was_cut_is_found_by_the_head_alone)
{
    struct chain chain;

    begin(&chain, 10);
    assert_false(judge_text(NULL, part(&chain, 0, chain.starts[9])).broken);
    struct judgement judgement = judge_text(&chain.head, part(&chain, 0, chain.starts[9]));
    assert_true(judgement.broken);
    assert_non_null(strstr(judgement.why, "10 lines"));
    struct chain_head seen = {.lines = 0};
    struct judge *judge = judge_new(&seen);
    judge_free(judge);
    end(&chain);
}

TEST(lines_behind_the_head_are_no_harm)
{
    struct chain chain;

    begin(&chain, 10);
    struct chain_head known = chain.head;
    add(&chain, AUDIT_STOP, "");
    struct judgement judgement = judge_text(&known, buf_bytes(&chain.text));
    assert_false(judgement.broken);
    assert_true(judgement.head_seen);
    known.hash.hex[3] ^= 1; /* another line than the store has seen */
    assert_true(judge_text(&known, buf_bytes(&chain.text)).broken);
    end(&chain);
}

/* Whoever can write the file could else put one there that begins anew, behind all that was seen.
 */
TEST(a_file_that_begins_behind_the_head_is_not_whole)
{
    struct chain chain, later;

    begin(&chain, 10);
    later = (struct chain){.hasher = chain_hasher_new(), .head = chain.head};
    chain_append_begin(&later.head, later.hasher, 1700000000000, &later.text);
    add(&later, AUDIT_GRANT, "");
    struct chain_head known = chain.head;
    struct judgement judgement = judge_text(&known, buf_bytes(&later.text));
    assert_false(judgement.broken); /* its first line holds the one that the store has seen */
    assert_true(judgement.head_seen);
    known.hash.hex[3] ^= 1;
    assert_true(judge_text(&known, buf_bytes(&later.text)).broken);
    known = chain.head;
    known.lines--;
    judgement = judge_text(&known, buf_bytes(&later.text));
    assert_true(judgement.broken);
    assert_non_null(strstr(judgement.why, "begins behind line 9"));
    end(&later);
    end(&chain);
}

TEST(a_torn_line_at_the_end_is_told_as_one)
{
    struct chain chain;

    begin(&chain, 10);
    struct judgement judgement = judge_text(NULL, part(&chain, 0, chain.text.len - 7));
    assert_false(judgement.broken);
    assert_true(judgement.ends_torn);
    assert_int_equal(judgement.head.lines, 9);
    end(&chain);
}

/* What a daemon does that finds torn bytes at its start. */
static void mend(struct chain *chain, const char *torn)
{
    struct buf bytes = {0};

    buf_append_text(&bytes, torn);
    if (bytes.data[bytes.len - 1] != '\n')
        buf_append_text(&bytes, "\n");
    buf_append_bytes(&chain->text, buf_bytes(&bytes));
    chain_append_torn(&chain->head, chain->hasher, 1700000000000, bytes.len,
                      chain_hash_of(chain->hasher, buf_bytes(&bytes)), &chain->text);
    buf_free(&bytes);
}

TEST(a_chain_goes_on_behind_torn_bytes_which_nobody_changes_either)
{
    static const char *const torn[] = {"{\"time_ms\":17", "x", "\n", "a\nb\n\nc", "{}\n"};

    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++) {
        struct chain chain;
        begin(&chain, 5);
        size_t from = chain.text.len;
        mend(&chain, torn[i]);
        size_t until = from + strlen(torn[i]);
        add(&chain, AUDIT_START, "");
        struct judgement judgement = judge_text(&chain.head, buf_bytes(&chain.text));
        assert_false(judgement.broken);
        assert_int_equal(judgement.torn, 1);
        assert_int_equal(judgement.head.lines, 7);
        for (size_t at = from; at < until; at++) {
            chain.text.data[at] ^= 1;
            assert_true(judge_text(&chain.head, buf_bytes(&chain.text)).broken);
            chain.text.data[at] ^= 1;
        }
        end(&chain);
    }
}

TEST(a_forger_does_not_pass_a_line_off_as_torn)
{
    struct chain chain;

    begin(&chain, 5);
    size_t from = chain.starts[3];
    struct chain_head before = {.lines = 0};
    struct judgement until = judge_text(NULL, part(&chain, 0, from));
    before = until.head;
    struct bytes hidden = part(&chain, from, chain.starts[4]);
    struct buf line = {0};
    chain_append_torn(&before, chain.hasher, 1700000000000, hidden.len,
                      chain_hash_of(chain.hasher, hidden), &line);
    const struct bytes pieces[] = {part(&chain, 0, chain.starts[4]), buf_bytes(&line),
                                   part(&chain, chain.starts[4], chain.text.len)};
    assert_true(judge_pieces(NULL, pieces, 3).broken);
    const struct bytes replaced[] = {part(&chain, 0, from), hidden, buf_bytes(&line)};
    assert_true(judge_pieces(&chain.head, replaced, 3).broken); /* the store knows five lines */
    buf_free(&line);
    end(&chain);
}

/* Two files of one chain. */
static struct judgement judge_files(const struct chain_head *known, struct bytes first,
                                    struct bytes second)
{
    struct judge *judge = judge_new(known);

    judge_begin_file(judge, "FIRST");
    judge_read(judge, first);
    judge_end_file(judge, false);
    judge_begin_file(judge, "SECOND");
    judge_read(judge, second);
    judge_end_file(judge, true);
    struct judgement judgement = *judge_end(judge);
    judge_free(judge);
    return judgement;
}

TEST(a_chain_goes_on_in_another_file)
{
    struct chain chain;

    begin(&chain, 5);
    size_t until = chain.text.len;
    chain_append_begin(&chain.head, chain.hasher, 1700000000000, &chain.text);
    add(&chain, AUDIT_STOP, "");
    struct bytes second = part(&chain, until, chain.text.len);
    struct judgement judgement = judge_files(&chain.head, part(&chain, 0, until), second);
    assert_false(judgement.broken);
    assert_int_equal(judgement.head.lines, 7);
    judgement = judge_files(&chain.head, part(&chain, 0, chain.starts[4]), second);
    assert_true(judgement.broken); /* the first one was cut */
    assert_non_null(strstr(judgement.why, "lines 5 to 5 of the chain are missing"));
    judgement = judge_files(&chain.head, part(&chain, 0, until - 3), second);
    assert_true(judgement.broken);               /* torn, and nobody has gone on there */
    judgement = judge_text(&chain.head, second); /* the older one is kept elsewhere */
    assert_false(judgement.broken);
    assert_int_equal(judgement.first, 6);
    end(&chain);
}

TEST(lines_are_json_and_lines_whatever_they_tell)
{
    struct chain chain;
    struct chain_line line;

    begin(&chain, 1);
    size_t from = chain.text.len;
    add(&chain, AUDIT_REVOKE, "\"quoted\", \\ and\nnew line\x01");
    struct bytes text = {chain.text.data + from, chain.text.len - from - 1};
    assert_null(memchr(text.data, '\n', text.len));
    assert_true(chain_line_read(text, &line));
    assert_true(bytes_equal(line.event, BYTES_LITERAL("revoke")));
    for (size_t i = 0; i < text.len; i++) /* part of a line is none */
        assert_false(chain_line_read((struct bytes){text.data, i}, &line));
    end(&chain);
}

TEST(a_list_of_events_is_read)
{
    struct bytes wrong;
    uint32_t events;

    assert_true(audit_events_read("grant,release", &events, &wrong));
    assert_int_equal(events, AUDIT_BIT(AUDIT_GRANT) | AUDIT_BIT(AUDIT_RELEASE));
    assert_true(audit_events_read("all", &events, &wrong));
    assert_int_equal(events, AUDIT_BIT(AUDIT_EVENT_COUNT) - 1);
    assert_false(audit_events_read("grant,", &events, &wrong));
    assert_false(audit_events_read("grant,grants", &events, &wrong));
    assert_true(bytes_equal(wrong, BYTES_LITERAL("grants")));
}
