//! The browser, and its DevTools protocol.

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

/// Longer than anything takes on a busy machine.
pub const WITHIN: Duration = Duration::from_secs(20);
const BROWSER: &str = "chromium-headless-shell";

/// A browser with a page in it.
#[derive(Debug)]
pub struct Chrome {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: String,
    calls: u64,
    pub(crate) events: VecDeque<Value>,
    /// Before its folder, so that it has ended when that is removed.
    _process: Program,
    _profile: TempDir,
}

impl Chrome {
    /// None where there is no browser.
    pub async fn start() -> Option<Self> {
        let profile = TempDir::new().expect("a folder");
        let mut command = Command::new(BROWSER);
        command.args(["--remote-debugging-port=0", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
        command.args(["--force-color-profile=srgb", "--disable-background-networking", "--no-first-run"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        let Ok(process) = Program::silent(&mut command) else {
            assert!(std::env::var_os("CI").is_none(), "there is no {BROWSER}: install it");
            skipped(&format!("there is no {BROWSER}"));
            return None;
        };
        let file = profile.path().join("DevToolsActivePort");
        let mut address = None;
        eventually(WITHIN, "the browser", async || {
            let said = fs::read_to_string(&file).unwrap_or_default();
            let said =
                said.split_once('\n').map(|(port, path)| format!("ws://127.0.0.1:{port}{}", path.trim()));
            address = said.filter(|address| address.contains("/devtools/"));
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

    /// Calls a method, and has to succeed.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// What the browser answers, or why not.
    ///
    /// # Errors
    /// What the browser says.
    pub async fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": params});
        if !self.session.is_empty() {
            call["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(call.to_string())).await.expect("a call");
        loop {
            let mut said = self.hear().await;
            if said["id"] == self.calls {
                return if said["error"].is_null() {
                    Ok(said["result"].take())
                } else {
                    Err(said["error"].take())
                };
            }
            self.events.push_back(said);
        }
    }

    async fn hear(&mut self) -> Value {
        let heard = timeout(WITHIN, self.socket.next()).await.expect("an answer in time");
        let text = heard.expect("a connection").expect("a message").into_text().expect("text");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Waits for an event.
    pub async fn wait_for(&mut self, method: &str) -> Value {
        loop {
            if let Some(at) = self.events.iter().position(|event| event["method"] == method) {
                return self.events.remove(at).expect("it is there");
            }
            let said = self.hear().await;
            self.events.push_back(said);
        }
    }

    /// Makes the page so large.
    pub async fn size(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
    }
}
