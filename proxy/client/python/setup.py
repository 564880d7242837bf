# SPDX-License-Identifier: Apache-2.0
# What there is to say stands in setup.cfg. There is no pyproject.toml on purpose: with one, pip
# fetches setuptools from the network instead of using the one that is installed.
from setuptools import setup

setup()
