//! How an attached topic's keys are treated, by agreement of its listeners.

use bytes::Bytes;

use crate::error::Result;
use crate::{PartitionNames, Store, scripts};

/// The policy that stands in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingPolicy {
    /// Its revision.
    pub revision: u32,
    /// Its text.
    pub text: Bytes,
}

impl Store {
    /// Says what a listener's policy is, and answers what the topic's is: of both that of the higher revision.
    pub async fn agree_on_policy(
        &self,
        first: &PartitionNames,
        revision: u32,
        text: &str,
    ) -> Result<StandingPolicy> {
        let mut reply = self.call(&scripts::POLICY, first).arg(revision).arg(text).reply().await?;
        let revision = u32::try_from(reply.int()?).unwrap_or(u32::MAX);
        Ok(StandingPolicy { revision, text: reply.bytes()? })
    }
}
