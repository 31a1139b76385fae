//! Visits the dashboard in a browser, and replays the dead letters.

use keylapse_browser::Chrome;
use serde_json::json;

use crate::Result;

/// The counts of a visit to the dashboard.
#[derive(Debug, Default)]
pub(crate) struct Visit {
    pub(crate) pages: u32,
    pub(crate) actions: u32,
    pub(crate) replayed: u64,
    /// The number of foreign scripts that ran, and of errors and policy violations that the browser reported.
    pub(crate) scripts: usize,
}

impl Visit {
    /// Visits all pages and replays all dead letters. `hostile` is a key that runs as a script on an unsafe page.
    pub(crate) async fn run(dashboard: &str, hostile: &str) -> Result<Self> {
        let Some(mut chrome) = Chrome::start().await else {
            return Err("cannot start chromium-headless-shell: install it".into());
        };
        let mut visit = Self::default();
        for page in ["", "/topic?name=unpaid", "/dead", "/listeners", "/servers", "/tail"] {
            visit.open(&mut chrome, &format!("{dashboard}{page}")).await;
        }
        let dead = format!("{dashboard}/topic?name=unpaid&state=dead");
        visit.open(&mut chrome, &dead).await;
        chrome.shows(hostile).await;
        chrome.click("link", hostile).await;
        chrome.shows("Failed attempts").await;
        visit.check_page(&mut chrome).await;
        visit.replay_one(&mut chrome).await;
        visit.open(&mut chrome, &dead).await;
        visit.replay_all(&mut chrome).await?;
        Ok(visit)
    }

    async fn open(&mut self, chrome: &mut Chrome, url: &str) {
        chrome.go(url).await;
        self.check_page(chrome).await;
    }

    async fn check_page(&mut self, chrome: &mut Chrome) {
        self.pages += 1;
        self.scripts += chrome.complaints().await.len();
        self.scripts += usize::from(chrome.eval("window.xss !== undefined").await == json!(true));
    }

    async fn replay_one(&mut self, chrome: &mut Chrome) {
        chrome.click("button", "Replay").await;
        chrome.shows("Replayed: its attempts start over").await;
        self.actions += 1;
        self.replayed += 1;
        self.check_page(chrome).await;
    }

    /// Replays the other dead letters. The button for this shows their count.
    async fn replay_all(&mut self, chrome: &mut Chrome) -> Result<()> {
        chrome.click("button", "Replay…").await;
        chrome.shows("will be replayed").await;
        self.check_page(chrome).await;
        let button = chrome.eval("document.querySelector('main form button').textContent.trim()").await;
        let button = button.as_str().ok_or("the replay page has no button")?.to_owned();
        let count = button.rsplit(' ').next().ok_or("the replay button shows no count")?.to_owned();
        chrome.click("button", &button).await;
        chrome.shows(&format!("{count} done.")).await;
        self.actions += 1;
        self.replayed += count.parse::<u64>()?;
        self.check_page(chrome).await;
        Ok(())
    }
}
