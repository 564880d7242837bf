# SPDX-License-Identifier: Apache-2.0
"""Measures Stockade beside others on one machine, in one run: `make bench`."""
