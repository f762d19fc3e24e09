# SPDX-License-Identifier: MIT OR Apache-2.0
"""Applications of the web server flash: processes that answer requests by writing to the client's socket themselves.

    import flash_application

    def hello(request):
        request.answer(200, [("Content-Type", "text/plain")], b"hello\\n")

    flash_application.serve(hello)

`flash_application.wsgi` has an adapter for WSGI: `python -m flash_application.wsgi MODULE:NAME`.
"""

from .request import ClientGone, Request
from .serving import serve

__all__ = ["ClientGone", "Request", "serve"]
