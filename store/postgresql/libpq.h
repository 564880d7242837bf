/* SPDX-License-Identifier: Apache-2.0 */
/* libpq, which is loaded only when a URI names a store in PostgreSQL. */
#ifndef STOCKADE_STORE_POSTGRESQL_LIBPQ_H
#define STOCKADE_STORE_POSTGRESQL_LIBPQ_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

/* The functions of it that we use, here and in tools/database.c. */
#define LIBPQ_MAP(X)                                                                               \
    X(PQbackendPID)                                                                                \
    X(PQclear)                                                                                     \
    X(PQcmdStatus)                                                                                 \
    X(PQcmdTuples)                                                                                 \
    X(PQconnectdbParams)                                                                           \
    X(PQconnectionNeedsPassword)                                                                   \
    X(PQconnectPoll)                                                                               \
    X(PQconnectStartParams)                                                                        \
    X(PQconninfoFree)                                                                              \
    X(PQconninfoParse)                                                                             \
    X(PQconsumeInput)                                                                              \
    X(PQenterPipelineMode)                                                                         \
    X(PQerrorMessage)                                                                              \
    X(PQsendQuery)                                                                                 \
    X(PQexitPipelineMode)                                                                          \
    X(PQfinish)                                                                                    \
    X(PQflush)                                                                                     \
    X(PQfname)                                                                                     \
    X(PQfreemem)                                                                                   \
    X(PQftype)                                                                                     \
    X(PQgetCopyData)                                                                               \
    X(PQnotifies)                                                                                  \
    X(PQgetResult)                                                                                 \
    X(PQgetisnull)                                                                                 \
    X(PQgetlength)                                                                                 \
    X(PQgetvalue)                                                                                  \
    X(PQisBusy)                                                                                    \
    X(PQnfields)                                                                                   \
    X(PQntuples)                                                                                   \
    X(PQpipelineStatus)                                                                            \
    X(PQpipelineSync)                                                                              \
    X(PQputCopyData)                                                                               \
    X(PQputCopyEnd)                                                                                \
    X(PQresultErrorField)                                                                          \
    X(PQresultErrorMessage)                                                                        \
    X(PQresultStatus)                                                                              \
    X(PQsendDescribePortal)                                                                        \
    X(PQsendPrepare)                                                                               \
    X(PQsendQueryParams)                                                                           \
    X(PQsendQueryPrepared)                                                                         \
    X(PQsetErrorVerbosity)                                                                         \
    X(PQsetNoticeReceiver)                                                                         \
    X(PQsetnonblocking)                                                                            \
    X(PQsocket)                                                                                    \
    X(PQstatus)                                                                                    \
    X(PQtransactionStatus)

struct libpq {
/* A pointer to each function, under its name. */
#define X(name) __typeof__(&(name)) name;
    LIBPQ_MAP(X)
#undef X
};

/* Load libpq, and fill in the pointers. False: `why` says what is missing. */
bool libpq_load(struct libpq *pq, char *why, size_t why_size);

#endif
