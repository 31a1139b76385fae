//! Placeholder while the seam settles.
/// In memory.
#[derive(Debug)]
pub struct MemoryStore;
