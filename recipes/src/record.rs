//! A run that is kept, for the figures in docs/comparison.md.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::stage::{Account, Tale, late_in_words};
use crate::{RECIPES, Recipe};

/// How it was made: the first line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circumstances {
    /// The seed.
    pub seed: u64,
    /// The server and its version.
    pub server: String,
    /// The commit that was checked out.
    pub commit: String,
}

/// What one recipe did: a line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The recipe.
    pub recipe: String,
    /// The SHA-1 of its three files, one after the other.
    pub files: String,
    /// What happened.
    pub tale: Tale,
}

impl Recorded {
    /// What this recipe did just now.
    pub fn of(recipe: &Recipe, tale: &Tale) -> Self {
        Self { recipe: recipe.name.to_owned(), files: hash(recipe), tale: tale.clone() }
    }

    /// Whether the recipe's files are still those that were played.
    pub fn is_current(&self) -> bool {
        RECIPES.iter().any(|recipe| recipe.name == self.recipe && hash(recipe) == self.files)
    }
}

fn hash(recipe: &Recipe) -> String {
    sha1_smol::Sha1::from(recipe.files.concat()).digest().to_string()
}

/// A whole run, as JSON lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How it was made.
    pub circumstances: Circumstances,
    /// Each recipe that was played.
    pub recipes: Vec<Recorded>,
}

impl Record {
    /// The file's text.
    ///
    /// # Errors
    /// None that a record can have.
    pub fn to_lines(&self) -> Result<String> {
        let mut lines = serde_json::to_string(&self.circumstances)? + "\n";
        for recipe in &self.recipes {
            writeln!(lines, "{}", serde_json::to_string(recipe)?)?;
        }
        Ok(lines)
    }

    /// Reads it again.
    ///
    /// # Errors
    /// When it is no record.
    pub fn from_lines(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let circumstances = serde_json::from_str(lines.next().context("an empty record")?)?;
        let recipes = lines.map(serde_json::from_str).collect::<Result<Vec<_>, _>>()?;
        ensure!(!recipes.is_empty(), "a record without recipes");
        Ok(Self { circumstances, recipes })
    }

    /// The section of docs/comparison.md.
    pub fn to_markdown(&self) -> String {
        let Circumstances { seed, server, commit } = &self.circumstances;
        let mut page = format!(
            "`make recipes SEED={seed}`, {server}, commit {commit}. `late` is the 99th percentile of how long after \
             its time a job began.\n\n| recipe | what happens | by hand | with keylapse |\n| --- | --- | --- | --- |\n"
        );
        for Recorded { recipe, tale, .. } in &self.recipes {
            for scene in &tale.scenes {
                let [hand, ours] = [&scene.by_hand, &scene.with_keylapse].map(sum);
                let [said_hand, said_ours] = scene.words.each_ref().map(|words| sentence(words));
                page += &format!(
                    "| [{recipe}](recipes.md#{recipe}) | {} | {said_hand}{hand} | {said_ours}{ours} |\n",
                    scene.title
                );
            }
        }
        let [hand, ours] = self.sums();
        page + &format!("| **all** | | {} | {} |\n", sum(&hand).trim_start(), sum(&ours).trim_start())
    }

    fn sums(&self) -> [Account; 2] {
        let mut sums = [Account::default(), Account::default()];
        for recorded in &self.recipes {
            for (sum, side) in sums.iter_mut().zip(recorded.tale.sums()) {
                sum.add(&side);
            }
        }
        sums
    }
}

/// With a capital, as it stands alone here.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn sum(account: &Account) -> String {
    let Account { given, lost, doubled, .. } = account;
    if *given == 0 {
        return String::new();
    }
    format!(" *Of {given}: {lost} lost, {doubled} twice, late {}.*", late_in_words(account, 0.99))
}
