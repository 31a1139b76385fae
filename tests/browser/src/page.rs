//! Actions of a person on a page, and the visible content.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keylapse_support::eventually;
use serde_json::{Value, json};

use crate::chrome::{Chrome, WITHIN};

impl Chrome {
    /// Opens a URL, and waits until the page has loaded.
    pub async fn go(&mut self, url: &str) {
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        let gone = self.call("Page.navigate", json!({"url": url})).await;
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
        self.wait_for("Page.loadEventFired").await;
    }

    /// Returns the value of a JavaScript expression. Panics if it throws.
    pub async fn eval(&mut self, expression: &str) -> Value {
        self.try_eval(expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Returns the value of a JavaScript expression.
    ///
    /// # Errors
    /// Returns the exception, or the error of the browser, for example while it replaces the page by another.
    pub async fn try_eval(&mut self, expression: &str) -> Result<Value, Value> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut reply = self.try_call("Runtime.evaluate", params).await?;
        if reply["exceptionDetails"].is_null() {
            Ok(reply["result"]["value"].take())
        } else {
            Err(reply["exceptionDetails"].take())
        }
    }

    /// Waits until an expression is true.
    pub async fn until(&mut self, expression: &str) {
        eventually(WITHIN, expression, async || self.try_eval(expression).await == Ok(Value::Bool(true)))
            .await;
    }

    /// Waits until the page shows this text.
    pub async fn shows(&mut self, text: &str) {
        self.until(&format!(
            "document.readyState === 'complete' && document.body.innerText.includes({})",
            json!(text)
        ))
        .await;
    }

    /// Returns the visible text of the page.
    pub async fn text(&mut self) -> String {
        self.eval("document.querySelector('main').innerText").await.as_str().expect("a text").to_owned()
    }

    /// Finds the first element with this role and accessible name.
    async fn find(&mut self, role: &str, name: &str) -> Option<Value> {
        let root = self.call("DOM.getDocument", json!({"depth": 0})).await["root"]["nodeId"].take();
        let query = json!({"nodeId": root, "role": role, "accessibleName": name});
        let found = self.try_call("Accessibility.queryAXTree", query).await.ok()?;
        found["nodes"]
            .as_array()?
            .iter()
            .find(|node| node["ignored"] == false)
            .map(|node| node["backendDOMNodeId"].clone())
    }

    /// Returns whether an element has this role and accessible name.
    pub async fn has(&mut self, role: &str, name: &str) -> bool {
        self.find(role, name).await.is_some()
    }

    /// Clicks the element with this role and accessible name.
    pub async fn click(&mut self, role: &str, name: &str) {
        let node = self.find(role, name).await.unwrap_or_else(|| panic!("no {role} has the name {name:?}"));
        self.call("DOM.scrollIntoViewIfNeeded", json!({"backendNodeId": node})).await;
        let quads = self.call("DOM.getContentQuads", json!({"backendNodeId": node})).await;
        let at = |n: usize| quads["quads"][0][n].as_f64().expect("a place");
        let (x, y) = ((at(0) + at(4)) / 2.0, (at(1) + at(5)) / 2.0);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    /// Types text into the element with the focus.
    pub async fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// Types text into the field with this role and label.
    pub async fn fill(&mut self, role: &str, label: &str, text: &str) {
        let node =
            self.find(role, label).await.unwrap_or_else(|| panic!("no {role} has the label {label:?}"));
        self.call("DOM.focus", json!({"backendNodeId": node})).await;
        self.write(text).await;
    }

    /// Presses a key.
    pub async fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = if key == "Enter" { 13 } else { 0 };
        let down = json!({"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", down).await;
        self.call("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key})).await;
    }

    /// Sets whether the browser prefers a dark colour scheme.
    pub async fn dark(&mut self, is_dark: bool) {
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Sets whether the browser blocks the scripts of pages.
    pub async fn without_script(&mut self, is_without: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": is_without})).await;
    }

    /// Runs this script on each later page, before the scripts of the page.
    pub async fn before_pages(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).await;
    }

    /// Writes a screenshot of the page to a PNG file.
    pub async fn shoot(&mut self, file: &Path) {
        let shot =
            self.call("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false})).await;
        let png = STANDARD.decode(shot["data"].as_str().expect("a picture")).expect("base64");
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, png).expect("a file");
    }

    /// Returns and clears the reported problems: errors, violations of the page's policy, and opened dialogs.
    pub async fn complaints(&mut self) -> Vec<String> {
        // All earlier events arrive before this answer.
        self.eval("0").await;
        let is_one = |event: &&Value| match event["method"].as_str().unwrap_or_default() {
            "Page.javascriptDialogOpening" | "Runtime.exceptionThrown" => true,
            // The browser also logs each response with an error status. Pages with an error status are not problems.
            "Log.entryAdded" => {
                let entry = &event["params"]["entry"];
                entry["level"] == "error" && entry["source"] != "network"
            }
            "Runtime.consoleAPICalled" => event["params"]["type"] == "error",
            _ => false,
        };
        let complaints: Vec<_> = self.events.iter().filter(is_one).map(ToString::to_string).collect();
        self.events.clear();
        complaints
    }

    /// Returns the number of requests since the previous call.
    pub async fn requests(&mut self) -> usize {
        self.eval("0").await;
        let is_one = |event: &Value| event["method"] == "Network.requestWillBeSent";
        let requests = self.events.iter().filter(|event| is_one(event)).count();
        self.events.retain(|event| !is_one(event));
        requests
    }
}
