//! What is done: each is a form that is posted, is written into the log, and leads back to where it came from.

mod bulk;
mod timer;
mod topic;

pub(super) use self::bulk::{ask, bulk};
pub(super) use self::timer::timer;
pub(super) use self::topic::topic;

use axum::response::{IntoResponse, Redirect, Response};
use keylapse_console::Done;

use super::frame::{Visit, link};

/// To a page that says what became of it.
async fn back(visit: &Visit, path: &str, fields: &[(&str, &str)], done: &Done) -> Response {
    visit.shared.samples.changed(&done.topic).await;
    let fields = [fields, &[("did", done.outcome)]].concat();
    Redirect::to(&link(&visit.shared, path, &fields)).into_response()
}
