//! Managed topics on clusters.

mod failover;
mod life;
mod load;
mod moving;
