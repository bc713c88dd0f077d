"""Who says what at the gate: worker 0, where all check in, and each of the other workers.

`chief.py` and `member.py` are the two roles, `session.py` and `conversation.py` what they say to
each other. `check_ins.py` is the chief's list, `same_index.py` who of two with one index stays in
it, and `gathering.py` who of the list may go on. `links.py` connects neighbours, as
`circles.py` (worker 0) and `linking.py` (the others) ask for it.
`quorum.py` says when fewer go on without the others; `latecomers.py` is the chief's part meanwhile.
`chief_lines.py` is what a member says of its wait. Why it is so:
docs/explanation/decisions/0019-one-meeting.md and 0014-fewer-workers.md.
"""
