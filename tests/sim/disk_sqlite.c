/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/disk_impl.h"
bool sqlite_open(struct handle *handle)
{
    (void)handle;
    return false;
}
bool sqlite_batch(struct handle *handle, struct list *batch, bool writes)
{
    (void)handle;
    (void)batch;
    (void)writes;
    return false;
}
void sqlite_shut(struct handle *handle)
{
    (void)handle;
}
void sqlite_power_off(struct disk *disk)
{
    (void)disk;
}
void sqlite_disk_new(struct disk *disk)
{
    (void)disk;
}
void sqlite_disk_free(struct disk *disk)
{
    (void)disk;
}
bool sqlite_look(struct disk *disk, const char *name, struct look *look)
{
    (void)disk;
    (void)name;
    (void)look;
    return false;
}
