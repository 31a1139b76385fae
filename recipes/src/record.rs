//! The recorded results of a run, for the figures in docs/comparison.md and docs/internals/benchmarks.md.

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::stage::{Account, Tale, late_in_words};
use crate::{RECIPES, Recipe};

/// The head of the table of sums.
const SUMS: &str = "| design by hand | jobs by hand | lost | twice | jobs with keylapse | lost | twice |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";

/// The circumstances of a run: the first line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Circumstances {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Name and version of the server.
    pub server: String,
    /// The commit that was checked out.
    pub commit: String,
}

/// The results of one recipe: a line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Name of the recipe.
    pub recipe: String,
    /// SHA-1 of the concatenated files of the recipe.
    pub files: String,
    /// Results of the scenes.
    pub tale: Tale,
}

impl Recorded {
    /// Creates the line of a recipe that has just run.
    pub fn of(recipe: &Recipe, tale: &Tale) -> Self {
        Self { recipe: recipe.name.to_owned(), files: hash(recipe), tale: tale.clone() }
    }

    /// Returns whether the files of the recipe are unchanged since the run.
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
    /// The circumstances of the run.
    pub circumstances: Circumstances,
    /// The recipes that ran.
    pub recipes: Vec<Recorded>,
}

impl Record {
    /// Returns the text of the file.
    ///
    /// # Errors
    /// If serialization fails.
    pub fn to_lines(&self) -> Result<String> {
        let mut lines = serde_json::to_string(&self.circumstances)? + "\n";
        for recipe in &self.recipes {
            writeln!(lines, "{}", serde_json::to_string(recipe)?)?;
        }
        Ok(lines)
    }

    /// Reads a record from the text of its file.
    ///
    /// # Errors
    /// If the text is not a valid record, or has no recipe.
    pub fn from_lines(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let circumstances = serde_json::from_str(lines.next().context("the record is empty")?)?;
        let recipes = lines.map(serde_json::from_str).collect::<Result<Vec<_>, _>>()?;
        ensure!(!recipes.is_empty(), "the record has no recipes");
        Ok(Self { circumstances, recipes })
    }

    /// Returns the table of recipes in docs/comparison.md.
    pub fn sums_to_markdown(&self) -> String {
        let mut page = SUMS.to_owned();
        let row = |name: &str, [hand, ours]: [Account; 2]| {
            let cells = [hand, ours].map(|side| format!("{} | {} | {}", side.given, side.lost, side.doubled));
            format!("| {name} | {} |\n", cells.join(" | "))
        };
        for Recorded { recipe, tale, .. } in &self.recipes {
            let about = crate::recipe(recipe).map_or(recipe.as_str(), |recipe| recipe.about);
            page += &row(&format!("{about} (`{recipe}`)"), tale.sums());
        }
        page + &row("**all**", self.sums())
    }

    /// Returns the table of scenes in docs/internals/benchmarks.md.
    pub fn to_markdown(&self) -> String {
        let Circumstances { seed, server, commit } = &self.circumstances;
        let mut page = format!(
            "`make recipes SEED={seed}`, {server}, commit {commit}. `late` is the 99th percentile of how long after \
             its deadline a job began.\n\n| recipe | what happens | by hand | with keylapse |\n| --- | --- | --- | --- |\n"
        );
        for Recorded { recipe, tale, .. } in &self.recipes {
            for scene in &tale.scenes {
                let [hand, ours] = [&scene.by_hand, &scene.with_keylapse].map(sum);
                let [hand_words, our_words] = scene.words.each_ref().map(|words| sentence(words));
                page +=
                    &format!("| `{recipe}` | {} | {hand_words}{hand} | {our_words}{ours} |\n", scene.title);
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

/// Begins a sentence with a capital letter.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn sum(account: &Account) -> String {
    let Account { given, lost, doubled, .. } = account;
    if *given == 0 {
        return String::new();
    }
    let jobs = if *given == 1 { "job" } else { "jobs" };
    format!(" *{given} {jobs}: {lost} lost, {doubled} twice, late {}.*", late_in_words(account, 0.99))
}
