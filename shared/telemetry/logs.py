"""Log lines: a constant message and key-values, as JSON or as aligned text."""

import logging
import sys

import structlog


def configure(service: str, *, style: str = "json", level: str = "info") -> None:
    """Send every line of this process to standard error, each with the service's name."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer(sort_keys=False)
        if style == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if style == "json" else _keep,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(level=logging.WARNING, handlers=[_OfLibraries()])


class _OfLibraries(logging.Handler):
    """Writes what libraries log in our form, such as the event loop's tracebacks."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def _keep(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return event
