/* SPDX-License-Identifier: Apache-2.0 */
/* Something that is no Redis: says the same to everyone who connects, and counts who came. */
#ifndef STOCKADE_TESTS_CHATTERBOX_H
#define STOCKADE_TESTS_CHATTERBOX_H

#include "tests/unit/fence/rig.h"

struct chatterbox {
    uv_tcp_t listener;
    const char *says; /* "": nothing, closes at once */
    size_t len;
    int port, visitors;
};

/* On the rig's loop, at a free port. `says` is borrowed. */
void chatterbox_open(struct chatterbox *box, struct rig *rig, const char *says, size_t len);
void chatterbox_close(struct chatterbox *box, struct rig *rig);

#endif
