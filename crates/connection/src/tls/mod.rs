//! TLS: what a program says of it, and sessions by `rustls`.
//!
//! Nothing is kept between two connections: each reads certificates and keys anew, so that rotated ones are picked up.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod config;
#[cfg(feature = "tls")]
mod failure;
#[cfg(feature = "tls")]
mod session;
mod settings;

#[cfg(not(feature = "tls"))]
pub(super) use self::absent::Context;
#[cfg(feature = "tls")]
pub(super) use self::session::Context;
pub use self::settings::Tls;
