"""Messages of a start: the banner, the explanation, the refusal."""
