//! What a program is told of an occurrence, and what it gets of this program's surroundings.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::process::Command;

use super::Exec;
use crate::occurrence::{Occurrence, Value};

/// What a program gets of this one's environment. The rest may hold secrets.
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
        // A variable ends with a NUL: a key that has one is told otherwise.
        if of.key.contains(&0) {
            command.env("KEYLAPSE_KEY_BASE64", STANDARD.encode(&of.key));
        } else {
            command.env("KEYLAPSE_KEY", OsStr::from_bytes(&of.key));
        }
        if matches!(&of.value, Value::Fields(fields) if fields.text().is_none()) {
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
