//! Links lead somewhere, and the book has each page of docs/ once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::read;

/// Pages that are not in the repository's root or in docs/, and link into it.
const OTHERS: [&str; 2] = ["bench/README.md", "crates/testserver/README.md"];
/// Its programs are whole files of a package of their own, which compiles them.
const COMPILED_ELSEWHERE: &str = "recipes.md";

#[test]
fn each_link_of_a_page_leads_to_a_file_and_a_heading() {
    let root = root();
    let mut pages = [markdown_in(&root), pages_of_the_book()].concat();
    pages.extend(OTHERS.map(|page| root.join(page)));
    let broken: Vec<_> = pages.iter().flat_map(|page| broken_links(&root, page)).collect();
    assert_eq!(broken, [""; 0], "links that lead nowhere");
    let links: usize = pages.iter().map(|page| links(&read(page)).len()).sum();
    assert!(links > 150, "{links} links were found");
}

/// A page of docs/ is read on its own, as a page of the book and in the repository: all three have what lies in docs/.
#[test]
fn no_page_of_the_book_links_out_of_it() {
    let leave = pages_of_the_book().into_iter().flat_map(|page| {
        let name = name(&page);
        let depth = name.matches('/').count();
        let links = links(&read(&page)).into_iter().filter(move |link| link.matches("../").count() > depth);
        links.map(move |link| format!("{name}: {link}")).collect::<Vec<_>>()
    });
    assert_eq!(leave.collect::<Vec<_>>(), [""; 0], "name what is not in docs/ in code font");
}

#[test]
fn the_book_has_each_page_of_docs_exactly_once() {
    let mut listed = links(&read("docs/SUMMARY.md"));
    listed.sort();
    let mut pages: Vec<_> =
        pages_of_the_book().iter().map(|page| name(page)).filter(|page| page != "SUMMARY.md").collect();
    pages.sort();
    assert_eq!(listed, pages, "what docs/SUMMARY.md lists, and what there is");
}

/// A reader types them in a clone of the repository, or in a project that lies in the same folder as the clone.
#[test]
fn each_package_that_a_page_names_by_its_folder_is_there() {
    let root = root();
    let pages = [markdown_in(&root), pages_of_the_book()].concat();
    let named = |text: &str, before: &str| {
        let rest = text.split(before).skip(1);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '`' | ')');
        rest.filter_map(|rest| rest.split(ends).next().map(str::to_owned)).collect::<Vec<_>>()
    };
    let folders = pages.iter().flat_map(|page| {
        let text = read(page);
        let folders = [named(&text, " --path "), named(&text, "path = \"")].concat().into_iter();
        // The clone is next to the reader's project, or it is the current folder.
        folders.map(|folder| folder.trim_start_matches("../keylapse").trim_start_matches('/').to_owned())
    });
    let (there, missing): (Vec<_>, Vec<_>) =
        folders.partition(|folder| root.join(folder).join("Cargo.toml").exists());
    assert_eq!(missing, [""; 0], "folders without a package");
    assert!(there.len() > 3, "{} folders were found", there.len());
}

#[test]
fn each_program_of_the_book_is_compiled() {
    let compile = read("tests/guides/lib.rs") + &read("apps/web/src/lib.rs");
    for page in pages_of_the_book() {
        let (name, text) = (name(&page), read(&page));
        let fences: BTreeSet<_> =
            text.lines().filter_map(|line| line.trim_start().strip_prefix("```rust")).collect();
        assert!(
            fences.iter().all(|fence| !fence.contains("ignore")),
            "{name}: a program that nobody compiles"
        );
        let compiled = compile.contains(&format!("../docs/{name}\")"));
        let excused = fences.is_empty() || name == COMPILED_ELSEWHERE;
        assert!(
            compiled || excused,
            "neither tests/guides/lib.rs nor apps/web/src/lib.rs includes docs/{name}, which has programs"
        );
    }
}

