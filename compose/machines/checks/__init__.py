"""Checks the machines before anything is started."""
