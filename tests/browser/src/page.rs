//! What a person does with a page, and what they see.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keylapse_support::eventually;
use serde_json::{Value, json};

use crate::chrome::{Chrome, WITHIN};

impl Chrome {
    /// Goes to an address, and waits until all of the page is there.
    pub async fn go(&mut self, url: &str) {
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        let gone = self.call("Page.navigate", json!({"url": url})).await;
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
        self.wait_for("Page.loadEventFired").await;
    }

    /// What an expression of JavaScript comes to.
    pub async fn eval(&mut self, expression: &str) -> Value {
        self.try_eval(expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// The same, where it may be an error: while a page makes room for another, too.
    ///
    /// # Errors
    /// What the browser says.
    pub async fn try_eval(&mut self, expression: &str) -> Result<Value, Value> {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut said = self.try_call("Runtime.evaluate", params).await?;
        if said["exceptionDetails"].is_null() {
            Ok(said["result"]["value"].take())
        } else {
            Err(said["exceptionDetails"].take())
        }
    }

    /// Waits until an expression is true.
    pub async fn until(&mut self, expression: &str) {
        eventually(WITHIN, expression, async || self.try_eval(expression).await == Ok(Value::Bool(true)))
            .await;
    }

    /// Waits until this text is to be seen.
    pub async fn shows(&mut self, text: &str) {
        self.until(&format!(
            "document.readyState === 'complete' && document.body.innerText.includes({})",
            json!(text)
        ))
        .await;
    }

    /// What is to be read on the page.
    pub async fn text(&mut self) -> String {
        self.eval("document.querySelector('main').innerText").await.as_str().expect("a text").to_owned()
    }

    /// The first thing of this role and name, as a screen reader finds it.
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

    /// Whether there is something of this role and name.
    pub async fn has(&mut self, role: &str, name: &str) -> bool {
        self.find(role, name).await.is_some()
    }

    /// Clicks on what has this role and name.
    pub async fn click(&mut self, role: &str, name: &str) {
        let node = self.find(role, name).await.unwrap_or_else(|| panic!("there is no {role} {name:?}"));
        self.call("DOM.scrollIntoViewIfNeeded", json!({"backendNodeId": node})).await;
        let quads = self.call("DOM.getContentQuads", json!({"backendNodeId": node})).await;
        let at = |n: usize| quads["quads"][0][n].as_f64().expect("a place");
        let (x, y) = ((at(0) + at(4)) / 2.0, (at(1) + at(5)) / 2.0);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    /// Writes into what has the focus.
    pub async fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// Writes into the field with this label.
    pub async fn fill(&mut self, role: &str, label: &str, text: &str) {
        let node = self.find(role, label).await.unwrap_or_else(|| panic!("there is no {role} {label:?}"));
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

    /// As for a person who likes it dark.
    pub async fn dark(&mut self, is_dark: bool) {
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Whether pages have to do without their scripts.
    pub async fn without_script(&mut self, is_without: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": is_without})).await;
    }

    /// Runs before all scripts of each page to come.
    pub async fn before_pages(&mut self, script: &str) {
        self.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": script})).await;
    }

    /// Takes a picture of the page.
    pub async fn shoot(&mut self, file: &Path) {
        let shot =
            self.call("Page.captureScreenshot", json!({"format": "png", "optimizeForSpeed": false})).await;
        let png = STANDARD.decode(shot["data"].as_str().expect("a picture")).expect("base64");
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, png).expect("a file");
    }

    /// What the browser has complained of: errors, violations of the page's policy, dialogs that were opened.
    pub async fn complaints(&mut self) -> Vec<String> {
        // What was said before is heard before the answer.
        self.eval("0").await;
        let is_one = |event: &&Value| match event["method"].as_str().unwrap_or_default() {
            "Page.javascriptDialogOpening" | "Runtime.exceptionThrown" => true,
            // A page that is an error itself is one, too, for the network.
            "Log.entryAdded" => {
                let entry = &event["params"]["entry"];
                entry["level"] == "error" && entry["source"] != "network"
            }
            "Runtime.consoleAPICalled" => event["params"]["type"] == "error",
            _ => false,
        };
        let said: Vec<_> = self.events.iter().filter(is_one).map(ToString::to_string).collect();
        self.events.clear();
        said
    }

    /// How many requests the page has made since this was asked last.
    pub async fn requests(&mut self) -> usize {
        self.eval("0").await;
        let is_one = |event: &Value| event["method"] == "Network.requestWillBeSent";
        let requests = self.events.iter().filter(|event| is_one(event)).count();
        self.events.retain(|event| !is_one(event));
        requests
    }
}
