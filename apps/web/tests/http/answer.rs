//! What a server answers, read by hand: so tests can also ask what no client would.

use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// The same as it was sent, but for the case of names.
    pub(crate) lines: Vec<String>,
    pub(crate) body: String,
}

impl Answer {
    /// Of all that came until the end of the connection; none where that was nothing.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let lines = lines.map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase())).collect();
        Some(Self { status, head: head.to_ascii_lowercase(), lines, body: body.to_owned() })
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The body, of an answer that has this status.
    #[track_caller]
    pub(crate) fn with(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// Checks that it is refused so, as JSON, and what the message has.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, words: &str) {
        let error = self.with(status)["error"].clone();
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(words) && error["kind"].is_string(), "{words:?} in {error}");
    }
}
