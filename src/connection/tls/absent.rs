//! Without the feature `tls` there are no sessions. Whoever asks for one is refused long before.

use std::convert::Infallible;

use redis::RedisError;

use crate::connection::endpoint::Endpoint;
use crate::connection::stream::Stream;
use crate::connection::tls::Tls;
use crate::error::{Error, Result};

/// There is none.
pub(in crate::connection) struct Context(Infallible);

impl Context {
    pub(in crate::connection) fn new(_: &Tls) -> Result<Self> {
        Err(Error::invalid("TLS needs keylapse's feature `tls`"))
    }

    pub(in crate::connection) async fn begin(
        &self,
        _: Box<dyn Stream>,
        _: &Endpoint,
    ) -> Result<Box<dyn Stream>> {
        match self.0 {}
    }

    pub(in crate::connection) fn explain(&self, _: &RedisError) -> Option<Error> {
        match self.0 {}
    }
}

impl Tls {
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(in crate::connection) fn check(&self) -> Result<()> {
        Ok(())
    }
}
