"""The first batch is computed both ways: as shares, and whole, as one device would."""
