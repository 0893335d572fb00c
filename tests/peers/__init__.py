"""The peers: recurrences and chunk forms that others wrote, against ours.

FLA's ``naive_*``, transformers' torch fallbacks and mamba_ssm's references, run on the CPU. They need
requirements-peers.txt; without it the tests are skipped. ``python -m tests.peers`` prints the table
of differences and writes it to book/data/peers.json.
"""
