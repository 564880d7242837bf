/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder have for the table of commands. */
#ifndef STOCKADE_ENGINE_HANDLERS_H
#define STOCKADE_ENGINE_HANDLERS_H

#include "proxy/engine/command/command.h"

/* connection.c */
command_start connection_ping, connection_echo, connection_hello, connection_auth, connection_quit,
    connection_reset, connection_select;
extern const struct subcommand connection_client_subcommands[];
command_exec connection_ping_exec, connection_echo_exec, connection_select_exec;

/* server.c, info.c */
command_start server_time, server_command, server_shutdown, server_flushall, server_info;
command_act server_info_act;
extern const struct subcommand server_command_subcommands[], server_config_subcommands[];

/* string.c */
command_start string_set_prepare;
command_act string_set_act;
command_exec string_get, string_set, string_setnx, string_getset, string_getdel, string_mget,
    string_mset, string_append, string_strlen, string_incr, string_decr, string_incrby,
    string_decrby, string_incrbyfloat, string_getrange, string_setrange;

/* key.c */
command_exec key_del, key_exists, key_ttl, key_type, key_scan, key_dbsize;

/* hash.c */
command_exec hash_get, hash_set, hash_setnx, hash_mget, hash_mset, hash_getall, hash_del,
    hash_exists, hash_len, hash_keys, hash_vals, hash_incrby, hash_incrbyfloat, hash_strlen,
    hash_scan;

/* sql.c, guard.c, receipt.c, history.c */
command_start sql_prepare, receipt_show, history_show, history_refusals_show, waiters_show;
command_exec sql_exec;
extern const struct subcommand guard_subcommands[];

/* acl.c */
extern const struct subcommand acl_subcommands[];

#endif
