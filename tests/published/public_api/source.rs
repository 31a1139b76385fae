//! The crate's modules, read from its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::Item;

use crate::public_api::{attributes, macro_rules};

/// A module and what is written in it, without what only tests see.
pub(crate) struct Module {
    /// The feature without which it is not there.
    pub(crate) feature: Option<&'static str>,
    pub(crate) items: Vec<Item>,
}

/// By their paths in the crate; the root's is empty.
pub(crate) type Modules = BTreeMap<Vec<String>, Module>;

pub(crate) fn of_crate(root: &Path) -> Modules {
    let mut modules = Modules::new();
    let folder = root.parent().unwrap();
    add(&mut modules, Vec::new(), None, parse(root), folder);
    modules
}

fn parse(file: &Path) -> Vec<Item> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items
}

fn add(
    modules: &mut Modules,
    path: Vec<String>,
    feature: Option<&'static str>,
    items: Vec<Item>,
    folder: &Path,
) {
    let items = macro_rules::expand(items);
    for item in &items {
        let Item::Mod(inner) = item else { continue };
        if !attributes::is_seen(&inner.attrs) {
            continue;
        }
        let name = inner.ident.to_string();
        let below = folder.join(&name);
        let content = match &inner.content {
            Some((_, items)) => items.clone(),
            None => parse(&file_of(folder, &name)),
        };
        let feature = attributes::feature(&inner.attrs).or(feature);
        add(modules, [path.clone(), vec![name]].concat(), feature, content, &below);
    }
    modules.insert(path, Module { feature, items });
}

fn file_of(folder: &Path, name: &str) -> PathBuf {
    let beside = folder.join(name).with_extension("rs");
    if beside.is_file() { beside } else { folder.join(name).join("mod.rs") }
}
