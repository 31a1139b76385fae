//! Where a client of a test differs from one of a program.

use super::pulse::News;

/// What a test has put into a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    /// Whether time is tokio's, which tests may pause and advance.
    pub(crate) virtual_time: bool,
    /// Which of the looks that are made over and over can be left out.
    pub(super) news: Option<News>,
}

impl Hooks {
    pub(crate) fn news(&self) -> Option<News> {
        self.news.clone()
    }
}
