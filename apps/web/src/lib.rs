//! A window to the timers of a namespace: an HTTP API, health, metrics and a dashboard, over [`keylapse_console`].
//!
//! The program `keylapse serve` shows all of it, `keylapse run` a part. [`Web::router`] is for programs with an axum
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
mod asking;
mod doctor;
mod guard;
mod health;
mod metrics;
mod pages;
mod patience;
mod recent;
mod serve;
mod time;
mod web;

pub use self::access::{Access, AccessError, Token};
pub use self::asking::parse_when;
pub use self::health::Readiness;
pub use self::patience::Patience;
pub use self::serve::{Certificate, ServeError, Server};
pub use self::time::{moment, ms_of};
pub use self::web::Web;

/// The programs of the page are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/dashboard.md")]
struct PageOfTheDashboard;
