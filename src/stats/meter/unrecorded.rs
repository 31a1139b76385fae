//! Without the feature: nothing is recorded, and nothing is kept for it.

#![allow(clippy::unused_self)] // as with the feature

use std::time::Duration;

use super::ClaimResult;
use crate::source::LapseSource;
use crate::wire::{DeadReason, Ending};

#[derive(Debug, Default)]
pub(crate) struct Mirror;

impl Mirror {
    pub(super) fn set(&self, _: &'static str, _: &str) {}
    pub(crate) fn add(&self, _: u64) {}
}

#[derive(Debug)]
pub(super) struct Topic;

impl Topic {
    pub(super) fn new(_: &str) -> Self {
        Self
    }

    pub(super) fn late(&self, _: LapseSource, _: Duration) {}
    pub(super) fn handler(&self, _: Duration) {}
    pub(super) fn lapse(&self, _: LapseSource, _: Ending) {}
    pub(super) fn dead(&self, _: DeadReason, _: u64) {}
    pub(super) fn claim(&self, _: ClaimResult) {}
}

pub(crate) fn gap(_: &str, _: &'static str) {}
pub(crate) fn canary(_: &str, _: Duration) {}
