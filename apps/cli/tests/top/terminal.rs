//! A terminal in which the program runs.

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keylapse_support::{Server, eventually, skipped, skipped_on_a_cluster};

pub(crate) const WITHIN: Duration = Duration::from_secs(30);
pub(crate) const KEYLAPSE: &str = env!("CARGO_BIN_EXE_keylapse");

/// A terminal of a test's own, which ends with this value.
pub(crate) struct Terminal {
    socket: String,
}

impl Terminal {
    /// Runs a line of a shell in a terminal of 100 columns and 24 lines.
    pub(crate) fn run(line: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let terminal = Self { socket: format!("keylapse-top-{}-{count}", std::process::id()) };
        let started = terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", line]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        terminal
    }

    /// `keylapse top` before a server, and what is left of it afterwards.
    pub(crate) fn top(server: &Server, more: &str) -> Self {
        let url = server.plain_url();
        Self::run(&format!(
            "{KEYLAPSE} -u '{url}' --timeout 2s top --every 500ms {more}; echo exit=$?; exec cat"
        ))
    }

    pub(crate) fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-u", "-L", &self.socket]).args(arguments);
        // What the test itself runs in must not be meant.
        command.env_remove("TMUX").env_remove("NO_COLOR").stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Presses keys, by tmux's names for them, and waits until all of these texts are on the screen.
    pub(crate) async fn press(&self, keys: &[&str], texts: &[&str]) {
        for key in keys {
            assert!(self.tmux(&["send-keys", key]).status.success(), "{key}");
        }
        self.shows(texts).await;
    }

    pub(crate) fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        assert!(self.tmux(&["resize-window", "-x", &width, "-y", &height]).status.success());
    }

    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// The same with what makes it look so.
    pub(crate) fn screen_with_styles(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-e", "-p"]).stdout).into_owned()
    }

    pub(crate) fn title(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["display-message", "-p", "#{pane_title}"]).stdout).into_owned()
    }

    pub(crate) async fn shows(&self, texts: &[&str]) {
        let said = SaysOnFailure(self);
        eventually(WITHIN, &format!("{texts:?} on the screen"), async || {
            let screen = self.screen();
            texts.iter().all(|text| screen.contains(text))
        })
        .await;
        std::mem::forget(said);
    }

    pub(crate) async fn gone(&self, text: &str) {
        eventually(WITHIN, &format!("{text} to be gone"), async || !self.screen().contains(text)).await;
    }
}

/// Prints the screen if the test fails meanwhile.
struct SaysOnFailure<'a>(&'a Terminal);

impl Drop for SaysOnFailure<'_> {
    fn drop(&mut self) {
        eprintln!("the screen was:\n{}", self.0.screen());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

pub(crate) fn cannot_run() -> bool {
    let found = Command::new("tmux").arg("-V").output().is_ok();
    if !found {
        skipped("there is no tmux, which is the terminal of this test");
    }
    !found || skipped_on_a_cluster("the topics of this test are on one server")
}
