//! All lines of the crate.

use std::collections::BTreeSet;
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Generics, Ident, ImplItem, Item, ItemImpl, TraitItem, Type, TypePath};

use crate::exports::{Exports, Name, attributes_of};
use crate::modules::{self, Modules};
use crate::names::{self, Found};
use crate::{attributes, impls, items};

/// The crate, and how programs see it.
pub(crate) struct Listing {
    modules: Modules,
    exports: Exports,
}

impl Listing {
    pub(crate) fn of(root: &Path) -> Self {
        let modules = modules::of_crate(root);
        let exports = Exports::of(&modules);
        Self { modules, exports }
    }

    /// The file's text.
    pub(crate) fn text(&self) -> String {
        let head = "# What programs can name. tests/public_api compares it with the source, and writes it anew:\n\
                    # KEYLAPSE_BLESS=1 cargo test --test public_api\n";
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
                items::lines(item).into_iter().map(|(more, text)| line(&name.with(&more, None), &text)),
            );
            let others = self.exports.of_items[&found].iter().skip(1);
            lines.extend(others.map(|other| line(other, &format!("pub use {}", name.path))));
            if let Some((ident, generics)) = declared(item) {
                let derived = attributes::derived(attributes_of(item));
                lines.extend(derived.iter().map(|what| line(name, &impls::derived(what, ident, generics))));
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
            let same = move |item: &&Item| names::of_item(item).is_some_and(|(ident, _)| ident == name);
            let seen = |item: &&Item| attributes::is_seen(attributes_of(item));
            let items = self.modules[module].items.iter().filter(same).filter(seen);
            items.map(move |item| (found.clone(), &public[0], item))
        })
    }

    fn impls(&self) -> impl Iterator<Item = (&[String], Option<&'static str>, &ItemImpl)> {
        self.modules.iter().flat_map(|(path, module)| {
            module.items.iter().filter_map(move |item| match item {
                Item::Impl(block) if attributes::is_seen(&block.attrs) => {
                    Some((path.as_slice(), attributes::feature(&block.attrs).or(module.feature), block))
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
            return impls::inherent(block).into_iter().map(of).collect();
        };
        // `From<OfOurOwn>` is nobody else's.
        let arguments = Mentioned::of(self, module, |seen| visit::visit_path(seen, what));
        if !arguments.nameless.is_empty() {
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
        place.map(|name| line(&name.with("", feature), &impls::of_trait(block))).into_iter().collect()
    }

    /// The item that a type is, whatever its arguments are.
    fn found(&self, module: &[String], ty: &Type) -> Option<Found> {
        match ty {
            Type::Path(TypePath { path, .. }) => names::find(&self.modules, module, &names::path_of(path)),
            _ => None,
        }
    }

    /// Names in public signatures that programs cannot write.
    pub(crate) fn nameless(&self) -> Vec<String> {
        let mut found = BTreeSet::new();
        for (at, name, item) in self.items() {
            let Found::Item(module, _) = &at else { continue };
            let seen = Mentioned::of(self, module, |seen| seen.visit_declaration(item));
            found.extend(seen.nameless.into_iter().map(|one| format!("{one}, in {}", name.path)));
        }
        for (module, _, block) in self.impls() {
            let own = self.found(module, &block.self_ty).and_then(|found| self.exports.of_items.get(&found));
            let Some(own) = own.filter(|_| block.trait_.is_none()) else { continue };
            let seen = Mentioned::of(self, module, |seen| seen.visit_methods(block));
            found.extend(seen.nameless.into_iter().map(|one| format!("{one}, in {}", own[0].path)));
        }
        found.into_iter().collect()
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

/// The crate's own names in a piece of source.
struct Mentioned<'a> {
    listing: &'a Listing,
    module: &'a [String],
    public: Vec<&'a Name>,
    nameless: BTreeSet<String>,
}

impl<'a> Mentioned<'a> {
    fn of(listing: &'a Listing, module: &'a [String], visit: impl FnOnce(&mut Self)) -> Self {
        let mut seen = Self { listing, module, public: Vec::new(), nameless: BTreeSet::new() };
        visit(&mut seen);
        seen
    }

    fn visit_declaration(&mut self, item: &Item) {
        match item {
            Item::Struct(one) => {
                one.fields
                    .iter()
                    .filter(|field| names::is_public(&field.vis))
                    .for_each(|field| self.visit_field(field));
            }
            Item::Trait(one) => one.items.iter().for_each(|item| match item {
                TraitItem::Fn(method) if attributes::is_seen(&method.attrs) => {
                    self.visit_signature(&method.sig);
                }
                _ => {}
            }),
            Item::Fn(one) => self.visit_signature(&one.sig),
            Item::Enum(_) | Item::Const(_) | Item::Static(_) | Item::Type(_) => self.visit_item(item),
            _ => {}
        }
    }

    fn visit_methods(&mut self, block: &ItemImpl) {
        for item in &block.items {
            match item {
                ImplItem::Fn(one) if names::is_public(&one.vis) && attributes::is_seen(&one.attrs) => {
                    self.visit_signature(&one.sig);
                }
                _ => {}
            }
        }
    }
}

impl Visit<'_> for Mentioned<'_> {
    fn visit_path(&mut self, path: &syn::Path) {
        let found = names::find(&self.listing.modules, self.module, &names::path_of(path));
        match found.as_ref().map(|found| (found, self.listing.exports.of_items.get(found))) {
            Some((_, Some(public))) => self.public.push(&public[0]),
            Some((Found::Item(module, name), None)) => {
                self.nameless.insert(format!("{}::{name}", module.join("::")));
            }
            _ => {}
        }
        visit::visit_path(self, path);
    }

    // Values and attributes are no part of a signature.
    fn visit_expr(&mut self, _: &syn::Expr) {}
    fn visit_attribute(&mut self, _: &syn::Attribute) {}
    fn visit_visibility(&mut self, _: &syn::Visibility) {}
}
