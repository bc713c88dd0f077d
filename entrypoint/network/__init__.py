"""Measures the links of a ring of workers, and estimates the speed that they allow.

Read `measuring.py` first: it measures over this worker's two connections, with `left_side.py`,
`right_side.py` and `protocol.py`. `link.py` is the result, and finds slow links. `cost.py` is a
model of the cost of sums, `speed_up.py` estimates the gain of several machines, and `question.py`
and `table.py` are the arguments and the output of the command `network`.
"""
