"""What a start says: the banner, the explanation, the refusal."""
