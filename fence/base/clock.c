/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's own clock and random source. */
#include "fence/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/bytes.h"
#include "fence/base/check.h"

static int64_t monotonic_now_us(const struct clock *clock)
{
    struct timespec now;

    (void)clock;
    check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static int64_t monotonic_now_ms(const struct clock *clock)
{
    return monotonic_now_us(clock) / 1000;
}

static int64_t system_wall_us(const struct clock *clock)
{
    struct timespec now;

    (void)clock;
    check(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* A UUID and a line feed. */
static void system_boot(const struct clock *clock, char id[CLOCK_BOOT_SIZE])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, id, CLOCK_BOOT_SIZE - 1) : 0;

    (void)clock;
    if (fd >= 0)
        close(fd);
    id[len > 0 ? len : 0] = '\0';
    id[strcspn(id, "\n")] = '\0';
}

static void system_fill(const struct chance *chance, void *bytes, size_t len)
{
    (void)chance;
    while (len > 0) {
        ssize_t got = getrandom(bytes, len, 0);
        if (got < 0) {
            check(errno == EINTR);
            continue;
        }
        bytes = (char *)bytes + got;
        len -= (size_t)got;
    }
}

void chance_hex(const struct chance *chance, char *out, size_t digits)
{
    unsigned char random[32];

    check(digits % 2 == 0 && digits <= 2 * sizeof random);
    chance->fill(chance, random, digits / 2);
    bytes_to_hex((struct bytes){(const char *)random, digits / 2}, out);
    out[digits] = '\0';
}

const struct clock clock_monotonic = {monotonic_now_ms, NULL, system_wall_us, system_boot,
                                      monotonic_now_us};
const struct chance chance_system = {system_fill, NULL};
