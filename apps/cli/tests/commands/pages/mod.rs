//! Pages of docs/ whose commands run, in order on one server, and are compared with what the page shows.
//!
//! In blocks of kind `console` a line that begins with `$ ` is a command; what stands below it, its output: with times,
//! ids and the like replaced by words, and `…` for any lines between. Between blocks `<!-- scene: … -->` says what else
//! happens, and `<!-- file: NAME -->` that the block below is that file. `KEYLAPSE_BLESS=1` writes the outputs that
//! differ into the page.

mod alike;
mod http_api;
mod readme;
mod shop;
mod webhooks;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use self::alike::is_alike;

/// Where a page is played.
trait Stage {
    /// Makes happen what the page says between its commands.
    async fn play(&mut self, scene: &str);

    /// Where commands run, and files lie.
    fn folder(&self) -> &Path;

    /// Variables that the page's reader has.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// A file of the page, with what differs on this machine in its place.
    fn as_played(&self, file: &str) -> String {
        file.to_owned()
    }

    /// What was said, as the page's reader sees it: with what is only so on this machine and in this run replaced.
    fn as_shown(&self, text: &str) -> String;

    /// What a block of kind `text` below `<!-- NAME -->` has to be.
    fn told(&mut self, name: &str) -> String {
        panic!("{name} tells nothing")
    }

    /// What a shell says to it, and the code.
    fn sh(&self, line: &str) -> (String, i32) {
        let program = Path::new(env!("CARGO_BIN_EXE_keylapse"));
        let path = std::env::var("PATH").expect("a PATH");
        let path = format!("{}:{path}", program.parent().expect("its folder").display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1\n{line}")]).current_dir(self.folder());
        shell.env("PATH", path).envs(self.variables()).stdin(Stdio::null());
        let ended = shell.output().expect("a shell");
        (String::from_utf8(ended.stdout).expect("UTF-8"), ended.status.code().unwrap_or(-1))
    }
}

/// A part of a page, in its order.
enum Part {
    /// A command, and the lines that are its output.
    Command(String, Range<usize>),
    /// A file and the lines that it has.
    File(String, Range<usize>),
    /// Who tells the lines.
    Told(String, Range<usize>),
    Scene(String),
}

fn parts(page: &[&str]) -> Vec<Part> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while let Some(line) = page.get(at) {
        at += 1;
        let Some(said) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) else {
            if *line == "```console" {
                let block = block(page, at - 1);
                at = block.end + 1;
                parts.extend(commands(page, block));
            }
            continue;
        };
        if let Some(scene) = said.strip_prefix("scene: ") {
            parts.push(Part::Scene(scene.to_owned()));
            continue;
        }
        let block = block(page, at);
        at = block.end + 1;
        parts.push(match said.strip_prefix("file: ") {
            Some(name) => Part::File(name.to_owned(), block),
            None => Part::Told(said.to_owned(), block),
        });
    }
    parts
}

/// The lines between the fence at this place and the next.
fn block(page: &[&str], fence: usize) -> Range<usize> {
    assert!(page[fence].starts_with("```"), "line {}: a block begins here", fence + 1);
    let end = (fence + 1..page.len()).find(|at| page[*at] == "```").expect("its end");
    fence + 1..end
}

fn commands(page: &[&str], block: Range<usize>) -> Vec<Part> {
    let starts: Vec<_> = block.clone().filter(|at| page[*at].starts_with("$ ")).collect();
    let ends = starts.iter().skip(1).copied().chain([block.end]);
    let command = |(start, end): (&usize, usize)| Part::Command(page[*start][2..].to_owned(), start + 1..end);
    starts.iter().zip(ends).map(command).collect()
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Plays a page of docs/. Answers how many commands it has.
async fn play(name: &str, stage: &mut impl Stage) -> usize {
    let text = std::fs::read_to_string(path(name)).expect("the page");
    let page: Vec<_> = text.lines().collect();
    let (mut news, mut count) = (Vec::new(), 0);
    for part in parts(&page) {
        let (what, said, lines) = match part {
            Part::Scene(scene) => {
                stage.play(&scene).await;
                continue;
            }
            Part::File(name, lines) => {
                let file = stage.as_played(&(page[lines].join("\n") + "\n"));
                std::fs::write(stage.folder().join(name), file).expect("a file");
                continue;
            }
            Part::Told(name, lines) => (format!("the {name} tells"), stage.told(&name), lines),
            Part::Command(command, lines) => {
                count += 1;
                let (said, code) = stage.sh(&command);
                assert_eq!(code, 0, "{command}: {said}; say `; echo $?` behind a command that is to fail");
                (format!("$ {command}"), said, lines)
            }
        };
        let said = stage.as_shown(&said);
        if !is_alike(&page[lines.clone()].join("\n"), &said) {
            news.push((what, said, lines));
        }
    }
    compare(name, &page, news);
    count
}

/// Says what differs, or writes it into the page.
fn compare(name: &str, page: &[&str], news: Vec<(String, String, Range<usize>)>) {
    if std::env::var_os("KEYLAPSE_BLESS").is_some() {
        let mut page: Vec<_> = page.iter().map(|line| (*line).to_owned()).collect();
        for (_, said, lines) in news.into_iter().rev() {
            page.splice(lines, said.lines().map(str::to_owned).filter(|line| !line.is_empty()));
        }
        std::fs::write(path(name), page.join("\n") + "\n").expect("the page");
        return;
    }
    let differ = news
        .into_iter()
        .map(|(what, said, lines)| format!("{what}\n{said}\n--- the page has\n{}", page[lines].join("\n")));
    let differ: Vec<_> = differ.collect();
    assert!(differ.is_empty(), "{}\n\nKEYLAPSE_BLESS=1 writes it into the page", differ.join("\n\n"));
}
