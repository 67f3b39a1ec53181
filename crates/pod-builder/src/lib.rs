//! Builds child objects and merges user overrides over the defaults of the operator.
