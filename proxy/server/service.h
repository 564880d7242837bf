/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon says to the service manager that started it (systemd: sd_notify(3), a unit of
 * Type=notify), and the sockets that it got from there. Where nobody is listening, nothing is
 * said. */
#ifndef STOCKADE_SERVER_SERVICE_H
#define STOCKADE_SERVER_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"

/* Say that clients are served from here on: at the start, and when a reload is over. */
void service_ready(void);
/* Say what is wrong while clients are served, in one line; empty: nothing any more. */
void service_status(struct bytes wrong);
/* Say that the options are being read again. */
void service_reloading(void);
/* Say that the daemon has begun to stop. */
void service_stopping(void);

/* The sockets that were handed over: they take the place of the addresses in the options. */
struct service_sockets {
    int *listen; /* for clients */
    size_t listen_count;
    int admin; /* the one that is called "admin"; -1: there is none */
};

/* Take over what was handed over; the descriptors belong to the caller from here on. False: `why`
 * is one line. Free `listen` in either case. */
bool service_take_sockets(struct service_sockets *sockets, char *why, size_t why_size);

#endif
