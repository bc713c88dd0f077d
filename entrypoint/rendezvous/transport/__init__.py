"""How two workers talk: connections, greetings, signed messages, names, and why one fails."""
