//! The delivery of an occurrence: a webhook, a list or stream, or a program.

use std::sync::Arc;
use std::time::Duration;

#[cfg(unix)]
use crate::exec::Exec;
use crate::forward::Forward;
use crate::webhook::{CalledHostRegistry, Webhook, fingerprint};

#[derive(Debug)]
pub(crate) enum Delivery {
    Webhook(Box<Webhook>),
    Forward(Forward),
    #[cfg(unix)]
    Exec(Exec),
}

impl Delivery {
    /// Returns the time within which a delivery ends by itself.
    pub(crate) fn timeout(&self) -> Duration {
        match self {
            Self::Webhook(webhook) => webhook.timeout(),
            Self::Forward(_) => Duration::from_secs(15),
            #[cfg(unix)]
            Self::Exec(exec) => exec.timeout,
        }
    }

    /// Returns the hosts that a webhook calls.
    pub(crate) fn hosts(&self) -> Option<Arc<CalledHostRegistry>> {
        match self {
            Self::Webhook(webhook) => Some(webhook.hosts()),
            _ => None,
        }
    }

    /// Returns a fingerprint by which listeners compare their deliveries. It is a hash, as a URL may hold secrets.
    pub(crate) fn identity(&self) -> String {
        let text = match self {
            Self::Webhook(webhook) => format!("webhook {}", webhook.url()),
            Self::Forward(forward) => format!("forward {forward:?}"),
            #[cfg(unix)]
            Self::Exec(exec) => format!("exec {:?}", exec.argv),
        };
        fingerprint(&text)
    }

    /// Returns how many deliveries can run at the same time, if there is one host to limit them.
    pub(crate) fn most_at_once(&self) -> Option<usize> {
        match self {
            Self::Webhook(webhook) => webhook.most_at_once(),
            _ => None,
        }
    }
}
