//! Which items programs can name, and how.

use std::collections::BTreeMap;

use syn::Item;

use crate::public_api::attributes;
use crate::public_api::modules::Modules;
use crate::public_api::names::{self, Found};

/// A name that programs can write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) path: String,
    pub(crate) feature: Option<&'static str>,
}

/// The public names of the crate's items, the shortest first, and of what it passes on from others.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    pub(crate) of_items: BTreeMap<Found, Vec<Name>>,
    pub(crate) of_modules: Vec<Name>,
    pub(crate) of_others: Vec<(Name, String)>,
}

impl Exports {
    pub(crate) fn of(modules: &Modules) -> Self {
        let mut exports = Self::default();
        exports.walk(modules, &[], &Name { path: "keylapse".to_owned(), feature: None });
        for names in exports.of_items.values_mut() {
            names.sort_by_key(|name| (name.path.matches("::").count(), name.path.clone()));
        }
        exports
    }

    fn walk(&mut self, modules: &Modules, module: &[String], at: &Name) {
        self.of_modules.push(at.clone());
        for item in &modules[module].items {
            if let Item::Use(import) = item {
                if names::is_public(&import.vis) && attributes::is_seen(&import.attrs) {
                    for (name, path) in names::brought(import) {
                        let found = names::find(modules, module, &path);
                        let name = at.with(&format!("::{name}"), attributes::feature(&import.attrs));
                        self.add(modules, name, found, &path);
                    }
                }
            } else if let Some((name, visibility, attrs)) = names::of_item(item)
                && names::is_public(visibility)
                && attributes::is_seen(attrs)
            {
                let found = names::find(modules, module, &[name.to_string()]);
                let feature = attributes::feature(attrs);
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
