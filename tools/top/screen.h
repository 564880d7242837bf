/* SPDX-License-Identifier: Apache-2.0 */
/* The screen of `stockade top`, by ncurses. */
#ifndef STOCKADE_TOOLS_TOP_SCREEN_H
#define STOCKADE_TOOLS_TOP_SCREEN_H

#include "tools/failure.h"
#include "tools/top/watch.h"

struct screen {
    void *terminal;    /* ncurses' SCREEN */
    const char *where; /* the daemon, as people may see it; borrowed */
    size_t from;       /* the first row that is shown */
    bool is_paused, is_typing /* the filter */;
};

enum screen_key { SCREEN_NOTHING, SCREEN_CHANGED, SCREEN_QUIT };

/* Take the terminal. False: it cannot be one. */
bool screen_open(struct screen *screen, struct failure *failure);
/* Give the terminal back as it was. */
void screen_close(struct screen *screen);
/* How many leases it has room for. */
size_t screen_rows(void);
void screen_draw(struct screen *screen, const struct watch *watch);
/* Take one key that was pressed, and do what it asks for. SCREEN_NOTHING: there was none. */
enum screen_key screen_take_key(struct screen *screen, struct watch *watch);

#endif
