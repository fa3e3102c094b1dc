"""What this package raises."""


class Error(Exception):
    """Something that was asked for cannot be had; the message names what, where and, if known, what to do.

    Missing, damaged and foreign captures, filters that no request passes, optional packages that are not installed,
    captures without root: all are of this class.
    """
