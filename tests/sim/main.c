/* SPDX-License-Identifier: Apache-2.0 */
/* sim [--seed N] [--runs N] [--seconds N] [--story]
 *
 * Runs the seeds from N on. A run that breaks a promise is printed with its seed, shrunk, and told
 * as a story. Now and then a run is repeated: it has to come out the same, event by event. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/run.h"

#define RUNS_USUAL      1000
#define REPLAY_EVERY    25
#define STORY_LINES_MAX 100
#define STORIES_MAX     1

struct options {
    uint64_t seed, runs;
    double seconds; /* 0: no limit */
    bool story;
};

struct result {
    uint64_t runs, failed, replays;
    struct tally tally;
};

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The end of the story is where it breaks. */
static void print_story(const struct buf *story)
{
    size_t lines = 0, from = story->len;

    while (from > 0 && lines <= STORY_LINES_MAX)
        lines += story->data[--from] == '\n';
    if (from > 0)
        printf("  ... (--story tells all)\n");
    printf("%.*s", (int)(story->len - from - (from > 0)), story->data + from + (from > 0));
}

static void print_plan(const struct plan *plan)
{
    int clients = 0;

    for (int i = 0; i < plan->clients; i++)
        clients += !plan->client_left_out[i];
    printf("  %d of %d clients, %d daemons, %s, %s\n", clients, plan->clients, plan->daemons,
           provider_name(plan->provider), plan->disk == DISK_SQLITE ? "SQLite" : "memory");
}

static void tell_failure(const struct plan *failing, struct outcome_of_run outcome)
{
    static struct plan plan; /* large */
    struct tally tally = {0};
    struct buf story = {0};

    plan = *failing;
    printf("seed %" PRIu64 ": %s is broken: %s\n", plan.seed, promise_name(outcome.broken),
           outcome.why);
    int runs = shrink(&plan, &outcome);
    printf("shrunk in %d runs:\n", runs);
    print_plan(&plan);
    (void)run_plan(&plan, &tally, &story);
    print_story(&story);
    printf("replay it: make sim SEED=%" PRIu64 "\n", plan.seed);
    fflush(stdout);
    buf_free(&story);
}

static void run_seed(const struct options *options, struct result *result, uint64_t seed)
{
    static struct plan plan;
    struct buf story = {0};
    struct tally ignored = {0};

    plan_of_seed(&plan, seed);
    struct outcome_of_run outcome = run_plan(&plan, &result->tally, options->story ? &story : NULL);
    if (options->story)
        printf("%.*s", (int)story.len, story.data);
    buf_free(&story);
    if (options->runs == 1)
        printf("digest of all that happened: %016" PRIx64 "\n", outcome.digest);
    bool failed = outcome.broken != PROMISE_NONE;
    if (result->runs % REPLAY_EVERY == 0 && !failed) {
        result->replays++;
        struct outcome_of_run again = run_plan(&plan, &ignored, NULL);
        failed = again.digest != outcome.digest;
        if (failed)
            printf("seed %" PRIu64 ": a second run came out different\n", seed);
    } else if (failed && result->failed < STORIES_MAX) {
        tell_failure(&plan, outcome);
    } else if (failed) {
        printf("seed %" PRIu64 ": %s is broken: %s\n", seed, promise_name(outcome.broken),
               outcome.why);
    }
    result->runs++;
    result->failed += failed;
}

static void print_result(const struct result *result, double seconds)
{
    const struct tally *tally = &result->tally;

    printf("faults:");
    for (int i = 0; i < FAULT_KINDS; i++)
        printf("%s %s %" PRIu64, i > 0 ? "," : "", fault_name((enum fault_kind)i),
               tally->faults[i]);
    printf(", owner goes on at another daemon after LEASEDOWN %" PRIu64, tally->moves);
    printf("\nchecks:");
    for (int i = P1_FENCED; i < SANE; i++)
        printf("%s %s %" PRIu64, i > 1 ? "," : "", promise_name((enum promise)i), tally->checks[i]);
    printf("\n%" PRIu64 " runs in %.1f s (%.0f a minute), %" PRIu64 " replayed; %" PRIu64
           " commands, %" PRIu64 " events, %.1f hours of virtual time\n",
           result->runs, seconds, (double)result->runs * 60 / seconds, result->replays, tally->ops,
           tally->events, (double)tally->virtual_ms / 3.6e6);
    printf("%" PRIu64 " passed, %" PRIu64 " failed\n", result->runs - result->failed,
           result->failed);
}

static bool parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {{"seed", required_argument, NULL, 's'},
                                          {"runs", required_argument, NULL, 'r'},
                                          {"seconds", required_argument, NULL, 't'},
                                          {"story", no_argument, NULL, 'y'},
                                          {0}};
    bool seeded = false, counted = false;

    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        char *end = "";
        uint64_t number = optarg != NULL ? strtoull(optarg, &end, 10) : 0;
        if (option == '?' || *end != '\0' || end == optarg)
            return false;
        switch (option) {
        case 's': options->seed = number; break;
        case 'r': options->runs = number; break;
        case 't': options->seconds = (double)number; break;
        default: options->story = true;
        }
        seeded |= option == 's';
        counted |= option == 'r';
    }
    if (!counted)
        options->runs = options->seconds > 0 ? UINT64_MAX : seeded ? 1 : RUNS_USUAL;
    if (!seeded) /* a bare run is the same each time; a long one goes where none has been */
        options->seed = options->seconds > 0 ? (uint64_t)time(NULL) * 1000000 : 1;
    return optind == argc;
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct result result = {0};
    double started = now_s(), shown = started;

    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: sim [--seed N] [--runs N] [--seconds N] [--story]\n");
        return 2;
    }
    if (options.runs > 1)
        printf("seeds from %" PRIu64 " on\n", options.seed);
    for (uint64_t i = 0; i < options.runs; i++) {
        double now = now_s();
        if (options.seconds > 0 && now - started >= options.seconds)
            break;
        if (isatty(STDERR_FILENO) && now - shown > 0.2) {
            fprintf(stderr, "\r%" PRIu64 " runs, %" PRIu64 " failed ", i, result.failed);
            shown = now;
        }
        run_seed(&options, &result, options.seed + i);
    }
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%40s\r", "");
    print_result(&result, now_s() - started);
    return result.failed > 0 || result.runs == 0;
}
