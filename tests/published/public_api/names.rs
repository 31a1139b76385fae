//! What a name stands for in a module, and which items programs can name, and how.

use std::collections::BTreeMap;

use syn::{Attribute, Ident, Item, ItemUse, Path, UseTree, Visibility};

use crate::public_api::source::{self, Modules};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Found {
    Module(Vec<String>),
    /// The module it is written in, and its name there.
    Item(Vec<String>, String),
}

pub(crate) fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The name and visibility of an item that can be named.
pub(crate) fn of_item(item: &Item) -> Option<(&Ident, &Visibility, &[Attribute])> {
    Some(match item {
        Item::Const(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Enum(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Fn(item) => (&item.sig.ident, &item.vis, &item.attrs),
        Item::Mod(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Static(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Struct(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Trait(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Type(item) => (&item.ident, &item.vis, &item.attrs),
        Item::Union(item) => (&item.ident, &item.vis, &item.attrs),
        _ => return None,
    })
}

/// None for what has no name.
pub(crate) fn attributes_of(item: &Item) -> &[Attribute] {
    of_item(item).map_or(&[], |(.., attrs)| attrs)
}

/// The names that a `use` brings, each with the path it stands for.
pub(crate) fn brought(import: &ItemUse) -> Vec<(String, Vec<String>)> {
    fn walk(tree: &UseTree, path: &[String], out: &mut Vec<(String, Vec<String>)>) {
        let with = |name: &Ident| [path, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(part) => walk(&part.tree, &with(&part.ident), out),
            UseTree::Name(part) if part.ident == "self" => {
                out.push((path[path.len() - 1].clone(), path.to_vec()));
            }
            UseTree::Name(part) => out.push((part.ident.to_string(), with(&part.ident))),
            UseTree::Rename(part) if part.ident == "self" => {
                out.push((part.rename.to_string(), path.to_vec()));
            }
            UseTree::Rename(part) => out.push((part.rename.to_string(), with(&part.ident))),
            UseTree::Glob(_) => out.push(("*".to_owned(), path.to_vec())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| walk(tree, path, out)),
        }
    }
    let mut out = Vec::new();
    walk(&import.tree, &[], &mut out);
    out
}

pub(crate) fn path_of(path: &Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// What a path leads to from a module; nothing if it leads to none of the crates.
pub(crate) fn find(modules: &Modules, from: &[String], path: &[String]) -> Option<Found> {
    let (first, rest) = path.split_first()?;
    let start = match first.as_str() {
        "crate" => Found::Module(from[..1].to_vec()),
        "self" => Found::Module(from.to_vec()),
        "super" => Found::Module(from[..from.len() - 1].to_vec()),
        name => named(modules, from, name, |_| true).or_else(|| root(modules, name))?,
    };
    match start {
        Found::Module(module) if !rest.is_empty() => find(modules, &module, rest),
        found => Some(found),
    }
}

/// The crate of this name.
fn root(modules: &Modules, name: &str) -> Option<Found> {
    let root = vec![name.to_owned()];
    modules.contains_key(&root).then_some(Found::Module(root))
}

/// What a name stands for in a module, by its items and by those imports that count.
fn named(modules: &Modules, module: &[String], name: &str, counts: fn(&ItemUse) -> bool) -> Option<Found> {
    let below = [module, &[name.to_owned()]].concat();
    if modules.contains_key(&below) {
        return Some(Found::Module(below));
    }
    let items = &modules.get(module)?.items;
    if items.iter().filter_map(of_item).any(|(ident, ..)| ident == name) {
        return Some(Found::Item(module.to_vec(), name.to_owned()));
    }
    let imports =
        items.iter().filter_map(|item| if let Item::Use(import) = item { Some(import) } else { None });
    let imported: Vec<_> = imports.filter(|import| counts(import)).flat_map(brought).collect();
    let exact = imported
        .iter()
        .find(|(bound, path)| bound == name && path.first().is_some_and(|first| first != name));
    if let Some((_, path)) = exact {
        return find(modules, module, path);
    }
    let globs = imported
        .iter()
        .filter(|(bound, path)| bound == "*" && path.first().is_none_or(|first| first != name));
    // A glob brings no import that its module keeps to itself.
    let shared = |import: &ItemUse| !matches!(import.vis, Visibility::Inherited);
    globs.into_iter().find_map(|(_, path)| match find(modules, module, path)? {
        Found::Module(from) => named(modules, &from, name, shared),
        Found::Item(..) => None,
    })
}

/// A name that programs can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) path: String,
    pub(crate) feature: Option<&'static str>,
}

/// The public names of the items, the shortest first, and of what the listed crates pass on from others.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    pub(crate) of_items: BTreeMap<Found, Vec<Name>>,
    pub(crate) of_modules: Vec<Name>,
    pub(crate) of_others: Vec<(Name, String)>,
}

impl Exports {
    pub(crate) fn of<'a>(modules: &Modules, listed: impl IntoIterator<Item = &'a str>) -> Self {
        let mut exports = Self::default();
        for name in listed {
            exports.walk(modules, &[name.to_owned()], &Name { path: name.to_owned(), feature: None });
        }
        for names in exports.of_items.values_mut() {
            names.sort_by_key(|name| (name.path.matches("::").count(), name.path.clone()));
        }
        exports
    }

    fn walk(&mut self, modules: &Modules, module: &[String], at: &Name) {
        self.of_modules.push(at.clone());
        for item in &modules[module].items {
            if let Item::Use(import) = item {
                if is_public(&import.vis) && source::is_seen(&import.attrs) {
                    for (name, path) in brought(import) {
                        let found = find(modules, module, &path);
                        let name = at.with(&format!("::{name}"), source::needed(&import.attrs));
                        self.add(modules, name, found, &path);
                    }
                }
            } else if let Some((name, visibility, attrs)) = of_item(item)
                && is_public(visibility)
                && source::is_seen(attrs)
            {
                let found = find(modules, module, &[name.to_string()]);
                let feature = source::needed(attrs);
                self.add(modules, at.with(&format!("::{name}"), feature), found, &[]);
            }
        }
    }

    fn add(&mut self, modules: &Modules, name: Name, found: Option<Found>, path: &[String]) {
        match found {
            Some(Found::Module(module)) => self.walk(modules, &module, &name),
            Some(item) => self.of_items.entry(item).or_default().push(name),
            None => self.of_others.push((name, path.join("::"))),
        }
    }
}

impl Name {
    /// A name that begins with this one.
    pub(crate) fn with(&self, more: &str, feature: Option<&'static str>) -> Self {
        Self { path: format!("{}{more}", self.path), feature: feature.or(self.feature) }
    }
}
