//! The modules of the crates, read from their files, and what attributes say of an item: whether it is there, for whom,
//! and what it derives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Item, Lit, Meta, Path as Named, Token};

use crate::public_api::macro_rules;

/// A module and what is written in it, without what only tests see.
pub(crate) struct Module {
    /// The feature without which it is not there.
    pub(crate) feature: Option<&'static str>,
    pub(crate) items: Vec<Item>,
}

/// By their paths, which begin with the crate's name.
pub(crate) type Modules = BTreeMap<Vec<String>, Module>;

/// The modules of all these crates, each given by its name and its root file.
pub(crate) fn read<'a>(repository: &Path, crates: impl Iterator<Item = (&'a str, &'a str)>) -> Modules {
    let mut modules = Modules::new();
    for (name, root) in crates {
        let root = repository.join(root);
        add(&mut modules, vec![name.to_owned()], None, parse(&root), root.parent().unwrap());
    }
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
        if !is_seen(&inner.attrs) {
            continue;
        }
        let name = inner.ident.to_string();
        let below = folder.join(&name);
        let content = match &inner.content {
            Some((_, items)) => items.clone(),
            None => parse(&file_of(folder, &name)),
        };
        let feature = needed(&inner.attrs).or(feature);
        add(modules, [path.clone(), vec![name]].concat(), feature, content, &below);
    }
    modules.insert(path, Module { feature, items });
}

fn file_of(folder: &Path, name: &str) -> PathBuf {
    let beside = folder.join(name).with_extension("rs");
    if beside.is_file() { beside } else { folder.join(name).join("mod.rs") }
}

type List = Punctuated<Meta, Token![,]>;

/// Cargo's features, for which a name may be there alone.
const FEATURES: [&str; 1] = ["tower"];

/// Whether programs see the item, given all features.
pub(crate) fn is_seen(attributes: &[Attribute]) -> bool {
    is_there(attributes, &|_| true) && !is_hidden(attributes)
}

/// The feature that the item needs, if any.
pub(crate) fn needed(attributes: &[Attribute]) -> Option<&'static str> {
    FEATURES.into_iter().find(|one| !is_there(attributes, &|feature| feature != *one))
}

pub(crate) fn is_hidden(attributes: &[Attribute]) -> bool {
    let mut docs = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    docs.any(|doc| doc.parse_args::<Named>().is_ok_and(|word| word.is_ident("hidden")))
}

pub(crate) fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// The traits of all `#[derive(…)]`.
pub(crate) fn derived(attributes: &[Attribute]) -> Vec<Named> {
    let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    derives
        .flat_map(|derive| derive.parse_args_with(Punctuated::<Named, Token![,]>::parse_terminated).unwrap())
        .collect()
}

fn is_there(attributes: &[Attribute], feature: &dyn Fn(&str) -> bool) -> bool {
    let mut conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.all(|cfg| holds(&cfg.parse_args::<Meta>().unwrap(), feature))
}

/// A condition of `cfg`, on Linux and outside of tests.
fn holds(condition: &Meta, feature: &dyn Fn(&str) -> bool) -> bool {
    let name = condition.path().get_ident().unwrap().to_string();
    match condition {
        Meta::Path(_) => name == "unix",
        Meta::NameValue(pair) => {
            let Expr::Lit(value) = &pair.value else { panic!("cfg({name} = …) without a literal") };
            let Lit::Str(text) = &value.lit else { panic!("cfg({name} = …) without a string") };
            if name == "feature" { feature(&text.value()) } else { text.value() == "linux" }
        }
        Meta::List(list) => {
            let parts = list.parse_args_with(List::parse_terminated).unwrap();
            match name.as_str() {
                "not" => !holds(&parts[0], feature),
                "any" => parts.iter().any(|part| holds(part, feature)),
                _ => parts.iter().all(|part| holds(part, feature)),
            }
        }
    }
}
