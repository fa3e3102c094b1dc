"""The exception that this package raises."""


class Error(Exception):
    """The result that was asked for is not available. The message says what, where and, if known, what to do.

    Covers missing, damaged and foreign captures, filters that no request passes, optional packages that are not
    installed, and captures without root.
    """
