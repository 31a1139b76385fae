//! What becomes of an occurrence: one of three things.

use std::sync::Arc;
use std::time::Duration;

#[cfg(unix)]
use crate::exec::Exec;
use crate::forward::Forward;
use crate::webhook::{Hosts, Webhook};

#[derive(Debug)]
pub(crate) enum Delivery {
    Webhook(Box<Webhook>),
    Forward(Forward),
    #[cfg(unix)]
    Exec(Exec),
}

impl Delivery {
    /// After how long one has ended, by itself.
    pub(crate) fn timeout(&self) -> Duration {
        match self {
            Self::Webhook(webhook) => webhook.timeout(),
            Self::Forward(_) => Duration::from_secs(15),
            #[cfg(unix)]
            Self::Exec(exec) => exec.timeout,
        }
    }

    /// The hosts that it calls.
    pub(crate) fn hosts(&self) -> Option<Arc<Hosts>> {
        match self {
            Self::Webhook(webhook) => Some(webhook.hosts()),
            _ => None,
        }
    }

    /// More than so many at once have no place anyway.
    pub(crate) fn most_at_once(&self) -> Option<usize> {
        match self {
            Self::Webhook(webhook) => webhook.most_at_once(),
            _ => None,
        }
    }
}
