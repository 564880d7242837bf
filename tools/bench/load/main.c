/* SPDX-License-Identifier: Apache-2.0 */
/* bench-load: one run of one work; prints one line of JSON. Not for users: tools/bench calls it.
 * Exit status 1 where anything was not as expected, with the reason on stderr. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fence/base/mem.h"
#include "tools/bench/load/load.h"
#include "tools/options.h"

static const struct work *const works[] = {
    &resp_work,          &lease_cycle_work,   &lock_cycle_work,      &zookeeper_make_work,
    &zookeeper_set_work, &zookeeper_get_work, &zookeeper_cycle_work, &etcd_put_work,
    &etcd_get_work,      &etcd_cycle_work};

static bool add_command(void *settings, const char *text, struct failure *failure)
{
    struct settings *all = settings;

    if (all->command_count == COMMANDS_MAX)
        return failure_set(failure, "is given more than %d times", COMMANDS_MAX);
    all->commands[all->command_count++] = text;
    return true;
}

#define NUMBER(name, field, min, max, help)                                                        \
    {                                                                                              \
        name, OPTION_NUMBER, offsetof(struct settings, field), min, max, "N", help, NULL           \
    }
#define TEXT(name, field, value, help)                                                             \
    {                                                                                              \
        name, OPTION_TEXT, offsetof(struct settings, field), 0, 0, value, help, NULL               \
    }
#define FLAG(name, field, help)                                                                    \
    {                                                                                              \
        name, OPTION_FLAG, offsetof(struct settings, field), 0, 0, NULL, help, NULL                \
    }

static const struct option_row rows[] = {
    TEXT("work", work, "NAME", "what the clients do"),
    {"command", OPTION_CALL, 0, 0, 0, "WORDS", "one of the commands of the work resp", add_command},
    TEXT("script", script, "SHA1", "the unlock script, loaded already"),
    NUMBER("port", port, 1, 65535, "of the server, on loopback"),
    NUMBER("clients", clients, 1, 20000, "connections"),
    NUMBER("pipeline", pipeline, 1, 1000, "times the commands are sent in one go"),
    NUMBER("keys", keys, 1, 1000000000, "how many there are"),
    NUMBER("ops", ops, 0, 10000000000, "operations in all; 0: until the time is over"),
    {"time", OPTION_MS, offsetof(struct settings, duration_ms), 1, 3600000, "TIME",
     "how long, where --ops is 0", NULL},
    NUMBER("rate", rate, 0, 10000000, "operations a second; 0: as fast as it goes"),
    NUMBER("mix", mix_percent, 0, 100, "percent of the first command; the rest is the second"),
    NUMBER("seed", seed, 0, 1000000000, "draws the same keys and values again; 0: new ones"),
    FLAG("hot", hot, "all clients want one key"),
    FLAG("sequential", sequential, "{key} is one after the other"),
    TEXT("record", record, "FILE", "keep which value of each key was acknowledged last"),
    TEXT("verify", verify, "FILE", "read: is it there?"),
};

static const struct option_table table = {
    .command = "bench-load",
    .usage = "bench-load --work NAME --port N [option]...",
    .about = "Runs closed loops of clients against a server, and measures them.",
    OPTION_ROWS(rows),
};

static bool read_expected(struct load *load, const char *path)
{
    uint64_t *numbers = mem_zalloc(load->key_count * sizeof *numbers);
    FILE *file = fopen(path, "rb");
    bool good = file && fread(numbers, sizeof *numbers, load->key_count, file) == load->key_count;

    if (file)
        fclose(file);
    load->expected = numbers;
    return good;
}

static bool write_acknowledged(const struct load *load, const char *path)
{
    FILE *file = fopen(path, "wb");

    if (!file)
        return false;
    bool good = fwrite(load->acknowledged, sizeof *load->acknowledged, load->key_count, file) ==
                load->key_count;
    return fclose(file) == 0 && good;
}

static void report(const struct load *load)
{
    uint64_t fewest = UINT64_MAX, most = 0;
    int64_t clients = load->settings->clients;

    for (int64_t i = 0; i < clients; i++) {
        uint64_t done = load->clients[i].done;
        fewest = done < fewest ? done : fewest;
        most = done > most ? done : most;
    }
    histogram_print(&load->histogram, load->done, load->ended_ns - load->started_ns);
    printf(", \"gap_ms\": %.3f, \"gaps\": %" PRIu64 ", \"fewest\": %" PRIu64 ", \"most\": %" PRIu64
           ", \"verified\": %" PRIu64 "}\n",
           (double)load->gap_max_ns / 1e6, load->gaps, fewest, most, load->verified);
}

static const struct work *work_named(const char *name)
{
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        if (name && strcmp(works[i]->name, name) == 0)
            return works[i];
    return NULL;
}

static void release(struct load *load)
{
    for (int64_t i = 0; load->clients && i < load->settings->clients; i++) {
        struct client *client = &load->clients[i];
        close(client->fd);
        buf_free(&client->in);
        buf_free(&client->out);
        buf_free(&client->body);
        buf_free(&client->name);
    }
    free(load->clients);
    free(load->acknowledged);
    free((void *)load->expected);
    resp_free(load);
    free(load);
}

static bool run(struct load *load)
{
    const struct settings *settings = load->settings;

    if (settings->record)
        load->acknowledged = mem_zalloc(load->key_count * sizeof *load->acknowledged);
    if (settings->verify && !read_expected(load, settings->verify)) {
        snprintf(load->why, sizeof load->why, "cannot read %s", settings->verify);
        return false;
    }
    if (!resp_compile(load) || !load_run(load))
        return false;
    if (settings->record && !write_acknowledged(load, settings->record)) {
        snprintf(load->why, sizeof load->why, "cannot write %s", settings->record);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct settings settings = {.clients = 50, .pipeline = 1, .keys = 1000, .duration_ms = 1000};
    struct rlimit files;

    switch (options_parse(&table, &settings, NULL, argc, argv)) {
    case OPTIONS_HELPED: return 0;
    case OPTIONS_WRONG: return 2;
    default: break;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    struct load *load = mem_zalloc(sizeof *load);
    load->settings = &settings;
    load->key_count = (uint64_t)settings.keys;
    load->work = work_named(settings.work);
    bool good = load->work && run(load);
    if (good)
        report(load);
    else
        fprintf(stderr, "bench-load: %s\n", load->work ? load->why : "no such work");
    release(load);
    return good ? 0 : 1;
}
