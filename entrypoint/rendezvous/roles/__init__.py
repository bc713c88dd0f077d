"""The two roles at the gate: worker 0, where all check in, and each of the other workers.

`chief.py` and `member.py` are the roles. `session.py` and `conversation.py` are their exchange.
`check_ins.py` is the chief's list. `same_index.py` decides between two processes with one index.
`gathering.py` decides which workers of the list may continue, and `quorum.py` when fewer than all
may. `latecomers.py` is the chief's role while a ring trains without some workers. `neighbours.py`
and `links.py` connect neighbours, for `circles.py` (worker 0) and `linking.py` (the others).
`chief_lines.py` has the log lines of a waiting member. The reasons are in
docs/explanation/decisions/0019-one-meeting.md and 0014-fewer-workers.md.
"""
