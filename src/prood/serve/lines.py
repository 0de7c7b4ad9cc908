"""The log as lines of JSON: time, level, the id of the request that the line is about, and what it says."""

import json
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

access = logging.getLogger("prood.access")
asking: ContextVar[str | None] = ContextVar("asking", default=None)
"""The id of the request that is being answered; threads that work for it inherit it."""


class Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"time": time, "level": record.levelname.lower(), "id": asking.get(), "message": record.getMessage()}
        told |= getattr(record, "said", {})
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json.dumps({key: value for key, value in told.items() if value is not None})


def write_log(as_json: bool, stream: TextIO | None = None) -> None:
    """Everything to the standard error: as words, or with an access log as JSON, a line for each event."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines() if as_json else logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
        root.setLevel(logging.WARNING)
    logging.getLogger("prood.serve").setLevel(logging.INFO)
    access.setLevel(logging.INFO if as_json else logging.WARNING)
