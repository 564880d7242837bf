/* SPDX-License-Identifier: Apache-2.0 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "store/sqlite/sql_memory.h"
#include "tests/crash/check.h"
static double now(void){struct timespec t;clock_gettime(CLOCK_MONOTONIC,&t);return (double)t.tv_sec+(double)t.tv_nsec/1e9;}
int main(int argc,char**argv)
{
    sql_memory_install();
    struct crash_vfs *vfs = crash_vfs_new();
    struct disk *disk = disk_new(), *base = disk_clone(disk);
    struct run run;
    disk->now_ms = 1700000000000;
    crash_vfs_mount(vfs, disk);
    double t0=now();
    run_start(&run, vfs, (uint64_t)(argc>1?atoi(argv[1]):1), false);
    int rounds = argc>2?atoi(argv[2]):30;
    run_rounds(&run, 0, rounds/2);
    run_reopen(&run);
    run_rounds(&run, rounds/2, rounds-rounds/2);
    size_t used=disk->events_count;
    run_stop(&run);
    printf("why %s events %zu (%zu with close) ops %zu in %.3f ms\n", run.why, used, disk->events_count, run.steps_count[0]+run.steps_count[1]+run.steps_count[2], (now()-t0)*1e3);
    if (run.why[0]) return 1;
    struct replay *replay = replay_new(disk, base);
    int points=0, bad=0; t0=now();
    for (size_t n=0;n<=disk->events_count;n++){
        replay_to(replay,n);
        struct expectation expect; run_expect(&run,n,&expect);
        for (int mode=0;mode<DISK_MODES;mode++){
            if(!replay_differs(replay,mode))continue;
            struct disk *image=replay_image(replay,mode,1);
            struct check check={.vfs=vfs,.expect=&expect};
            points++;
            if(!check_disk(&check,image)){bad++; if(bad<5)printf("FAIL %zu %s %s: %s\n",n,n<disk->events_count?disk_kind_name(disk->events[n].kind):"end",disk_mode_name(mode),check.why);}
            disk_free(image);
        }
    }
    printf("%d points %d bad %.1f s\n",points,bad,now()-t0);
    return 0;
}
