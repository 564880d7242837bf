/* SPDX-License-Identifier: Apache-2.0 */
/* What is left by others is removed only where nobody has it locked, it is our own user's, and a
 * store is in it: a daemon locks its folder before it makes its store. */
#include "proxy/server/memory_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fence/base/bytes.h"
#include "fence/base/plain.h"

#define IN_MEMORY "/dev/shm"
#define PREFIX    "stockade-memory-"
#define FILE_NAME "store.db"

static const char *const files[] = {FILE_NAME "-wal", FILE_NAME "-shm", FILE_NAME "-journal",
                                    FILE_NAME};

static const char *base_folder(void)
{
    const char *temporary = getenv("TMPDIR");

    if (access(IN_MEMORY, W_OK | X_OK) == 0)
        return IN_MEMORY;
    return temporary != NULL && temporary[0] != '\0' ? temporary : "/tmp";
}

/* The main file last: without it a folder is not removed. */
static void empty(int folder)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        (void)unlinkat(folder, files[i], 0);
}

static void remove_left_over(int base, const char *name)
{
    int folder = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (folder < 0)
        return;
    if (fstat(folder, &status) == 0 && status.st_uid == geteuid() &&
        faccessat(folder, FILE_NAME, F_OK, 0) == 0 && flock(folder, LOCK_EX | LOCK_NB) == 0) {
        empty(folder);
        (void)unlinkat(base, name, AT_REMOVEDIR);
    }
    close(folder);
}

static void remove_left_overs(const char *path)
{
    DIR *base = opendir(path);
    struct dirent *entry;

    if (base == NULL)
        return;
    while ((entry = readdir(base)) != NULL)
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0)
            remove_left_over(dirfd(base), entry->d_name);
    closedir(base);
}

bool memory_store_make(struct memory_store *store, char *why, size_t why_size)
{
    const char *base = base_folder();

    remove_left_overs(base);
    text_print(store->folder, sizeof store->folder, "%s/" PREFIX "XXXXXX", base);
    if (mkdtemp(store->folder) == NULL ||
        (store->lock = open(store->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        flock(store->lock, LOCK_EX | LOCK_NB) != 0) {
        text_print(why, why_size, "cannot make a folder for the store :memory: in %s: %s", base,
                   plain_errno(errno));
        store->folder[0] = '\0';
        return false;
    }
    text_print(store->uri, sizeof store->uri, "sqlite:%s/" FILE_NAME, store->folder);
    return true;
}

void memory_store_remove(struct memory_store *store)
{
    if (store->folder[0] == '\0')
        return;
    empty(store->lock);
    (void)rmdir(store->folder);
    close(store->lock);
    store->folder[0] = '\0';
}
