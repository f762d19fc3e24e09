# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs an application of WSGI (PEP 3333), as those of Flask, Django and Bottle:

    python -m flash_application.wsgi MODULE:NAME
"""

import importlib
import io
import os
import sys

from .serving import serve


def handler(application):
    """What `flash_application.serve` calls for an application of WSGI."""

    def handle(request):
        environ = dict(request.variables)
        environ.update(
            {
                "wsgi.version": (1, 0),
                "wsgi.url_scheme": environ.get("REQUEST_SCHEME", "http"),
                "wsgi.input": io.BufferedReader(_Content(request)),
                "wsgi.input_terminated": True,
                "wsgi.errors": sys.stderr,
                "wsgi.multithread": False,
                "wsgi.multiprocess": True,
                "wsgi.run_once": False,
            }
        )
        begun = []

        def start_response(status, fields, exc_info=None):
            if exc_info:
                try:
                    if request.has_begun:
                        raise exc_info[1].with_traceback(exc_info[2])
                finally:
                    exc_info = None
            elif begun:
                raise RuntimeError("the answer has begun already")
            begun[:] = [status, fields]
            return write

        def write(data):
            if not data:
                return
            if not request.has_begun:
                request.begin(*begun)
            request.write(data)

        parts = application(environ, start_response)
        try:
            if not begun:
                parts = iter(parts)
                first = next(parts, b"")
                write(first)
            elif isinstance(parts, (list, tuple)) and len(parts) == 1 and not request.has_begun:
                # Of one part the length is known (PEP 3333, "Handling the Content-Length Header").
                status, fields = begun
                if not any(name.lower() == "content-length" for name, _ in fields):
                    begun[1] = [*fields, ("Content-Length", str(len(parts[0])))]
            for part in parts:
                write(part)
            if not request.has_begun:
                request.begin(*begun)
        finally:
            if hasattr(parts, "close"):
                parts.close()

    return handle


class _Content(io.RawIOBase):
    def __init__(self, request):
        self._request = request

    def readable(self):
        return True

    def readinto(self, into):
        part = self._request.read_some(len(into))
        into[: len(part)] = part
        return len(part)


def main():
    if len(sys.argv) != 2 or ":" not in sys.argv[1]:
        sys.exit("usage: python -m flash_application.wsgi MODULE:NAME")
    module, name = sys.argv[1].split(":", 1)
    sys.path.insert(0, os.getcwd())
    application = importlib.import_module(module)
    for part in name.split("."):
        application = getattr(application, part)
    serve(handler(application))


if __name__ == "__main__":
    main()
