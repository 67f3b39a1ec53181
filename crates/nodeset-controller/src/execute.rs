//! Carries out what was decided.
