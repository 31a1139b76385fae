//! Tells a merchant of a payment: the part that a payment service would write itself.

use std::sync::Arc;

use keylapse::{Failure, Handler, Lapse, Outcome};
use reqwest::StatusCode;

use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::merchants::Notice;

/// What an attempt needs.
pub(crate) struct Notify {
    http: reqwest::Client,
    clock: Clock,
    ledger: Arc<Ledger>,
}

impl Notify {
    pub(crate) fn new(clock: Clock, ledger: Arc<Ledger>) -> reqwest::Result<Self> {
        // Built with the rest of this repository, the client has TLS and asks whose, though none is spoken here.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The merchants are on this machine, whatever proxy the environment names.
        Ok(Self { http: reqwest::Client::builder().no_proxy().build()?, clock, ledger })
    }
}

impl Handler<Notice> for Notify {
    async fn call(&self, lapse: Lapse<Notice>) -> Result<Outcome, Failure> {
        self.ledger.started(&lapse, self.clock.now().await?);
        let notice = lapse.payload();
        let request = self.http.post(&notice.url).header("Idempotency-Key", lapse.id()).json(notice);
        let answer = request.send().await?;
        if answer.status() == StatusCode::GONE {
            return Err(Failure::dead("the merchant has closed"));
        }
        answer.error_for_status()?;
        self.ledger.handled(lapse.arming());
        Ok(Outcome::Done)
    }
}
