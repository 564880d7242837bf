/* SPDX-License-Identifier: Apache-2.0 */
/* See store_file.h. */
#include "tests/fuzz/store_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "tests/fuzz/fuzz.h"

static struct {
    char folder[64], path[80];
    struct store *store;
} the;

void store_file_close(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char path[96];

    if (the.store != NULL)
        store_close(the.store);
    the.store = NULL;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s%s", the.path, suffixes[i]);
        (void)unlink(path);
    }
}

static void end(void)
{
    store_file_close();
    (void)rmdir(the.folder);
}

static void begin(void)
{
    strcpy(the.folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/stockade-fuzz-XXXXXX"
                                                     : "/tmp/stockade-fuzz-XXXXXX");
    check(mkdtemp(the.folder) != NULL);
    snprintf(the.path, sizeof the.path, "%s/db", the.folder);
    check(atexit(end) == 0);
}

struct store *store_file_open(struct store_options options)
{
    char why[256] = "";

    if (the.folder[0] == '\0')
        begin();
    store_file_close();
    options.path = the.path;
    the.store = store_sqlite_open(&options, why, sizeof why);
    if (the.store == NULL)
        fuzz_wrong("%s", why);
    return the.store;
}

const char *store_file_path(void)
{
    return the.path;
}

void store_perform(struct store *store, struct store_op *op)
{
    check(store_submit(store, op) == STK_OK);
    while (store_step(store))
        store_collect(store);
}
