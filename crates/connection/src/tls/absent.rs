//! Without the feature `tls` there are no sessions. Whoever asks for one is refused long before.

use std::convert::Infallible;

use redis::RedisError;

use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::tls::Tls;

/// There is none.
pub(crate) struct Context(Infallible);

impl Context {
    pub(crate) fn new(_: &Tls) -> Result<Self> {
        Err(Error::invalid("TLS needs keylapse's feature `tls`"))
    }

    pub(crate) async fn begin(&self, _: Box<dyn Stream>, _: &Endpoint) -> Result<Box<dyn Stream>> {
        match self.0 {}
    }

    pub(crate) fn explain(&self, _: &RedisError) -> Option<Error> {
        match self.0 {}
    }
}

impl Tls {
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn check(&self) -> Result<()> {
        Ok(())
    }
}
