//! The first line of a script: `#!lua flags=no-writes,allow-oom`.

use super::ScriptInvocation;
use crate::reply::ErrorReply;
use crate::state::State;

/// The flags of a script.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shebang {
    /// True if the script has no such line. Each of its commands is then checked by itself.
    pub(super) absent: bool,
    pub(super) no_writes: bool,
    pub(super) allow_oom: bool,
}

impl Shebang {
    /// Returns the flags and the rest of the script. The rest starts with a line break, so that lines keep their numbers.
    pub(super) fn split(text: &[u8]) -> Result<(Self, &[u8]), ErrorReply> {
        if !text.starts_with(b"#!") {
            return Ok((Self { absent: true, ..Self::default() }, text));
        }
        let end = text.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or(ErrorReply::of("ERR Invalid script shebang"))?;
        let line = String::from_utf8_lossy(&text[..end]);
        let mut words = line.split_whitespace();
        if let Some(engine) = words.next().filter(|engine| *engine != "#!lua") {
            return Err(format!("ERR Unexpected engine in script shebang: {engine}").into());
        }
        let mut shebang = Self::default();
        for word in words {
            let unknown = || ErrorReply::from(format!("ERR Unknown lua shebang option: {word}"));
            let flags = word.strip_prefix("flags=").ok_or_else(unknown)?;
            flags.split(',').filter(|flag| !flag.is_empty()).try_for_each(|flag| shebang.set(flag))?;
        }
        Ok((shebang, &text[end..]))
    }

    fn set(&mut self, flag: &str) -> Result<(), ErrorReply> {
        match flag {
            "no-writes" => self.no_writes = true,
            "allow-oom" => self.allow_oom = true,
            "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
            _ => return Err(format!("ERR Unexpected flag in script shebang: {flag}").into()),
        }
        Ok(())
    }

    /// Checks whether the script may start.
    pub(super) fn admit(self, run: &ScriptInvocation<'_>, state: &State) -> Result<(), ErrorReply> {
        if self.absent {
            return Ok(());
        }
        if run.reading && !self.no_writes {
            return Err(ErrorReply::of("ERR Can not execute a script with write flag using *_ro command."));
        }
        if !self.allow_oom && !self.no_writes && state.is_full() {
            return Err(ErrorReply::OUT_OF_MEMORY);
        }
        Ok(())
    }
}
