/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade audit verify`: the files are put in the order of their chains, and each chain is judged
 * (proxy/server/audit/judge.h), with its head from the store where that is given. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/file.h"
#include "fence/base/json.h"
#include "fence/base/mem.h"
#include "fence/base/uri.h"
#include "proxy/server/audit/judge.h"
#include "store/maintenance.h"
#include "store/open.h"
#include "tools/cli.h"
#include "tools/options.h"
#include "tools/term.h"

enum { PIECE_BYTES = 256 << 10 };

struct settings {
    const char *store, *file; /* the first file */
    const char **files;       /* all of them, owned */
    size_t files_count;
    bool json;
};

static void add_file(void *context, const char *file)
{
    struct settings *settings = context;

    settings->files =
        mem_realloc(settings->files, (settings->files_count + 2) * sizeof *settings->files);
    settings->files[settings->files_count++] = file;
}

static const struct option_row rows[] = {
    {"store", OPTION_TEXT, offsetof(struct settings, store), 0, 0, "URI",
     "the daemon's store, which knows how far the audit has come", NULL},
    {"json", OPTION_FLAG, offsetof(struct settings, json), 0, 0, NULL,
     "one JSON object instead of text", NULL},
};
static const struct option_table table = {
    .command = "stockade audit verify",
    .usage = "stockade audit verify FILE... [--store URI] [options]",
    .about =
        "Tells whether each line of an audit is the one that was written, and whether lines\n"
        "were removed, added or moved. Give the files of a chain together, in any order. That\n"
        "a file was cut at its end shows with --store only: the store knows how far it went.\n"
        "The daemon may be at work.\n\n"
        "exit codes: 0 whole, 1 something was changed, or cannot be read, 2 wrong usage",
    OPTION_ROWS(rows),
    .operands = {{"FILE", offsetof(struct settings, file)}},
    .more = add_file,
};

/* A file, and where it begins in which chain. */
struct part {
    const char *name;
    FILE *file;
    struct chain_head begins;
    uint64_t number; /* of its first line; 0: it has none that says so */
};

/* The chain's files come in the order of their lines. */
static int compare_parts(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    int order = strcmp(a->begins.id, b->begins.id);

    if (order != 0 || a->number == b->number)
        return order != 0 ? order : strcmp(a->name, b->name);
    return a->number < b->number ? -1 : 1;
}

static bool open_part(struct part *part, const char *name, struct failure *failure)
{
    char line[1024] = "", why[FILE_WHY_SIZE];
    struct chain_line read;

    part->name = name;
    int fd = file_open(name, NULL, why);
    if (fd < 0)
        return failure_set(failure, "%s: %s", name, why);
    part->file = fdopen(fd, "r");
    check(part->file != NULL);
    if (fgets(line, sizeof line, part->file) == NULL && ferror(part->file))
        return failure_set(failure, "%s: %s", name, strerror(errno));
    if (chain_line_read((struct bytes){line, strcspn(line, "\n")}, &read))
        (void)chain_line_begins(&read, &part->begins, &part->number);
    rewind(part->file);
    return true;
}

static bool judge_file(struct judge *judge, const struct part *part, bool last,
                       struct failure *failure)
{
    char piece[PIECE_BYTES];
    size_t len;

    judge_begin_file(judge, part->name);
    while ((len = fread(piece, 1, sizeof piece, part->file)) > 0)
        judge_read(judge, (struct bytes){piece, len});
    if (ferror(part->file))
        return failure_set(failure, "%s: %s", part->name, strerror(errno));
    judge_end_file(judge, last);
    return true;
}

/* What the chains are held against, and what came of them so far. */
struct verdict {
    const struct settings *settings;
    struct store_audit_head *heads; /* the store's */
    size_t heads_count;
    bool *given; /* of each: files of it were */
    struct term term;
    struct buf json;
    size_t chains, broken;
};

/* The store's head of a chain, or NULL. */
static const struct store_audit_head *find_head(const struct verdict *verdict, const char *id)
{
    for (size_t i = 0; i < verdict->heads_count; i++)
        if (strcmp(verdict->heads[i].chain, id) == 0) {
            verdict->given[i] = true;
            return &verdict->heads[i];
        }
    return NULL;
}

static void tell_json(struct verdict *verdict, const struct judgement *judgement, const char *why,
                      size_t files)
{
    struct buf *json = &verdict->json;

    buf_printf(json,
               "%s{\"chain\": \"%s\", \"ok\": %s, \"first_line\": %" PRIu64 ", \"lines\": %" PRIu64
               ", \"head\": \"%s\", \"files\": %zu, \"torn\": %" PRIu64 ", \"gaps\": %" PRIu64
               ", \"ends_torn\": %s, \"end_checked\": %s, \"why\": ",
               verdict->chains > 0 ? ", " : "", judgement->head.id, why == NULL ? "true" : "false",
               judgement->first, judgement->head.lines, judgement->head.hash.hex, files,
               judgement->torn, judgement->gaps, judgement->ends_torn ? "true" : "false",
               verdict->settings->store != NULL ? "true" : "false");
    if (why != NULL)
        json_string(json, bytes_of(why));
    else
        buf_append_text(json, "null");
    buf_append_text(json, "}");
}

static void tell_notes(struct verdict *verdict, const struct judgement *judgement)
{
    struct term *term = &verdict->term;

    if (judgement->first > 1)
        term_line(term, "  lines before %" PRIu64 " are in files that were not given",
                  judgement->first);
    if (judgement->torn > 0)
        term_line(term, "  places where a crash tore a line: %" PRIu64, judgement->torn);
    if (judgement->gaps > 0)
        term_line(term, "  lines that tell of events that could not be written: %" PRIu64,
                  judgement->gaps);
    if (judgement->ends_torn)
        term_line(term, "  the last line has no end: a crash tore it, somebody cut it, or it is "
                        "being written");
    if (verdict->settings->store == NULL)
        term_line(term, "  the end was not checked: without --store, a file that was cut looks "
                        "whole");
}

static void tell(struct verdict *verdict, const struct judgement *judgement, const char *why,
                 size_t files)
{
    if (verdict->settings->json) {
        tell_json(verdict, judgement, why, files);
    } else if (why != NULL) {
        term_line(&verdict->term, "not whole: %s", why);
    } else {
        term_line(&verdict->term,
                  "whole: lines %" PRIu64 " to %" PRIu64 " of chain %s, in %zu %s; head %s",
                  judgement->first, judgement->head.lines, judgement->head.id, files,
                  files == 1 ? "file" : "files", judgement->head.hash.hex);
        tell_notes(verdict, judgement);
    }
    verdict->chains++;
    verdict->broken += why != NULL;
}

/* Judge the files of one chain. */
static bool judge_chain(struct verdict *verdict, const struct part *parts, size_t count,
                        struct failure *failure)
{
    const char *id = parts[0].begins.id;
    const struct store_audit_head *kept = find_head(verdict, id);
    struct chain_head known = {.lines = 0};
    bool read = true;

    if (kept != NULL) {
        known.lines = (uint64_t)kept->lines;
        memcpy(known.hash.hex, kept->hash, sizeof known.hash.hex);
    }
    struct judge *judge = judge_new(kept == NULL ? NULL : &known);
    for (size_t i = 0; i < count && read; i++)
        read = judge_file(judge, &parts[i], i + 1 == count, failure);
    if (read) {
        const struct judgement *judgement = judge_end(judge);
        char unknown[320];
        (void)snprintf(unknown, sizeof unknown, "%s: the store has never seen this chain",
                       text_end(parts[0].name, 200));
        tell(verdict, judgement,
             judgement->broken                                  ? judgement->why
             : kept == NULL && verdict->settings->store != NULL ? unknown
                                                                : NULL,
             count);
    }
    judge_free(judge);
    return read;
}

static bool judge_all(struct verdict *verdict, struct part *parts, size_t count,
                      struct failure *failure)
{
    for (size_t from = 0, to; from < count; from = to) {
        /* A file that names no chain is judged by itself, and fails. */
        for (to = from + 1; to < count && parts[from].number > 0 &&
                            strcmp(parts[to].begins.id, parts[from].begins.id) == 0;
             to++) {
        }
        if (!judge_chain(verdict, parts + from, to - from, failure))
            return false;
    }
    return true;
}

/* Name the chains that the store knows and no file is of: old ones, or taken away. */
static void tell_others(struct verdict *verdict)
{
    for (size_t i = 0; i < verdict->heads_count; i++)
        if (!verdict->given[i] && !verdict->settings->json)
            term_line(&verdict->term,
                      "the store knows %s lines of chain %s, too, of which no file was given",
                      TERM_NUMBER(verdict->heads[i].lines), verdict->heads[i].chain);
}

static bool read_store(struct verdict *verdict, struct failure *failure)
{
    const char *said = verdict->settings->store;
    char why[MAINTENANCE_WHY_MAX];

    if (said == NULL)
        return true;
    if (!store_uri_is_valid(said, why, sizeof why))
        return failure_set(failure, "--store: %s", why);
    if (!store_audit_heads(said, &verdict->heads, &verdict->heads_count, why, sizeof why))
        return failure_set(failure, "%s", why);
    verdict->given = mem_zalloc(verdict->heads_count + 1);
    return true;
}

static bool verify(struct verdict *verdict, struct failure *failure)
{
    const struct settings *settings = verdict->settings;
    struct part *parts = mem_zalloc(settings->files_count * sizeof *parts);
    /* The heads first: the files only grow meanwhile. */
    bool done = read_store(verdict, failure);

    for (size_t i = 0; i < settings->files_count && done; i++)
        done = open_part(&parts[i], settings->files[i], failure);
    if (done) {
        qsort(parts, settings->files_count, sizeof *parts, compare_parts);
        done = judge_all(verdict, parts, settings->files_count, failure);
    }
    if (done)
        tell_others(verdict);
    for (size_t i = 0; i < settings->files_count; i++)
        if (parts[i].file != NULL)
            (void)fclose(parts[i].file);
    free(parts);
    return done;
}

int audit_verify_run(struct cli *cli, int argc, char **argv)
{
    struct settings settings = {.json = false};
    struct failure failure = {.text = ""};
    enum options_result result = options_parse(&table, &settings, cli, argc, argv);

    if (result != OPTIONS_RUN) {
        free(settings.files);
        return result == OPTIONS_HELPED ? CLI_OK : CLI_USAGE;
    }
    add_file(&settings, settings.file);
    struct verdict verdict = {.settings = &settings};
    term_open(&verdict.term);
    bool done = verify(&verdict, &failure);
    if (!done)
        term_error("%s: %s", table.command, failure.text);
    else if (settings.json)
        printf("{\"ok\": %s, \"chains\": [%.*s]}\n", verdict.broken == 0 ? "true" : "false",
               (int)verdict.json.len, verdict.json.data);
    free(verdict.heads);
    free(verdict.given);
    free(settings.files);
    buf_free(&verdict.json);
    return done && verdict.broken == 0 ? CLI_OK : CLI_FAILED;
}
