# SPDX-License-Identifier: GPL-2.0-or-later
"""Sluice's web page and REST API. It talks to the controller's API and to nothing else."""

__version__ = "0.1.0"
