"""Connections between two workers: greetings, signed messages, look-ups, reasons of failures."""
