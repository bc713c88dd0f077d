"""Who says what at the gate: worker 0, where all check in, and each of the other workers.

`chief.py` and `member.py` are the two roles, `session.py` and `conversation.py` what they say to
each other. `check_ins.py` is the chief's list; `going_on.py` says when fewer go on without the
others, and `latecomers.py` is the chief's part while they do: docs/decisions/0014-fewer-workers.md.
"""
