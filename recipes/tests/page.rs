//! docs/recipes.md shows the programs as they are. `KEYLAPSE_BLESS=1 cargo test -p recipes --test page` writes
//! them anew.

use std::fs;
use std::path::PathBuf;

use recipes::RECIPES;

/// The most lines that a program on the page may have.
const LINES: usize = 80;

fn page() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "docs", "recipes.md"].iter().collect()
}

/// The page with each block after a `<!-- file -->` line replaced by that file.
fn with_programs(page: &str) -> String {
    let mut parts = page.split("<!-- recipes/src/");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (file, rest) = part.split_once(" -->\n").expect("the name of a file, and a block after it");
        let language = if file.ends_with(".py") { "python" } else { "rust" };
        let block = format!("```{language}\n");
        let rest = rest.strip_prefix(&block).unwrap_or_else(|| panic!("{file}: no {block} block after it"));
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
        let program =
            fs::read_to_string(&source).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        let after = rest.strip_prefix("```").or_else(|| rest.split_once("\n```").map(|(_, after)| after));
        let after = after.expect("the end of the block");
        whole.push_str(&format!("<!-- recipes/src/{file} -->\n{block}{program}```{after}"));
    }
    whole
}

#[test]
fn the_page_shows_each_program_whole() {
    let shown = fs::read_to_string(page()).expect("the page");
    let meant = with_programs(&shown);
    if std::env::var_os("KEYLAPSE_BLESS").is_some() {
        fs::write(page(), &meant).expect("the page can be written");
        return;
    }
    assert!(
        shown == meant,
        "docs/recipes.md does not show the programs as they are; see the top of this file"
    );
}

#[test]
fn each_recipe_is_on_the_page_and_short() {
    let shown = fs::read_to_string(page()).expect("the page");
    for recipe in RECIPES {
        assert!(shown.contains(&format!("\n## {}\n", recipe.name)), "{} has no heading", recipe.name);
        assert!(
            shown.contains(&format!("<!-- recipes/src/{}/with_keylapse.rs -->", recipe.name)),
            "{}",
            recipe.name
        );
        let lines = recipe.files[1].lines().count();
        assert!(lines <= LINES, "{}/with_keylapse.rs has {lines} lines; a page takes {LINES}", recipe.name);
    }
}
