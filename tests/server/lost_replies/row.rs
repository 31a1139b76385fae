//! One row: a call, what came before it, and what comes between it and its
//! repeat.

use keylapse::{Error, ErrorKind};
use keylapse_support::{Binary, Then, command};

use super::dump::Dump;
use super::step::Step;
use super::world::World;

/// A repeat comes some time after the first call.
const LATER: u64 = 40;

/// A case, and what must hold for it. The repeat must answer as the first call
/// would have, and change nothing, unless the row says otherwise.
#[derive(Clone, Debug)]
pub(super) struct Row {
    name: &'static str,
    given: Vec<Step>,
    call: Step,
    meanwhile: Vec<Step>,
    says: Option<&'static str>,
    acts: Vec<Step>,
}

impl Row {
    pub(super) fn of(name: &'static str, given: impl Into<Vec<Step>>, call: Step) -> Self {
        Self { name, given: given.into(), call, meanwhile: Vec::new(), says: None, acts: Vec::new() }
    }

    /// What others do between the call and its repeat.
    pub(super) fn meanwhile(mut self, steps: impl Into<Vec<Step>>) -> Self {
        self.meanwhile = steps.into();
        self
    }

    /// What the repeat answers.
    pub(super) fn repeat_says(mut self, answer: &'static str) -> Self {
        self.says = Some(answer);
        self
    }

    /// What the repeat does to Redis, as a step that would do the same.
    pub(super) fn repeat_acts_as(mut self, step: Step) -> Self {
        self.acts = vec![step];
        self
    }

    pub(super) fn script(&self) -> &'static str {
        self.call.script().expect("rows are about calls")
    }
}

/// Checks rows, on each server that is at hand, and tells of all that fail.
pub(super) async fn check(rows: &[Row]) {
    for binary in Binary::all().expect("a server") {
        check_on(binary, rows, Row::lose).await;
    }
}

/// The same of what loses the answers of a row, on one server.
pub(super) async fn check_on(binary: Binary, rows: &[Row], lose: impl AsyncFn(&Row, &World)) {
    let version = binary.version();
    let mut world = World::start(binary).await;
    let mut failed = Vec::new();
    for row in rows {
        failed.extend(row.fault(&mut world, &lose).await.map(|wrong| format!("{}: {wrong}", row.name)));
    }
    assert!(failed.is_empty(), "on {version}:\n{}", failed.join("\n"));
}

impl Row {
    /// What is wrong with it, if anything.
    async fn fault(&self, world: &mut World, lose: impl AsyncFn(&Self, &World)) -> Option<String> {
        let (first, expected) = self.undisturbed(world).await;
        let (repeated, found) = self.disturbed(world, lose).await;
        let expected_answer = self.says.unwrap_or(&first);
        if repeated != expected_answer {
            return Some(format!("the first call said {first:?}, its repeat {repeated:?}"));
        }
        if self.says == Some(&first) {
            return Some(format!("{first:?} is no exception"));
        }
        let differences = found.differences(&expected);
        (!differences.is_empty()).then(|| format!("the repeat left in Redis\n  {}", differences.join("\n  ")))
    }

    async fn undisturbed(&self, world: &mut World) -> (String, Dump) {
        world.begin(&self.given).await;
        let answer = world.direct.make(&self.call, false).await.expect("an answer");
        world.all(&self.meanwhile).await;
        world.pass(LATER).await;
        world.all(&self.acts).await;
        (answer, world.dump().await)
    }

    /// Makes the call, whose answer is lost.
    async fn lose(&self, world: &World) {
        let lost = world.proxy.lost();
        world.proxy.lose_reply(command("EVALSHA"), Then::Close);
        let unheard = world.proxied.make(&self.call, false).await;
        assert!(unheard.is_err() && world.proxy.lost() == lost + 1, "{}: {unheard:?}", self.name);
    }

    /// Makes it again and again, each time on a connection that carries one byte more, until its answer is whole.
    pub(super) async fn tear(&self, world: &World) {
        for after in world.introduction.. {
            world.proxy.tear(Some(after));
            let Err(torn) = world.proxied.make(&self.call, after > world.introduction).await else { break };
            let torn = torn.downcast::<Error>().expect("an error of ours");
            assert_eq!(
                torn.kind(),
                ErrorKind::Unreachable,
                "{}, torn after {after} bytes: {torn}",
                self.name
            );
        }
        world.proxy.tear(None);
    }

    async fn disturbed(&self, world: &mut World, lose: impl AsyncFn(&Self, &World)) -> (String, Dump) {
        world.begin(&self.given).await;
        lose(self, world).await;
        world.all(&self.meanwhile).await;
        world.pass(LATER).await;
        let answer = world.proxied.make(&self.call, true).await.expect("an answer to the repeat");
        (answer, world.dump().await)
    }
}
