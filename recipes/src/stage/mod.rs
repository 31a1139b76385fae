//! What every story needs: a server, two sides, processes to harm, a ledger and a verdict.

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

/// A program of a recipe, which the story runs as a process: `by_hand`, `with_keylapse`, …
pub type Program = fn(Part) -> BoxFuture<'static, anyhow::Result<()>>;

/// What a program is given.
#[derive(Clone, Debug)]
pub struct Part {
    /// The server.
    pub url: String,
    /// Where its jobs have their effect.
    pub world: World,
    /// Whatever else the story wants to say.
    pub words: Vec<String>,
}

/// Where a story is played.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The recipe that is played.
    pub recipe: &'static Recipe,
    /// Chance in stories is the same for the same seed.
    pub seed: u64,
    /// For the tests: fewer jobs, shorter waits, the same verdict.
    pub short: bool,
    /// This program, which runs again as a process for each actor.
    pub program: PathBuf,
}

impl Stage {
    /// One number in a whole story, another in a short one.
    pub fn pick<T>(&self, whole: T, short: T) -> T {
        if self.short { short } else { whole }
    }

    /// Chance for one scene.
    pub fn chance(&self, scene: &str) -> StdRng {
        let mut hasher = DefaultHasher::new();
        (self.seed, self.recipe.name, scene).hash(&mut hasher);
        StdRng::seed_from_u64(hasher.finish())
    }
}

/// Built with the rest of this repository, `reqwest` knows TLS, and asks whose, though none is spoken in any story.
pub fn choose_tls() {
    // Whoever has chosen before has chosen the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
