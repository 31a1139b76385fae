//! What becomes of an occurrence: one of three things.

use std::sync::Arc;
use std::time::Duration;

#[cfg(unix)]
use crate::exec::Exec;
use crate::forward::Forward;
use crate::webhook::{Hosts, Webhook, fingerprint};

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

    /// By what it is compared with that of another program: a hash, as a URL may hold what nobody else is to read.
    pub(crate) fn identity(&self) -> String {
        let text = match self {
            Self::Webhook(webhook) => format!("webhook {}", webhook.url()),
            Self::Forward(forward) => format!("forward {forward:?}"),
            #[cfg(unix)]
            Self::Exec(exec) => format!("exec {:?}", exec.argv),
        };
        fingerprint(&text)
    }

    /// More than so many at once have no place anyway.
    pub(crate) fn most_at_once(&self) -> Option<usize> {
        match self {
            Self::Webhook(webhook) => webhook.most_at_once(),
            _ => None,
        }
    }
}
