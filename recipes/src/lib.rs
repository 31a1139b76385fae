//! Eleven well-known ways to build delays and queues on Redis, each by hand and with keylapse.
//!
//! A recipe is a folder of three files. `by_hand.rs` is the design that articles describe, with the plain
//! `redis` crate. `with_keylapse.rs` does the same job with keylapse. `story.rs` runs both under one fault
//! and counts how the jobs ended.
//!
//! ```text
//! cargo run -p recipes -- zset
//! ```
//!
//! [`stage`] has the tools of the stories: servers, processes that can be killed, and a ledger outside
//! Redis. The two programs use only [`stage::World`] of it, which stands for the effects of a job.

pub mod record;
pub mod short;
pub mod stage;

#[path = "check_in/story.rs"]
pub mod check_in;
#[path = "cron/story.rs"]
pub mod cron;
#[path = "delay/story.rs"]
pub mod delay;
#[path = "list/story.rs"]
pub mod list;
#[path = "lock/story.rs"]
pub mod lock;
#[path = "mail/story.rs"]
pub mod mail;
#[path = "mover/story.rs"]
pub mod mover;
#[path = "notice/story.rs"]
pub mod notice;
#[path = "rdelayed/story.rs"]
pub mod rdelayed;
#[path = "topics/story.rs"]
pub mod topics;
#[path = "zset/story.rs"]
pub mod zset;

use futures::future::LocalBoxFuture;

use stage::{Program, Stage, Tale};

/// A design, with its programs and its story.
#[derive(Debug)]
pub struct Recipe {
    /// The name on the command line and in the documentation.
    pub name: &'static str,
    /// The design by hand, in a few words.
    pub about: &'static str,
    /// Runs all scenes.
    pub story: fn(Stage) -> LocalBoxFuture<'static, anyhow::Result<Tale>>,
    /// The programs that run as processes, by name.
    pub programs: &'static [(&'static str, Program)],
    /// The three files, then further files of this recipe. Their hash shows whether recorded results are current.
    pub files: &'static [&'static str],
}

/// Includes the three files of a recipe, and further ones.
macro_rules! files {
    ($($more:literal),*) => {
        &[
            include_str!("by_hand.rs"),
            include_str!("with_keylapse.rs"),
            include_str!("story.rs"),
            $(include_str!($more)),*
        ]
    };
}
pub(crate) use files;

/// All recipes, in the order of the documentation.
pub static RECIPES: &[Recipe] = &[
    notice::RECIPE,
    zset::RECIPE,
    mover::RECIPE,
    list::RECIPE,
    delay::RECIPE,
    lock::RECIPE,
    rdelayed::RECIPE,
    topics::RECIPE,
    mail::RECIPE,
    check_in::RECIPE,
    cron::RECIPE,
];

/// Returns the recipe of this name.
pub fn recipe(name: &str) -> Option<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.name == name)
}
