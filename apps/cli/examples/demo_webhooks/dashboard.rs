//! Somebody looks at the dashboard in a browser, and replays what has died.

use keylapse_browser::Chrome;
use serde_json::json;

use crate::Result;

/// What came of the visit.
#[derive(Debug, Default)]
pub(crate) struct Visit {
    pub(crate) pages: u32,
    pub(crate) actions: u32,
    pub(crate) replayed: u64,
    /// Scripts that ran and are not the dashboard's own, and what else the browser has complained of.
    pub(crate) scripts: usize,
}

impl Visit {
    /// `hostile` is a key that would be a script.
    pub(crate) async fn pay(dashboard: &str, hostile: &str) -> Result<Self> {
        let Some(mut chrome) = Chrome::start().await else {
            return Err("there is no chromium-headless-shell: install it".into());
        };
        let mut visit = Self::default();
        for page in ["", "/topic?name=unpaid", "/dead", "/listeners", "/servers", "/tail"] {
            visit.look(&mut chrome, &format!("{dashboard}{page}")).await;
        }
        let dead = format!("{dashboard}/topic?name=unpaid&state=dead");
        visit.look(&mut chrome, &dead).await;
        chrome.shows(hostile).await;
        chrome.click("link", hostile).await;
        chrome.shows("Failed attempts").await;
        visit.look_out(&mut chrome).await;
        visit.replay_one(&mut chrome).await;
        visit.look(&mut chrome, &dead).await;
        visit.replay_all(&mut chrome).await?;
        Ok(visit)
    }

    async fn look(&mut self, chrome: &mut Chrome, url: &str) {
        chrome.go(url).await;
        self.look_out(chrome).await;
    }

    async fn look_out(&mut self, chrome: &mut Chrome) {
        self.pages += 1;
        self.scripts += chrome.complaints().await.len();
        self.scripts += usize::from(chrome.eval("window.xss !== undefined").await == json!(true));
    }

    async fn replay_one(&mut self, chrome: &mut Chrome) {
        chrome.click("button", "Replay").await;
        chrome.shows("Replayed: its attempts start over").await;
        self.actions += 1;
        self.replayed += 1;
        self.look_out(chrome).await;
    }

    /// All that are left, once the page has said how many there are.
    async fn replay_all(&mut self, chrome: &mut Chrome) -> Result<()> {
        chrome.click("button", "Replay…").await;
        chrome.shows("will be replayed").await;
        self.look_out(chrome).await;
        let button = chrome.eval("document.querySelector('main form button').textContent.trim()").await;
        let button = button.as_str().ok_or("no button")?.to_owned();
        let count = button.rsplit(' ').next().ok_or("no count")?.to_owned();
        chrome.click("button", &button).await;
        chrome.shows(&format!("{count} done.")).await;
        self.actions += 1;
        self.replayed += count.parse::<u64>()?;
        self.look_out(chrome).await;
        Ok(())
    }
}
