//! How a lapse was found.

/// What made the listener look, so that this lapse was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LapseSource {
    /// The listener knew the deadline and woke up for it.
    Timer,
    /// An expired key was announced.
    Notification,
    /// A sweep of the index.
    Sweep,
}

impl LapseSource {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timer => "timer",
            Self::Notification => "notification",
            Self::Sweep => "sweep",
        }
    }
}
