//! An in-memory slurmrestd for tests.
