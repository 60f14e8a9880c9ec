"""Triton on one machine without containers: install, preflight, start and stop."""
