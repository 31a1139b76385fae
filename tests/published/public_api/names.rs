//! What a name stands for in a module.

use syn::{Attribute, Ident, Item, ItemUse, Path, UseTree, Visibility};

use crate::public_api::modules::Modules;

/// What a path of the crate leads to.
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

/// What a path leads to from a module; nothing if it leads out of the crate.
pub(crate) fn find(modules: &Modules, from: &[String], path: &[String]) -> Option<Found> {
    let (first, rest) = path.split_first()?;
    let start = match first.as_str() {
        "crate" => Found::Module(Vec::new()),
        "self" => Found::Module(from.to_vec()),
        "super" => Found::Module(from[..from.len().checked_sub(1)?].to_vec()),
        name => named(modules, from, name, |_| true)?,
    };
    match start {
        Found::Module(module) if !rest.is_empty() => find(modules, &module, rest),
        found => Some(found),
    }
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
