//! Eleven well-known ways to build delays and queues on Redis, each by hand and with keylapse.
//!
//! A recipe is a folder of three files. `by_hand.rs` is the design that articles describe, with the plain
//! `redis` crate. `with_keylapse.rs` does the same job with keylapse. `story.rs` runs both under one fault
//! and counts how the jobs ended.
//!
//! ```text
//! cargo run -p recipes -- orders
//! ```
//!
//! [`stage`] has the tools of the stories: servers, processes that can be killed, and a ledger outside
//! Redis. The two programs use only [`stage::World`] of it, which stands for the effects of a job.

pub mod record;
pub mod short;
pub mod stage;

#[path = "cron/story.rs"]
pub mod cron;
#[path = "delay_queue/story.rs"]
pub mod delay_queue;
#[path = "fifo_queue/story.rs"]
pub mod fifo_queue;
#[path = "held_lock/story.rs"]
pub mod held_lock;
#[path = "many_topics/story.rs"]
pub mod many_topics;
#[path = "notice/story.rs"]
pub mod notice;
#[path = "orders/story.rs"]
pub mod orders;
#[path = "priority_queue/story.rs"]
pub mod priority_queue;
#[path = "redisson/story.rs"]
pub mod redisson;
#[path = "streaks/story.rs"]
pub mod streaks;
#[path = "worker_queue/story.rs"]
pub mod worker_queue;

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
    orders::RECIPE,
    worker_queue::RECIPE,
    fifo_queue::RECIPE,
    delay_queue::RECIPE,
    held_lock::RECIPE,
    redisson::RECIPE,
    many_topics::RECIPE,
    priority_queue::RECIPE,
    streaks::RECIPE,
    cron::RECIPE,
];

/// Returns the recipe of this name.
pub fn recipe(name: &str) -> Option<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.name == name)
}