/// It is run and tested there: `make test` runs the tests of examples.
#[test]
fn the_first_program_and_its_tests_are_an_example() {
    let page = read("docs/first-steps.md");
    let programs: Vec<_> =
        page.split("```rust,no_run\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    let [program, _attached, tests, ..] = programs[..] else { panic!("{} programs", programs.len()) };
    let example = read("examples/first_steps.rs");
    let (_, example) = example.split_once("\n\n").expect("what it is for");
    assert_eq!(format!("{program}\n{tests}"), example, "docs/first-steps.md shows examples/first_steps.rs");
}

fn root() -> PathBuf {
    PathBuf::from(crate::REPOSITORY)
}

/// The guide, and the internals, which are in a folder of their own.
fn pages_of_the_book() -> Vec<PathBuf> {
    let docs = root().join("docs");
    [markdown_in(&docs), markdown_in(&docs.join("internals"))].concat()
}

/// README.md and the guide without internals, each with its name.
pub(super) fn pages_for_users() -> Vec<(String, String)> {
    let pages = [root().join("README.md")].into_iter().chain(markdown_in(&root().join("docs")));
    pages.map(|page| (page.display().to_string(), read(&page))).collect()
}

/// All pages of the root and of the book, each with its name.
pub(super) fn pages_of_the_repository() -> Vec<(String, String)> {
    let pages = markdown_in(&root()).into_iter().chain(pages_of_the_book());
    pages.map(|page| (page.display().to_string(), read(&page))).collect()
}

/// The path of a page in docs/.
fn name(page: &Path) -> String {
    page.strip_prefix(root().join("docs")).expect("a page of the book").display().to_string()
}

fn markdown_in(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "md")).collect()
}

fn broken_links(root: &Path, page: &Path) -> Vec<String> {
    let text = read(page);
    let leads_nowhere = |link: &String| {
        let (file, heading) = link.split_once('#').unwrap_or((link, ""));
        let target =
            if file.is_empty() { page.to_owned() } else { page.parent().expect("a folder").join(file) };
        let heading_is_there = || heading.is_empty() || anchors(&read(&target)).contains(heading);
        !target.exists() || !heading_is_there()
    };
    let of = page.strip_prefix(root).expect("a page of ours").display();
    links(&text).into_iter().filter(leads_nowhere).map(|link| format!("{of}: {link}")).collect()
}

/// Where a page's links and pictures lead, but for those to other sites.
pub(crate) fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let pictures = ["src=\"", "srcset=\""].into_iter().flat_map(|attribute| {
        let values = prose.split(attribute).skip(1);
        values.filter_map(|rest| rest.split('"').next()).collect::<Vec<_>>()
    });
    let targets = links.chain(pictures);
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// A page without its programs and what stands in code font. A link's text may be in code font, so its
/// brackets stay.
fn prose(text: &str) -> String {
    let lines = split_at_fences(text).0.join("\n");
    lines.split('`').step_by(2).collect()
}

/// Returns the lines of a page outside of its programs, and those of its programs.
pub(super) fn split_at_fences(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut prose, mut programs, mut within) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            within = !within;
        } else if within {
            programs.push(line);
        } else {
            prose.push(line);
        }
    }
    (prose, programs)
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::new();
    let headings = split_at_fences(text).0.into_iter().filter_map(|line| {
        let heading = line.trim_start_matches('#');
        (line.len() > heading.len()).then(|| heading.strip_prefix(' ')).flatten()
    });
    let numbered = headings.map(|heading| {
        let anchor = anchor(heading);
        let before = seen.entry(anchor.clone()).or_insert(0);
        *before += 1;
        if *before == 1 { anchor } else { format!("{anchor}-{}", *before - 1) }
    });
    numbered.collect()
}

fn anchor(heading: &str) -> String {
    let shown = heading.split("](").map(|part| part.split_once(')').map_or(part, |(_, after)| after));
    let text = if heading.contains("](") { shown.collect::<String>() } else { heading.to_owned() };
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn an_anchor_is_made_of_words_and_hyphens() {
    for (heading, expected) in [
        ("Why not subscribe to expired events?", "why-not-subscribe-to-expired-events"),
        ("The layers of `tower`", "the-layers-of-tower"),
        ("RESP2", "resp2"),
        ("Retries, and why the key is not written back", "retries-and-why-the-key-is-not-written-back"),
        ("`write_back`", "write_back"),
    ] {
        assert_eq!(anchor(heading), expected);
    }
    let page = "[a](b.md#c) `[d](e)` [f](https://g) [`h`](i.md) ![j](k.png) <img alt=\"l\" src=\"m.png\">";
    assert_eq!(links(page), ["b.md#c", "i.md", "k.png", "m.png"]);
    assert!(anchors("# A\n## B\n```sh\n# C\n```\n## B").iter().eq(["a", "b", "b-1"]));
}
