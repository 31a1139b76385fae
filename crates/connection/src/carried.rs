//! Errors of ours on their way through `redis`, whose connections return its own.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use redis::RedisError;

use crate::error::Error;

/// The same as one of `redis`.
pub(super) fn carry(error: Error) -> RedisError {
    io::Error::other(error).into()
}

/// What [`carry`] was given.
pub(super) fn carried(error: &RedisError) -> Option<&Error> {
    io_error(error)?.get_ref()?.downcast_ref()
}

/// The error of a stream. `source` of an `io::Error` would lead past it.
pub(super) fn io_error(error: &RedisError) -> Option<&io::Error> {
    let shared = error.source()?.downcast_ref::<Arc<dyn std::error::Error + Send + Sync>>()?;
    shared.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_through_redis_comes_out_as_it_was() {
        let error = Error::invalid("x");
        assert_eq!(carried(&carry(error.clone())), Some(&error));
        assert!(carried(&io::Error::other("x").into()).is_none());
        assert!(carried(&(redis::ErrorKind::Client, "x").into()).is_none());
    }
}
