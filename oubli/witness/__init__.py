"""A small witness of logs (c2sp.org/tlog-witness): it signs that a log only grows, and remembers one checkpoint a log.

    witness    the rules, and what is kept: one file a log
    server     HTTP around it
    watch      the other way round: asks a server for its log, and compares with what was seen before

It imports `oubli.verifier`, and nothing else of Oubli: it can be run by somebody who does not run a model server.
"""

from oubli.witness.server import WitnessServer
from oubli.witness.watch import Watch
from oubli.witness.witness import Answer, Witness, WitnessKey, read_or_make_key

__all__ = ["Answer", "Watch", "Witness", "WitnessKey", "WitnessServer", "read_or_make_key"]
