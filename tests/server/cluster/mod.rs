//! Managed topics on clusters.

mod failover;
mod hostile;
mod life;
pub(crate) mod load;
mod moving;
mod rights;
