"""Connections between two workers: greetings, signed messages, names, and reasons of failures."""
