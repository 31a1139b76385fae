//! Somebody shows a token: it is looked at, and a wrong one is answered late and written down.

use std::sync::Arc;

use axum::http::request::Parts;
use tokio::time::sleep;

use crate::access::Pass;
use crate::guard::Origin;
use crate::guard::guesses::Verdict;
use crate::serve::Seat;
use crate::web::Shared;

/// Why somebody does not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Wrong,
    /// It may be right.
    TooMany,
}

/// One who may show a token.
pub(crate) struct Showing {
    shared: Shared,
    pub(super) origin: Origin,
    /// Not known within another program's server.
    seat: Option<Seat>,
}

impl Showing {
    pub(crate) fn of(shared: &Shared, parts: &Parts) -> Self {
        let origin = Origin::of(parts, &shared.access);
        Self { shared: shared.clone(), origin, seat: parts.extensions.get::<Seat>().cloned() }
    }

    /// Returns the pass of a token.
    pub(crate) async fn token(&self, said: &[u8], by: &'static str) -> Result<Arc<Pass>, Refused> {
        let pass = self.shared.access.pass_of(said);
        match self.shared.guesses.judge(self.origin.address(), pass.as_ref().map(|pass| &*pass.name)) {
            Verdict::Right => pass.ok_or(Refused::Wrong),
            Verdict::Wrong(wait) => {
                self.origin.was_wrong(by);
                // One that has to wait keeps no place from others.
                let _waiting = self.seat.as_ref().map(Seat::waiting);
                sleep(wait).await;
                Err(Refused::Wrong)
            }
            Verdict::Refused { is_news } => {
                if is_news {
                    self.origin.was_refused(by);
                }
                Err(Refused::TooMany)
            }
        }
    }
}
