//! All lines of the crates.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{Generics, Ident, Item, ItemImpl, Type, TypePath};

use crate::public_api::names::{self, Exports, Found, Name, attributes_of};
use crate::public_api::source::Modules;
use crate::public_api::{lines, source};

/// The crates, and how programs see them.
pub(crate) struct Listing {
    modules: Modules,
    exports: Exports,
}

impl Listing {
    pub(crate) fn of<'a>(modules: Modules, listed: impl IntoIterator<Item = &'a str>) -> Self {
        let exports = Exports::of(&modules, listed);
        Self { modules, exports }
    }

    /// The file's text.
    pub(crate) fn text(&self) -> String {
        let head = "# What programs can name. tests/published/public_api compares it with the source, and writes it anew:\n\
                    # KEYLAPSE_BLESS=1 cargo test -p keylapse-tests-published public_api\n";
        let lines = self.lines().into_iter().collect::<Vec<_>>().join("\n");
        format!("{head}{lines}\n")
    }

    fn lines(&self) -> BTreeSet<String> {
        let mut lines = BTreeSet::new();
        lines.extend(self.exports.of_modules.iter().map(|name| line(name, "pub mod")));
        lines
            .extend(self.exports.of_others.iter().map(|(name, path)| line(name, &format!("pub use {path}"))));
        for (found, name, item) in self.items() {
            lines.extend(
                lines::of_item(item).into_iter().map(|(more, text)| line(&name.with(&more, None), &text)),
            );
            let others = self.exports.of_items[&found].iter().skip(1);
            lines.extend(others.map(|other| line(other, &format!("pub use {}", name.path))));
            if let Some((ident, generics)) = declared(item) {
                let derived = source::derived(attributes_of(item));
                lines.extend(derived.iter().map(|what| line(name, &lines::derived(what, ident, generics))));
            }
        }
        for (module, feature, block) in self.impls() {
            lines.extend(self.of_impl(module, feature, block));
        }
        lines
    }

    /// Each item that has a public name.
    fn items(&self) -> impl Iterator<Item = (Found, &Name, &Item)> {
        self.exports.of_items.iter().flat_map(|(found, public)| {
            let Found::Item(module, name) = found else { unreachable!("modules have no lines") };
            let same = move |item: &&Item| names::of_item(item).is_some_and(|(ident, ..)| ident == name);
            let seen = |item: &&Item| source::is_seen(attributes_of(item));
            let items = self.modules[module].items.iter().filter(same).filter(seen);
            items.map(move |item| (found.clone(), &public[0], item))
        })
    }

    fn impls(&self) -> impl Iterator<Item = (&[String], Option<&'static str>, &ItemImpl)> {
        self.modules.iter().flat_map(|(path, module)| {
            module.items.iter().filter_map(move |item| match item {
                Item::Impl(block) if source::is_seen(&block.attrs) => {
                    Some((path.as_slice(), source::needed(&block.attrs).or(module.feature), block))
                }
                _ => None,
            })
        })
    }

    fn of_impl(&self, module: &[String], feature: Option<&'static str>, block: &ItemImpl) -> Vec<String> {
        let own = self.found(module, &block.self_ty);
        let public = own.as_ref().map(|found| self.exports.of_items.get(found));
        let Some((what, _)) = &block.trait_ else {
            let Some(Some(public)) = public else { return Vec::new() };
            let of = |(more, needs, text): (String, Option<&'static str>, String)| {
                line(&public[0].with(&more, needs.or(feature)), &text)
            };
            return lines::inherent(block).into_iter().map(of).collect();
        };
        // `From<OfOurOwn>` is nobody else's.
        let mut arguments = Mentioned { listing: self, module, public: Vec::new(), nameless: false };
        visit::visit_path(&mut arguments, what);
        if arguments.nameless {
            return Vec::new();
        }
        let of_trait = names::find(&self.modules, module, &names::path_of(what));
        let of_trait = of_trait.map(|found| self.exports.of_items.get(&found));
        // For a type of another crate, or any, it stands with the trait, or with what the trait is about.
        let place = match (public, of_trait) {
            (Some(None), _) | (_, Some(None)) => None,
            (Some(Some(own)), _) => Some(&own[0]),
            (None, Some(Some(of_trait))) => Some(&of_trait[0]),
            (None, None) => arguments.public.into_iter().next(),
        };
        place.map(|name| line(&name.with("", feature), &lines::of_trait_impl(block))).into_iter().collect()
    }

    /// The item that a type is, whatever its arguments are.
    fn found(&self, module: &[String], ty: &Type) -> Option<Found> {
        match ty {
            Type::Path(TypePath { path, .. }) => names::find(&self.modules, module, &names::path_of(path)),
            _ => None,
        }
    }
}

fn line(name: &Name, text: &str) -> String {
    match name.feature {
        Some(feature) => format!("{} | {text} | feature {feature}", name.path),
        None => format!("{} | {text}", name.path),
    }
}

fn declared(item: &Item) -> Option<(&Ident, &Generics)> {
    match item {
        Item::Struct(item) => Some((&item.ident, &item.generics)),
        Item::Enum(item) => Some((&item.ident, &item.generics)),
        _ => None,
    }
}

/// The crates' own names in a piece of source.
struct Mentioned<'a> {
    listing: &'a Listing,
    module: &'a [String],
    public: Vec<&'a Name>,
    /// Whether there is one that programs cannot write.
    nameless: bool,
}

impl Visit<'_> for Mentioned<'_> {
    fn visit_path(&mut self, path: &syn::Path) {
        let found = names::find(&self.listing.modules, self.module, &names::path_of(path));
        match found.as_ref().map(|found| (found, self.listing.exports.of_items.get(found))) {
            Some((_, Some(public))) => self.public.push(&public[0]),
            Some((Found::Item(..), None)) => self.nameless = true,
            _ => {}
        }
        visit::visit_path(self, path);
    }

    // Values and attributes are no part of a signature.
    fn visit_expr(&mut self, _: &syn::Expr) {}
    fn visit_attribute(&mut self, _: &syn::Attribute) {}
    fn visit_visibility(&mut self, _: &syn::Visibility) {}
}
