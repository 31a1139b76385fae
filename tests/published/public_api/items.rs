//! The lines of an item: its declaration, its public fields, its variants, its methods.

use syn::{Attribute, Fields, Item, TraitItem, Visibility, parse_quote};

use crate::public_api::{attributes, names, spelling};

/// Each with what it adds to the item's path.
pub(crate) fn lines(item: &Item) -> Vec<(String, String)> {
    match item {
        Item::Struct(one) => {
            let mut head = one.clone();
            let rest = if is_open(&one.fields) { "" } else { " { .. }" };
            (head.attrs, head.fields, head.semi_token) = (Vec::new(), Fields::Unit, Some(Default::default()));
            let head = format!("{}{}{rest}", marks(&one.attrs), spelling::one_line(Item::Struct(head)));
            [vec![(String::new(), head)], fields(&one.fields)].concat()
        }
        Item::Enum(one) => {
            let mut head = one.clone();
            (head.attrs, head.variants) = (Vec::new(), Default::default());
            let head = format!("{}{}", marks(&one.attrs), spelling::one_line(Item::Enum(head)));
            let seen = one.variants.iter().filter(|variant| attributes::is_seen(&variant.attrs));
            let variants = seen.map(|variant| {
                let (name, mut bare) = (&variant.ident, variant.clone());
                strip(&mut bare.fields);
                bare.attrs.clear();
                let text = spelling::one_line(parse_quote!(enum E { #bare }));
                let text =
                    text.trim_start_matches("enum E {").trim_end_matches('}').trim().trim_end_matches(',');
                (format!("::{name}"), format!("{}variant {text}", marks(&variant.attrs)))
            });
            [(String::new(), head)].into_iter().chain(variants).collect()
        }
        Item::Trait(one) => {
            let mut head = one.clone();
            (head.attrs, head.items) = (Vec::new(), Vec::new());
            let head = (String::new(), spelling::one_line(Item::Trait(head)));
            [head].into_iter().chain(one.items.iter().filter_map(of_trait)).collect()
        }
        Item::Fn(one) => vec![(String::new(), marks(&one.attrs) + &spelling::function(&one.vis, &one.sig))],
        Item::Const(one) => {
            let (name, ty) = (&one.ident, &one.ty);
            vec![(
                String::new(),
                spelling::one_line(parse_quote!(pub static #name: #ty = 0;))
                    .replace("static", "const")
                    .replace(" = 0", ""),
            )]
        }
        other => {
            let mut item = other.clone();
            if let Item::Type(one) = &mut item {
                one.attrs.clear();
            }
            vec![(String::new(), spelling::one_line(item))]
        }
    }
}

/// What changes for users although it is an attribute.
pub(crate) fn marks(attrs: &[Attribute]) -> String {
    let words = ["non_exhaustive", "must_use", "deprecated"];
    words.into_iter().filter(|word| attributes::has(attrs, word)).map(|word| format!("#[{word}] ")).collect()
}

fn strip(fields: &mut Fields) {
    fields.iter_mut().for_each(|field| field.attrs.clear());
}

/// Whether programs see all fields.
fn is_open(fields: &Fields) -> bool {
    fields.iter().all(|field| names::is_public(&field.vis) && attributes::is_seen(&field.attrs))
}

fn fields(fields: &Fields) -> Vec<(String, String)> {
    let seen = fields.iter().enumerate().filter(|(_, field)| names::is_public(&field.vis));
    let seen = seen.filter(|(_, field)| attributes::is_seen(&field.attrs));
    let line = |(at, field): (usize, &syn::Field)| {
        let name = field.ident.as_ref().map_or(at.to_string(), ToString::to_string);
        let ty = &field.ty;
        let text = spelling::one_line(parse_quote!(type F = #ty;));
        (format!("::{name}"), format!("pub field: {}", text.trim_start_matches("type F = ")))
    };
    seen.map(line).collect()
}

fn of_trait(item: &TraitItem) -> Option<(String, String)> {
    match item {
        TraitItem::Fn(one) => {
            let text = match attributes::is_seen(&one.attrs) {
                true => marks(&one.attrs) + &spelling::function(&Visibility::Inherited, &one.sig),
                false => "hidden, so that only this crate implements the trait".to_owned(),
            };
            let default = if one.default.is_some() { " { .. }" } else { "" };
            Some((format!("::{}", one.sig.ident), text + default))
        }
        TraitItem::Type(one) => {
            let mut bare = one.clone();
            bare.attrs.clear();
            let text = spelling::one_line(parse_quote!(trait T { #bare }));
            let text = text.trim_start_matches("trait T {").trim_end_matches('}').trim();
            Some((format!("::{}", one.ident), text.trim_end_matches(';').to_owned()))
        }
        TraitItem::Const(one) => Some((format!("::{}", one.ident), "const".to_owned())),
        _ => None,
    }
}
