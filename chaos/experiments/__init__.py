"""Experiments that come with the package."""
