//! A producer of one topic.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use keylapse::limits::MAX_PAYLOAD;
use keylapse::{ArmResult, Client, Schedule, Topic};

pub(super) const LATER: Duration = Duration::from_secs(3600);

/// A producer, whose calls answer in a word.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) schedule: Schedule,
    pub(super) topic: Topic<String>,
}

impl Caller {
    pub(super) fn of(client: &Client) -> Self {
        Self { schedule: Schedule::new(client.clone()), topic: Topic::new("app:share:{id}").unwrap() }
    }

    /// There is a connection, and the topic is agreed on.
    pub(super) async fn connected(&self) {
        let there = self.schedule.look_up(&self.topic, ["nobody"]).await;
        assert!(there.expect("a connection").is_none());
    }

    /// The same, whose payloads may be of any size.
    pub(super) fn with_large_payloads(self) -> Self {
        Self { topic: self.topic.payload_limit(MAX_PAYLOAD), ..self }
    }

    pub(super) fn armed_with(
        &self,
        id: impl Into<String>,
        delay: Duration,
        payload: &str,
    ) -> BoxFuture<'static, keylapse::Result<ArmResult>> {
        let (Self { schedule, topic }, id, payload) = (self.clone(), id.into(), payload.to_owned());
        async move { schedule.arm(&topic, [id], delay, &payload).await }.boxed()
    }

    pub(super) fn arm(&self, id: impl Into<String>) -> BoxFuture<'static, String> {
        self.armed_with(id, LATER, "").map(|armed| word_of(&armed)).boxed()
    }

    pub(super) fn arm_absent(&self, id: impl Into<String>) -> BoxFuture<'static, String> {
        let (Self { schedule, topic }, id) = (self.clone(), id.into());
        let armed = async move { schedule.arm(&topic, [id], LATER, &"absent".into()).only_if_absent().await };
        armed.map(|armed| word_of(&armed)).boxed()
    }

    pub(super) fn cancel(&self, id: impl Into<String>) -> BoxFuture<'static, String> {
        let (Self { schedule, topic }, id) = (self.clone(), id.into());
        async move { schedule.cancel(&topic, [id]).await }.map(|cancelled| word_of(&cancelled)).boxed()
    }

    pub(super) fn reschedule(&self, id: impl Into<String>) -> BoxFuture<'static, String> {
        let (Self { schedule, topic }, id) = (self.clone(), id.into());
        let moved = async move { schedule.reschedule(&topic, [id], LATER * 2).await };
        moved.map(|moved| word_of(&moved)).boxed()
    }
}

/// The name of the variant, or the kind of the error.
pub(super) fn word_of<T: std::fmt::Debug>(answer: &keylapse::Result<T>) -> String {
    let text = match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{:?}", error.kind()),
    };
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}
