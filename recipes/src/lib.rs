//! Eleven well-known ways to build delays and queues on Redis, each by hand and with keylapse.
//!
//! A recipe is a folder of three files. `by_hand.rs` is the design as articles describe it, in the
//! plain `redis` crate; `with_keylapse.rs` does the same job; `story.rs` plays both under the same
//! fault and says what became of each job.
//!
//! ```text
//! cargo run -p recipes -- zset
//! ```
//!
//! [`stage`] is what stories need: servers, processes that can be killed, a ledger outside Redis, a
//! verdict. Nothing of it is between a reader and the two programs but [`stage::World`], which is
//! whatever a job does outside Redis.

pub mod beside;
pub mod record;
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

/// One way to build it, and how both sides of it are played.
#[derive(Debug)]
pub struct Recipe {
    /// What it is called on the command line and in the documentation.
    pub name: &'static str,
    /// What it is, in a few words.
    pub about: &'static str,
    /// Plays it.
    pub story: fn(Stage) -> LocalBoxFuture<'static, anyhow::Result<Tale>>,
    /// The programs that run as processes.
    pub programs: &'static [(&'static str, Program)],
    /// Its three files, then those that not every recipe has: for whoever asks whether what was recorded is
    /// still what is here.
    pub files: &'static [&'static str],
}

/// The three files of a recipe, and more.
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

/// All of them, in the order of the documentation.
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

/// The recipe of this name.
pub fn recipe(name: &str) -> Option<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.name == name)
}
