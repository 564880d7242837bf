/* SPDX-License-Identifier: Apache-2.0 */
/* A reader holds one of SQLite's shared locks on its read marks, five bytes of the -shm. All locks
 * stand in /proc/locks. (To ask with fcntl would take a descriptor of the file, and closing that
 * would drop all locks that this process has on it.) */
#include "store/sqlite/holders.h"

#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fence/base/bytes.h"

/* As sqlite.org/walformat.html has them: WAL_READ_LOCK(0) to (4). */
enum { READ_MARKS_FIRST = 123, READ_MARKS_LAST = 127, NAMED_MAX = 3 };

static void add(char *out, size_t size, int pid)
{
    char path[64], comm[32] = "?";
    size_t len = strlen(out);

    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(comm, sizeof comm, file) == NULL)
            strcpy(comm, "?");
        (void)fclose(file);
    }
    comm[strcspn(comm, "\n")] = '\0';
    for (char *at = comm; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    text_print(out + len, size - len, "%s%s (process %d)", len > 0 ? ", " : "", comm, pid);
}

void holders_name(dev_t device, ino_t number, char *out, size_t size)
{
    char line[256], kind[16], how[16];
    unsigned major_number, minor_number;
    unsigned long long inode;
    long long first;
    int pid, own = 0, named = 0, last = 0;
    FILE *locks = fopen("/proc/locks", "re");

    *out = '\0';
    while (locks != NULL && named < NAMED_MAX && fgets(line, sizeof line, locks) != NULL) {
        if (sscanf(line, "%*s %15s %*s %15s %d %x:%x:%llu %lld", kind, how, &pid, &major_number,
                   &minor_number, &inode, &first) != 7 ||
            strcmp(kind, "POSIX") != 0 || strcmp(how, "READ") != 0 || inode != number ||
            major_number != major(device) || minor_number != minor(device) ||
            first < READ_MARKS_FIRST || first > READ_MARKS_LAST)
            continue;
        if (pid == getpid()) {
            own++;
        } else if (pid > 0 && pid != last) {
            add(out, size, pid);
            last = pid;
            named++;
        }
    }
    if (locks != NULL)
        (void)fclose(locks);
    if (*out == '\0')
        text_print(out, size, own > 0 ? "this program itself" : "another program");
}
