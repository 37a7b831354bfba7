"""The entry of one rank. Run as a module, by path, or inside a process forked from one that has imported torch."""

from __future__ import annotations

import os
import sys

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main() -> int:
    """Train, and answer the exit code. torch is imported here, when the environment that it reads at import is set."""
    for name in ONE_THREAD:  # the number of threads changes the bits of a sum; a warm parent has set it already
        os.environ[name] = "1"
    if os.environ.get("MASTER_ADDR") in ("127.0.0.1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    from supervisor.bench.trainer.options import parse  # noqa: PLC0415

    options = parse(sys.argv[1:], os.environ)
    from supervisor.bench.trainer.loop import train  # noqa: PLC0415

    try:
        train(options)
    except Exception:  # noqa: BLE001 - whoever has hooked into uncaught exceptions hears of it; then the end is quick
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a normal exit after collectives takes 2.3 s (measured); nothing is left to close
