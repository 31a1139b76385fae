//! Dashboard, HTTP API, health probes and metrics for the timers of a namespace, on top of [`keylapse_console`].
//!
//! The program `keylapse serve` serves everything, `keylapse run` a part. [`Web::router`] is for programs with an axum
//! application of their own:
//!
//! ```no_run
//! use keylapse_console::Console;
//! use keylapse_web::{Access, Token, Web};
//!
//! # async fn mount(app: axum::Router, token: String) -> Result<axum::Router, Box<dyn std::error::Error>> {
//! let console = Console::connect("redis://127.0.0.1/").await?;
//! let access = Access::to_hosts(["shop.example.com"])?.token(Token::new(token)?);
//! Ok(app.merge(Web::new(console, access).prefix("/timers")?.router()))
//! # }
//! ```

mod access;
mod act;
mod api;
mod doctor;
mod guard;
mod health;
mod limits;
mod metrics;
mod pages;
mod parse;
mod recent;
mod serve;
mod time;
mod web;

pub use self::access::{Access, AccessError, Token};
pub use self::health::Readiness;
pub use self::limits::ServerLimits;
pub use self::parse::parse_when;
pub use self::serve::{Certificate, ServeError, WebServer};
pub use self::time::{moment, ms_of};
pub use self::web::Web;

/// Runs the code blocks of the page as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/dashboard.md")]
struct PageOfTheDashboard;
