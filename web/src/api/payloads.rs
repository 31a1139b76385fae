//! Whether payloads are shown: where the program was told that they may be, and the request asks for them.

use axum::http::StatusCode;
use serde::Deserialize;

use crate::api::Fault;
use crate::web::Shared;

/// `payload=1`, or nothing.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) enum Payloads {
    #[default]
    #[serde(rename = "0")]
    Hidden,
    #[serde(rename = "1")]
    Wanted,
}

impl Payloads {
    /// How many bytes of each are shown.
    pub(super) fn bytes(self, shared: &Shared, most: usize) -> Result<Option<usize>, Fault> {
        match self {
            Self::Hidden => Ok(None),
            Self::Wanted if shared.shows_payloads => Ok(Some(most)),
            Self::Wanted => {
                let why = "payloads are not shown here: the program was not told --show-payloads";
                Err(Fault::new(StatusCode::FORBIDDEN, why))
            }
        }
    }
}
