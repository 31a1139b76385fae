//! The style, the script and the icon. Their paths have a hash of their contents, so that browsers can cache them for ever.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

const KEPT: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// A file of the dashboard.
pub(super) struct Asset {
    name: &'static str,
    kind: HeaderValue,
    text: &'static str,
    hash: LazyLock<String>,
}

macro_rules! asset {
    ($name:literal, $kind:literal) => {{
        const TEXT: &str = include_str!(concat!("../../assets/", $name));
        Asset {
            name: $name,
            kind: HeaderValue::from_static($kind),
            text: TEXT,
            hash: LazyLock::new(|| hash(TEXT)),
        }
    }};
}

pub(super) static STYLE: Asset = asset!("style.css", "text/css; charset=utf-8");
pub(super) static SCRIPT: Asset = asset!("script.js", "text/javascript; charset=utf-8");
pub(super) static ICON: Asset = asset!("icon.svg", "image/svg+xml");

impl Asset {
    /// Returns the path, below the prefix.
    pub(super) fn path(&self) -> String {
        format!("/assets/{}/{}", *self.hash, self.name)
    }
}

fn hash(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Serves a file. A page of an older version, which requests another hash, gets 404.
pub(super) async fn serve(Path((hash, name)): Path<(String, String)>) -> Response {
    let all = [&STYLE, &SCRIPT, &ICON];
    match all.into_iter().find(|asset| asset.name == name && *asset.hash == hash) {
        Some(asset) => {
            ([(header::CONTENT_TYPE, asset.kind.clone()), (header::CACHE_CONTROL, KEPT)], asset.text)
                .into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
