/* SPDX-License-Identifier: Apache-2.0 */
/* May a user do what a request asks? What it does (command/deed.h) says which rights it needs: to
 * the command, to each of its keys, to its channels. For FENCED and FENCEDALL it is the command
 * inside; each resource that they claim counts as a key of it. */
#ifndef STOCKADE_ENGINE_RIGHTS_H
#define STOCKADE_ENGINE_RIGHTS_H

#include "proxy/engine/acl/acl.h"
#include "proxy/engine/session/request.h"

enum denied_for {
    DENIED_FOR_COMMAND,
    DENIED_FOR_KEY,
    DENIED_FOR_CHANNEL,
    DENIED_FOR_AUTH, /* a wrong password: for ACL LOG */
};

struct denial {
    enum denied_for reason;
    struct bytes object;  /* the key or channel; borrowed from the request */
    unsigned needs;       /* of a key: what it was needed for */
    const char *command;  /* "GET", or "client|list" */
    const char *category; /* of what it does */
};

/* Look at a slice of the names in the request, whose plan is made: there may be a million of them,
 * and as many patterns as the operator likes. False: there are more to look at. The request
 * remembers how far it is, and the user, whose `acl` is the one in force. */
bool rights_look(const struct acl_user *user, struct request *request);
/* May the user do what the request asks? Its plan is made. What rights_look() has looked at is not
 * looked at again. False: `denial` says what is missing. */
bool rights_permit(const struct acl_user *user, struct request *request, struct denial *denial);
/* May the user do this by this command, whatever the keys? */
bool rights_permit_deed(const struct acl_user *user, const struct engine *engine,
                        const struct command *command, enum deed deed);
/* Append the denial as an error's text. */
void rights_explain(const struct acl_user *user, const struct denial *denial, struct buf *text);

#endif
