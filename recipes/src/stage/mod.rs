//! The test bench of the stories: a server, two sides, processes that can be killed, a ledger and a result.

pub mod account;
mod actor;
pub mod ledger;
mod scene;
mod tale;
mod world;

pub use account::Account;
pub use actor::Actor;
pub use scene::{Jobs, Scene, Side};
pub use tale::{Claim, Tale, Told, in_words, late_in_words};
pub use world::World;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use futures::future::BoxFuture;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::Recipe;

/// A program of a recipe that a story runs as a process, such as `by_hand` or `with_keylapse`.
pub type Program = fn(Part) -> BoxFuture<'static, anyhow::Result<()>>;

/// The arguments of a program.
#[derive(Clone, Debug)]
pub struct Part {
    /// URL of the server.
    pub url: String,
    /// The world in which its jobs have their effect.
    pub world: World,
    /// Further arguments from the story.
    pub words: Vec<String>,
}

/// The settings of one run of a story.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The recipe that runs.
    pub recipe: &'static Recipe,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Use fewer jobs and shorter waits, as the tests do. The result is the same.
    pub short: bool,
    /// Path of this program, which each actor runs in a process of its own.
    pub program: PathBuf,
}

impl Stage {
    /// Returns the first value in a whole story, the second in a short one.
    pub fn pick<T>(&self, whole: T, short: T) -> T {
        if self.short { short } else { whole }
    }

    /// Returns the random numbers of one scene.
    pub fn chance(&self, scene: &str) -> StdRng {
        let mut hasher = DefaultHasher::new();
        (self.seed, self.recipe.name, scene).hash(&mut hasher);
        StdRng::seed_from_u64(hasher.finish())
    }
}

/// Installs the TLS provider that `reqwest` requires if it is built with the rest of this repository. No story uses TLS.
pub fn choose_tls() {
    // An error means that this provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
