//! Ready protocols, both ends.
