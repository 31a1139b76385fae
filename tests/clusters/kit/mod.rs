//! The clusters and groups of sentinels of the test kit, tested.

mod cluster;
mod sentinel;
