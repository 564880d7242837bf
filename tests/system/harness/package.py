# SPDX-License-Identifier: Apache-2.0
"""The package `stockade` for Python, from the source tree:

    from harness.package import stockade
"""

import sys

from harness.limits import REPO, patience

FOLDER = REPO / "proxy/client/python"
sys.path.insert(0, str(FOLDER))

import stockade  # noqa: E402


def connect(where, timeout=5.0, **options):
    """To a daemon or a relay."""
    return stockade.connect(where.uri, timeout=patience(timeout), **options)


def aio_connect(where, timeout=5.0, **options):
    return stockade.aio.connect(where.uri, timeout=patience(timeout), **options)
