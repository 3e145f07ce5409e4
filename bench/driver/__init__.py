"""The driver of `kmem bench`: plans the rounds, starts the workers in turn, and prints the results. The driver measures
nothing."""


class BenchError(Exception):
    """The run cannot continue: one line, and the exit status."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status
