/* SPDX-License-Identifier: Apache-2.0 */
/* What the shared library shows: it is compiled with everything hidden but what says EXPORT. */
#ifndef STOCKADE_CLIENT_EXPORT_H
#define STOCKADE_CLIENT_EXPORT_H

#define EXPORT __attribute__((visibility("default")))

#endif
