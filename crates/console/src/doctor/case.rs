//! What is found of one server while the checks go over it.

use std::collections::HashMap;
use std::time::SystemTime;

use keylapse_connection::{Cmd, Value};
use tokio::time::Instant;

use crate::error::Result;
use crate::text::quoted;

use super::codes::Code;
use super::diagnosis::Lateness;
use super::finding::Finding;
use super::info::Info;
use super::patient::Patient;
use super::refusal::Refusal;
use super::service::{Service, UNNAMED};

/// A server under examination.
pub(super) struct Case {
    pub(super) patient: Patient,
    pub(super) info: Info,
    /// What CONFIG GET says; none where that is refused.
    pub(super) settings: Option<HashMap<String, String>>,
    /// What the user was refused.
    pub(super) refusals: Vec<Refusal>,
    /// The clocks, when the examination began.
    pub(super) clocks: Option<Clocks>,
    /// CONFIG is refused as a command that does not exist.
    pub(super) has_no_config: bool,
    /// It is what the URL takes it for, and answers calls about keys.
    pub(super) serves: bool,
    pub(super) findings: Vec<Finding>,
    pub(super) lateness: Lateness,
}

/// Two clocks at one moment, give or take the time of the answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// The server's, in microseconds since 1970.
    pub(super) server: u64,
    /// This machine's, in the middle between question and answer.
    pub(super) here: SystemTime,
    /// The one that never jumps.
    pub(super) steady: Instant,
    /// By how much they may be apart for no other reason than the way, in microseconds.
    pub(super) doubt: u64,
}

impl Case {
    pub(super) fn new(patient: Patient) -> Self {
        Self {
            patient,
            info: Info::default(),
            settings: None,
            refusals: Vec::new(),
            clocks: None,
            has_no_config: false,
            serves: false,
            findings: Vec::new(),
            lateness: Lateness::default(),
        }
    }

    /// Whether it is a primary, and holds slots.
    pub(super) fn takes_writes(&self) -> bool {
        !self.info.is_replica() && !self.patient.is_known_replica()
    }

    /// A setting, where the server lets us read it.
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// The service that runs it, if it is known to be one.
    pub(super) fn service(&self) -> Option<&'static Service> {
        let named =
            || Service::at(&self.patient.address().endpoint()).or_else(|| Service::said_by(&self.info));
        named().or(self.has_no_config.then_some(&UNNAMED))
    }

    /// What the server says to a command. The outer error means that it says nothing, and the examination ends.
    pub(super) async fn ask(&self, doing: &str, command: &Cmd) -> Result<Result<Value>> {
        answered(self.patient.server.seat().call(doing, command).await)
    }

    /// The same to several, sent in one request.
    pub(super) async fn ask_each(
        &self,
        doing: &str,
        commands: &keylapse_connection::Pipeline,
    ) -> Result<Vec<Result<Value>>> {
        let answers = self.patient.server.seat().call_each(doing, commands).await;
        answers.into_iter().map(answered).collect()
    }

    pub(super) fn say(&mut self, code: &Code, observed: impl Into<String>) {
        self.say_with(code, observed, &[]);
    }

    /// With what the names in the line that mends it stand for.
    pub(super) fn say_with(&mut self, code: &Code, observed: impl Into<String>, names: &[(&str, &str)]) {
        let Patient { name, cli, user, namespace, .. } = &self.patient;
        let user = quoted(user);
        let own = [("cli", &**cli), ("user", &user), ("namespace", namespace)];
        let mut finding = Finding::new(code, Some(name), observed, &[&own, names].concat());
        if let Some(service) = self.service() {
            finding.fix = finding.fix.and_then(|line| service.instead(&line));
        }
        self.findings.push(finding);
    }

    /// Whether any of these codes was said.
    pub(super) fn has_said(&self, codes: &[Code]) -> bool {
        self.findings.iter().any(|finding| codes.iter().any(|code| code.code == finding.code))
    }
}

/// An error with a code is an answer.
pub(super) fn answered<T>(answer: Result<T>) -> Result<Result<T>> {
    match answer {
        Err(error) if error.code().is_none() => Err(error),
        answer => Ok(answer),
    }
}
