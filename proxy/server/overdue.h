/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the admin address have to arrive in time. libmicrohttpd's own limit begins anew with
 * each byte, so a few hundred clients that send one now and then would keep everybody else out. */
#ifndef STOCKADE_SERVER_OVERDUE_H
#define STOCKADE_SERVER_OVERDUE_H

#include <uv.h>

struct overdue;
/* A connection, from its beginning to its end. */
struct arrival;

struct overdue *overdue_new(uv_loop_t *loop);
/* All connections have to have ended. */
void overdue_close(struct overdue *overdue, void (*closed)(void *context), void *context);

/* A connection has begun, and its first request is awaited. The descriptor is borrowed. */
struct arrival *overdue_begin(struct overdue *overdue, int fd);
/* The next request is awaited: if it is not whole in time, the socket is shut down. */
void overdue_await(struct arrival *arrival);
/* It has arrived. */
void overdue_arrived(struct arrival *arrival);
void overdue_end(struct arrival *arrival);

#endif
