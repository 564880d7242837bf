/* SPDX-License-Identifier: Apache-2.0 */
/* bench-sqlite: what SQLite alone does with a store's tables, as a yardstick for what stands in
 * front of it. One thread, no network: so many writes of random values to random keys in each
 * transaction, with the settings of the store's writer; prints one line of JSON.
 *
 * With --check each write looks its fence up by the key's name first, as a fenced write has to;
 * without, it knows the row's number. Works on a copy of a store: tables and keys are there. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tools/bench/load/histogram.h"
#include "tools/options.h"

struct settings {
    const char *file;
    int64_t keys, batch, duration_ms;
    bool check;
};

static const struct option_row rows[] = {
    {"keys", OPTION_NUMBER, offsetof(struct settings, keys), 1, 1000000000, "N",
     "key:000000000000 and on", NULL},
    {"batch", OPTION_NUMBER, offsetof(struct settings, batch), 1, 100000, "N",
     "writes in a transaction", NULL},
    {"time", OPTION_MS, offsetof(struct settings, duration_ms), 1, 3600000, "TIME", "how long",
     NULL},
    {"check", OPTION_FLAG, offsetof(struct settings, check), 0, 0, NULL,
     "look the token up before each write", NULL},
};

static const struct option_table table = {
    .command = "bench-sqlite",
    .usage = "bench-sqlite FILE [option]...",
    .about = "Writes to a copy of a store's file, past Stockade, and measures it.",
    OPTION_ROWS(rows),
    .operands = {{"FILE", offsetof(struct settings, file)}},
};

/* As the store's writer has them. The page size is in the file. */
static const char setup[] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                            "PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;"
                            "PRAGMA secure_delete = OFF; PRAGMA wal_autocheckpoint = 32768;"
                            "PRAGMA journal_size_limit = 67108864;";

struct run {
    sqlite3 *db;
    sqlite3_stmt *begin, *find, *put, *commit;
    struct histogram histogram;
    uint64_t random, done;
};

static uint64_t draw(struct run *run, uint64_t below)
{
    run->random = run->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (run->random >> 20) % below;
}

static bool step(sqlite3_stmt *stmt)
{
    return sqlite3_step(stmt) == SQLITE_DONE && sqlite3_reset(stmt) == SQLITE_OK;
}

static bool put(struct run *run, const struct settings *settings)
{
    char name[32], value[32];
    uint64_t key = draw(run, (uint64_t)settings->keys);
    int64_t id = (int64_t)key + 1;

    if (settings->check) {
        int length = snprintf(name, sizeof name, "key:%012llu", (unsigned long long)key);
        sqlite3_bind_blob(run->find, 1, name, length, SQLITE_STATIC);
        if (sqlite3_step(run->find) != SQLITE_ROW || sqlite3_column_int64(run->find, 1) != 1)
            return false;
        id = sqlite3_column_int64(run->find, 0);
        sqlite3_reset(run->find);
    }
    int length = snprintf(value, sizeof value, "%012llu", (unsigned long long)draw(run, 1U << 30));
    sqlite3_bind_int64(run->put, 1, id);
    sqlite3_bind_blob(run->put, 2, value, length, SQLITE_STATIC);
    return step(run->put);
}

static bool transact(struct run *run, const struct settings *settings)
{
    uint64_t begun_ns = now_ns();

    if (!step(run->begin))
        return false;
    for (int64_t i = 0; i < settings->batch; i++)
        if (!put(run, settings))
            return false;
    if (!step(run->commit))
        return false;
    histogram_add(&run->histogram, now_ns() - begun_ns);
    run->done += (uint64_t)settings->batch;
    return true;
}

static sqlite3_stmt *prepare(struct run *run, const char *sql)
{
    sqlite3_stmt *stmt = NULL;

    sqlite3_prepare_v2(run->db, sql, -1, &stmt, NULL);
    return stmt;
}

static bool open_run(struct run *run, const char *file)
{
    if (sqlite3_open_v2(file, &run->db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_exec(run->db, setup, NULL, NULL, NULL) != SQLITE_OK)
        return false;
    run->begin = prepare(run, "BEGIN IMMEDIATE");
    run->find = prepare(run, "SELECT id, token, state FROM stockade_resource WHERE name = ?1");
    run->put = prepare(run, "REPLACE INTO stockade_string(id, value) VALUES(?1, ?2)");
    run->commit = prepare(run, "COMMIT");
    return run->begin && run->find && run->put && run->commit;
}

static void close_run(struct run *run)
{
    sqlite3_finalize(run->begin);
    sqlite3_finalize(run->find);
    sqlite3_finalize(run->put);
    sqlite3_finalize(run->commit);
    sqlite3_close(run->db);
}

static double cpu_s(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static bool measure(struct run *run, const struct settings *settings)
{
    double cpu_before_s = cpu_s();
    uint64_t start_ns = now_ns(), end_ns = start_ns + (uint64_t)settings->duration_ms * 1000000ULL;

    while (now_ns() < end_ns)
        if (!transact(run, settings))
            return false;
    histogram_print(&run->histogram, run->done, now_ns() - start_ns);
    printf(", \"cpu_us\": %.4f}\n", (cpu_s() - cpu_before_s) / (double)run->done * 1e6);
    return true;
}

int main(int argc, char **argv)
{
    struct settings settings = {.keys = 1000, .batch = 50, .duration_ms = 1000};

    switch (options_parse(&table, &settings, argc, argv)) {
    case OPTIONS_HELPED: return 0;
    case OPTIONS_WRONG: return 2;
    default: break;
    }
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return 1;
    run->random = now_ns();
    bool good = open_run(run, settings.file) && measure(run, &settings);
    if (!good)
        fprintf(stderr, "bench-sqlite: %s: %s\n", settings.file,
                run->db ? sqlite3_errmsg(run->db) : "no memory");
    close_run(run);
    free(run);
    return good ? 0 : 1;
}
