"""The processes that train together: who joins, their messages, and the loss of one."""
