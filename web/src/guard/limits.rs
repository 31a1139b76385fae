//! How much a request may bring, and how long it may take.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::{RequestBodyTimeoutLayer, TimeoutLayer};

use crate::web::Shared;

/// The largest body, and so what can be armed over HTTP: 2 MiB of JSON, or 1.5 MiB of bytes in base64.
const LARGEST_BODY: usize = 2 << 20;

pub(super) fn around(routes: Router<Shared>, shared: &Shared) -> Router<Shared> {
    // By the length that is said, before anything is read; and by what comes.
    let routes = routes.layer(DefaultBodyLimit::disable()).layer(RequestBodyLimitLayer::new(LARGEST_BODY));
    let routes = routes.layer(RequestBodyTimeoutLayer::new(shared.patience.body));
    routes.layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, shared.patience.answer))
}
