"""The parts of bench/peers: problems and oracle, one module per library, the session, the report.

A peer's module has `version()` and `variants(problem, threads)`: a list of (name, Variant or the
reason why there is none). A Variant has `call(i)`, one attention over set i of keys and values,
and `output()`, what the last call computed as float32 [batch, q_heads, q_len, v_dim].
"""
