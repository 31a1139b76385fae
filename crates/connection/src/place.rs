//! Where a server is found, asked anew for each connection.

use std::sync::Arc;

use crate::address::Address;
use crate::error::{Error, Result};
use crate::outage::Outage;
use crate::sentinel::Sentinels;
use crate::trust::{Trust, believed};

/// One address for ever, or that of whoever is the primary at present.
#[derive(Clone, Debug)]
pub enum Place {
    Fixed(Address),
    Primary(Arc<Sentinels>),
}

impl Place {
    /// Where to connect to now.
    pub async fn find(&self) -> Result<Address> {
        match self {
            Self::Fixed(address) => Ok(address.clone()),
            Self::Primary(sentinels) => {
                sentinels.keep_watching();
                sentinels.find_primary().await
            }
        }
    }

    /// Where it was found last.
    pub fn present(&self) -> Address {
        match self {
            Self::Fixed(address) => address.clone(),
            Self::Primary(sentinels) => sentinels.present(),
        }
    }

    /// The answer to a call there, if it can be believed.
    pub async fn believed<T>(
        &self,
        trust: Option<&Trust>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match self {
            // Nobody takes its place.
            Self::Fixed(_) => call.await,
            Self::Primary(sentinels) => {
                let present = sentinels.present().endpoint();
                let doubt = || sentinels.doubt();
                believed(trust, &present, sentinels.replaced(), doubt, call).await
            }
        }
    }

    /// What an error says there: where another server may take this one's place, that of a replica passes.
    pub(super) fn read(&self, error: Error) -> Error {
        match self {
            Self::Fixed(_) => error,
            Self::Primary(_) => error.until_the_primary_is_known(),
        }
    }

    /// How often it has been another place than before. A connection from before such a change is of no use.
    pub fn moves(&self) -> u64 {
        match self {
            Self::Fixed(_) => 0,
            Self::Primary(sentinels) => sentinels.moves(),
        }
    }

    /// Whether this is where it is.
    pub fn is_at(&self, address: &Address) -> bool {
        match self {
            Self::Fixed(_) => true,
            Self::Primary(sentinels) => sentinels.is_at(&address.endpoint()),
        }
    }

    /// When it is elsewhere.
    pub async fn left(&self, address: &Address) {
        match self {
            Self::Fixed(_) => std::future::pending().await,
            Self::Primary(sentinels) => sentinels.left(&address.endpoint()).await,
        }
    }

    /// Whether the server answers, wherever it is.
    pub fn outage(&self) -> &Arc<Outage> {
        match self {
            Self::Fixed(address) => &address.outage,
            Self::Primary(sentinels) => sentinels.outage(),
        }
    }
}
