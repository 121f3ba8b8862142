"""Errors that a user reads: one line that says what, why and what to do."""


class Failure(Exception):
    """The run cannot go on."""


class PeerFailure(Failure):
    """One server cannot be built or does not do its work; the others go on."""
