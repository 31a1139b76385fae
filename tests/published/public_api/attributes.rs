//! What attributes say of an item: whether it is there, for whom, and what it derives.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Lit, Meta, Path, Token};

type List = Punctuated<Meta, Token![,]>;

/// Cargo's features, for which a name may be there alone.
const FEATURES: [&str; 2] = ["testing", "tower"];

/// Whether programs see the item, given all features.
pub(crate) fn is_seen(attributes: &[Attribute]) -> bool {
    is_there(attributes, &|_| true) && !is_hidden(attributes)
}

/// The feature that the item needs, if any.
pub(crate) fn feature(attributes: &[Attribute]) -> Option<&'static str> {
    FEATURES.into_iter().find(|one| !is_there(attributes, &|feature| feature != *one))
}

pub(crate) fn is_hidden(attributes: &[Attribute]) -> bool {
    let mut docs = attributes.iter().filter(|attribute| attribute.path().is_ident("doc"));
    docs.any(|doc| doc.parse_args::<Path>().is_ok_and(|word| word.is_ident("hidden")))
}

pub(crate) fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// The traits of all `#[derive(…)]`.
pub(crate) fn derived(attributes: &[Attribute]) -> Vec<Path> {
    let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
    derives
        .flat_map(|derive| derive.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated).unwrap())
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
