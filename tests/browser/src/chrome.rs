//! The browser and its DevTools protocol.

use std::collections::VecDeque;
use std::fs;
use std::process::Command;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use keylapse_support::{Program, eventually, skipped};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Longer than any step takes on a busy machine.
pub const WITHIN: Duration = Duration::from_secs(20);
const BROWSER: &str = "chromium-headless-shell";

/// A browser with a page in it.
#[derive(Debug)]
pub struct Chrome {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: String,
    calls: u64,
    pub(crate) events: VecDeque<Value>,
    // This field is before `_profile`, so that the browser ends before its folder is removed.
    _process: Program,
    _profile: TempDir,
}

impl Chrome {
    /// Starts the browser and opens a page. Returns `None` and reports a skipped test if the browser is not installed.
    ///
    /// # Panics
    /// If the browser is not installed and `CI` is set.
    pub async fn start() -> Option<Self> {
        let profile = TempDir::new().expect("a folder");
        let mut command = Command::new(BROWSER);
        command.args(["--remote-debugging-port=0", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
        command.args(["--force-color-profile=srgb", "--disable-background-networking", "--no-first-run"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        let Ok(process) = Program::silent(&mut command) else {
            assert!(std::env::var_os("CI").is_none(), "{BROWSER} is not installed: install it");
            skipped(&format!("{BROWSER} is not installed"));
            return None;
        };
        let file = profile.path().join("DevToolsActivePort");
        let mut address = None;
        eventually(WITHIN, "the browser", async || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let found =
                text.split_once('\n').map(|(port, path)| format!("ws://127.0.0.1:{port}{}", path.trim()));
            address = found.filter(|address| address.contains("/devtools/"));
            address.is_some()
        })
        .await;
        let (socket, _) = connect_async(address.expect("its address")).await.expect("a connection");
        let (session, events) = (String::new(), VecDeque::new());
        let mut chrome = Self { socket, session, calls: 0, events, _process: process, _profile: profile };
        chrome.open().await;
        Some(chrome)
    }

    async fn open(&mut self) {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attached = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", attached).await;
        self.session = session["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log", "Network", "DOM", "Accessibility"] {
            self.call(&format!("{domain}.enable"), json!({})).await;
        }
        self.size(1280, 800).await;
    }

    /// Calls a method of the protocol. Panics if the browser returns an error.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Calls a method of the protocol, and returns its result.
    ///
    /// # Errors
    /// Returns the error of the browser.
    pub async fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": params});
        if !self.session.is_empty() {
            call["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(call.to_string())).await.expect("a call");
        loop {
            let mut message = self.receive().await;
            if message["id"] == self.calls {
                return if message["error"].is_null() {
                    Ok(message["result"].take())
                } else {
                    Err(message["error"].take())
                };
            }
            self.events.push_back(message);
        }
    }

    async fn receive(&mut self) -> Value {
        let received = timeout(WITHIN, self.socket.next()).await.expect("the browser did not answer in time");
        let text = received.expect("a connection").expect("a message").into_text().expect("text");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Waits for the next event of this method, and returns it.
    pub async fn wait_for(&mut self, method: &str) -> Value {
        loop {
            if let Some(at) = self.events.iter().position(|event| event["method"] == method) {
                return self.events.remove(at).expect("it is there");
            }
            let message = self.receive().await;
            self.events.push_back(message);
        }
    }

    /// Sets the size of the page in pixels.
    pub async fn size(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
    }
}
