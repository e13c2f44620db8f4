"""The parts of bench/peers: problems and their oracle, a module for each library, the session and
the report.

The module of a peer has `version()` and `variants(problem, threads)`, which returns a list of
(name, Variant or the reason why there is none). A Variant has `call(i)`, which computes one
attention over set i of keys and values, and `output()`, the result of the last call as float32
[batch, q_heads, q_len, v_dim].
"""
