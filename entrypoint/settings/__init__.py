"""Settings: variables, their files and `.env`, and the options that are read from them."""
