//! What one server has of a listener's work.

/// The partitions that a server holds, and the canaries that are made there. It changes while slots of a cluster move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Their places in the list that the stream was opened for, in order.
    pub(crate) partitions: Vec<usize>,
    /// The counter of canaries; none on a server without slots, which would not take it.
    pub(crate) canaries: Option<String>,
}

impl Share {
    /// Whether canaries of this tag are made there.
    pub(super) fn has_canaries_of(&self, tag: u32) -> bool {
        self.canaries.as_deref().is_some_and(|name| name.ends_with(&format!("{{canary/{tag}}}")))
    }
}
