"""Bucket plans by measurement: what an all-reduce costs, when gradients are ready, which plan hides most.

In: a live communicator and recorded steps. Out: a `BucketPlan` with predicted exposed time, as a file if asked.
Read `optimum.py` first: the recurrence; `simulate.py` says what a plan costs; `cost.py` and `profile.py` what is known.
"""
