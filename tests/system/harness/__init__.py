# SPDX-License-Identifier: Apache-2.0
"""What the system tests drive: real daemons, real Redis, raw sockets, a relay that misbehaves."""
