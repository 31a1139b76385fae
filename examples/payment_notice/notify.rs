//! The handler, which notifies a merchant of a payment. A payment service would write this part itself.

use std::sync::Arc;

use keylapse::handler::Handler;
use keylapse::{Failure, Lapse, Outcome};

use crate::clock::Clock;
use crate::ledger::Ledger;
use crate::merchants::{Answer, Notice, send};

/// The handler with its dependencies.
pub(crate) struct Notify {
    pub(crate) clock: Clock,
    pub(crate) ledger: Arc<Ledger>,
}

impl Handler<Notice> for Notify {
    async fn call(&self, lapse: Lapse<Notice>) -> Result<Outcome, Failure> {
        self.ledger.started(&lapse, self.clock.now().await?);
        match send(lapse.payload(), lapse.id()).await? {
            Answer::Success => {}
            Answer::BadGateway => return Err(Failure::retry("502 Bad Gateway")),
            Answer::Gone => return Err(Failure::dead("the merchant has closed")),
        }
        self.ledger.handled(lapse.arming());
        Ok(Outcome::Done)
    }
}
