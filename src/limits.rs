//! Bounds that several rooms keep to.

/// The longest key that can be armed, in bytes.
pub const MAX_KEY: usize = 4096;
/// The largest payload limit that a topic can set, in bytes.
pub const MAX_PAYLOAD: usize = 8 << 20;
