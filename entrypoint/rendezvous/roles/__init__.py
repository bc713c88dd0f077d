"""The two roles at the gate: worker 0, where all check in, and each of the other workers.

`chief.py` and `member.py` are the roles; `session.py` and `conversation.py` are their exchange.
`check_ins.py` is the chief's list, `same_index.py` decides between two processes with one index,
and `gathering.py` decides which workers of the list may continue. `neighbours.py` and `links.py`
connect neighbours, for `circles.py` (worker 0) and `linking.py` (the others). `quorum.py` decides
when fewer workers continue without the others; `latecomers.py` is the chief's role meanwhile.
`chief_lines.py` has the log lines of a waiting member. The reasons are in
docs/explanation/decisions/0019-one-meeting.md and 0014-fewer-workers.md.
"""
