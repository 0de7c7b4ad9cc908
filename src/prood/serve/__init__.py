"""The HTTP service: a detector behind a queue that gathers requests, with limits, metrics and a page.

`create_app` and `serve` need fastapi and uvicorn, the extra `serve`; they are looked for when they are called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from prood.extras import require_packages
from prood.serve.options import About, Options

if TYPE_CHECKING:
    from prood.serve.app import create_app
    from prood.serve.server import serve

__all__ = ["About", "Options", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    homes = {"create_app": "prood.serve.app", "serve": "prood.serve.server"}
    if name not in homes:
        raise AttributeError(f"module 'prood.serve' has no attribute {name!r}")
    check_packages()
    return getattr(import_module(homes[name]), name)


def check_packages() -> None:
    require_packages("serve", "fastapi", "uvicorn", "python_multipart", "prometheus_client", what="the service")
