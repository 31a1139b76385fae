//! What one server has of a listener's work.

/// The partitions that a server holds, and the canaries that are made there. It changes while slots of a cluster move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Their places in the list that the stream was opened for, in order.
    pub(crate) partitions: Vec<usize>,
    /// The counter of canaries; none on a server without slots, which would not take it.
    pub(crate) canaries: Option<String>,
}
