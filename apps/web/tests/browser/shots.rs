//! Pictures of the pages, for README.md, docs/index.md and docs/dashboard.md.

use std::path::Path;
use std::time::Duration;

use keylapse_support::eventually;

use crate::browser::scene::{Do, Scene};
use crate::burning::light;
use keylapse_browser::Chrome;

/// The name of a picture, the page, and its forms.
type Shot = (&'static str, &'static str, &'static [&'static str]);

const SHOTS: [Shot; 5] = [
    ("topics", "/topics", &["light", "dark", "narrow"]),
    ("topic", "/topic?name=order.unpaid&state=dead", &["light"]),
    ("timer", "/timer?topic=order.unpaid&key=order:unpaid:2002", &["dark"]),
    ("dead", "/dead", &["light"]),
    ("servers", "/servers", &["light"]),
];

/// Pages of topics of which most are in trouble.
const BURNING: [Shot; 2] =
    [("burning", "/topics", &["light"]), ("hosts", "/destinations?topic=order.unpaid", &["light"])];

/// Shows a name in place of this machine's.
const NAME_WORKER: &str = r"for (const line of document.querySelectorAll('p'))
    if (line.textContent.includes('Served by')) line.textContent = line.textContent.replace(/by \S+/, 'by shop-worker')";

/// A point of a sparkline takes four seconds.
const A_WHILE: Duration = Duration::from_secs(90);

/// With KEYLAPSE_BLESS=1, this writes the pictures.
#[tokio::test(flavor = "multi_thread")]
async fn pictures_of_the_pages() {
    if std::env::var_os("KEYLAPSE_BLESS").is_none() {
        return;
    }
    let Some(mut chrome) = Chrome::start().await else { return };
    let scene = Scene::shop().await;
    work(&scene, &mut chrome).await;
    shoot(&scene, &mut chrome, &SHOTS).await;
    let scene = Scene::empty().await;
    let _fire = light(&scene.server).await;
    shoot(&scene, &mut chrome, &BURNING).await;
}

async fn shoot(scene: &Scene, chrome: &mut Chrome, shots: &[Shot]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dashboard");
    for (name, path, forms) in shots {
        for form in *forms {
            let (is_dark, width, height) = match *form {
                "narrow" => (false, 360, 720),
                form => (form == "dark", 1200, 560),
            };
            chrome.dark(is_dark).await;
            chrome.size(width, height).await;
            chrome.go(&scene.url(path)).await;
            chrome.eval(NAME_WORKER).await;
            let file = folder.join(format!("{name}-{form}.png"));
            chrome.shoot(&file).await;
            let size = file.metadata().unwrap().len();
            assert!(size < 100_000, "{}: {size} bytes", file.display());
        }
    }
}

/// Runs timers, so that the pages show rates.
async fn work(scene: &Scene, chrome: &mut Chrome) {
    for n in 0..400_u64 {
        let delay = Duration::from_millis(n * 80 + n % 7 * 300);
        scene.arm(format!("{}", 5000 + n).as_bytes(), delay, Do::Succeed).await;
    }
    eventually(A_WHILE, "a line of rates", async || {
        chrome.go(&scene.url("/topics")).await;
        let points = chrome
            .eval("(document.querySelector('polyline')?.getAttribute('points') || '').split(' ').length")
            .await;
        points.as_u64() > Some(6)
    })
    .await;
}
