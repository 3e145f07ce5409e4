"""The driver of `kmem bench`: it plans, starts the workers in turn, and prints what came out. It measures nothing."""


class BenchError(Exception):
    """The run can't go on: one line, and the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status
