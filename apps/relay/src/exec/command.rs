//! Builds the command of a program, with the occurrence in its environment.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::process::Command;

use super::Exec;
use crate::occurrence::{Occurrence, OccurrenceValue};

/// Variables that a program inherits. The others may hold secrets.
const PASSED_ON: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

impl Exec {
    pub(super) fn command(&self, topic: &str, of: &Occurrence) -> Command {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).env_clear();
        let passed_on = PASSED_ON.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        command.envs(passed_on).envs(&self.env);
        command.env("KEYLAPSE_TOPIC", topic).env("KEYLAPSE_ID", &of.id);
        command.env("KEYLAPSE_ATTEMPT", of.attempt.to_string());
        command.env("KEYLAPSE_DEADLINE_MS", of.deadline_ms.to_string());
        // A variable cannot hold a NUL, so a key with a NUL is passed in base64.
        if of.key.contains(&0) {
            command.env("KEYLAPSE_KEY_BASE64", STANDARD.encode(&of.key));
        } else {
            command.env("KEYLAPSE_KEY", OsStr::from_bytes(&of.key));
        }
        if matches!(&of.value, OccurrenceValue::Fields(fields) if fields.text().is_none()) {
            command.env("KEYLAPSE_FIELDS_BASE64", "1");
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        command
    }
}
