//! Managed topics on clusters.

mod failover;
mod life;
pub(crate) mod load;
mod moving;
mod rights;
