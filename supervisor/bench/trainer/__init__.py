"""The reference trainer: a tiny GPT with real tensor, pipeline and data parallel groups over gloo, for rehearsals.

It is started once per rank, by `python -m supervisor.bench.trainer` or by the path of `__main__.py`.
"""
