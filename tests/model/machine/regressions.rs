//! Lives that once went wrong.
