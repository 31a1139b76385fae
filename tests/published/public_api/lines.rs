//! The lines of an item: its declaration, its public fields, its variants; and those of an `impl`: public methods and
//! constants, or the trait that is implemented. Each declaration is one line, without bodies, attributes and what only
//! bodies see.

use syn::{
    Attribute, Fields, File, FnArg, Generics, Ident, ImplItem, Item, ItemImpl, Pat, Path, ReceiverKind,
    Signature, TraitItem, Visibility, parse_quote,
};

use crate::public_api::{names, source};

/// Each with what it adds to the item's path.
pub(crate) fn of_item(item: &Item) -> Vec<(String, String)> {
    match item {
        Item::Struct(one) => {
            let mut head = one.clone();
            let rest = if is_open(&one.fields) { "" } else { " { .. }" };
            (head.attrs, head.fields, head.semi_token) = (Vec::new(), Fields::Unit, Some(Default::default()));
            let head = format!("{}{}{rest}", marks(&one.attrs), one_line(Item::Struct(head)));
            [vec![(String::new(), head)], fields(&one.fields)].concat()
        }
        Item::Enum(one) => {
            let mut head = one.clone();
            (head.attrs, head.variants) = (Vec::new(), Default::default());
            let head = format!("{}{}", marks(&one.attrs), one_line(Item::Enum(head)));
            let seen = one.variants.iter().filter(|variant| source::is_seen(&variant.attrs));
            let variants = seen.map(|variant| {
                let (name, mut bare) = (&variant.ident, variant.clone());
                strip(&mut bare.fields);
                bare.attrs.clear();
                let text = one_line(parse_quote!(enum E { #bare }));
                let text =
                    text.trim_start_matches("enum E {").trim_end_matches('}').trim().trim_end_matches(',');
                (format!("::{name}"), format!("{}variant {text}", marks(&variant.attrs)))
            });
            [(String::new(), head)].into_iter().chain(variants).collect()
        }
        Item::Trait(one) => {
            let mut head = one.clone();
            (head.attrs, head.items) = (Vec::new(), Vec::new());
            let head = (String::new(), one_line(Item::Trait(head)));
            [head].into_iter().chain(one.items.iter().filter_map(of_trait)).collect()
        }
        Item::Fn(one) => vec![(String::new(), marks(&one.attrs) + &function(&one.vis, &one.sig))],
        Item::Const(one) => {
            let (name, ty) = (&one.ident, &one.ty);
            vec![(
                String::new(),
                one_line(parse_quote!(pub static #name: #ty = 0;))
                    .replace("static", "const")
                    .replace(" = 0", ""),
            )]
        }
        other => {
            let mut item = other.clone();
            if let Item::Type(one) = &mut item {
                one.attrs.clear();
            }
            vec![(String::new(), one_line(item))]
        }
    }
}

/// What changes for users although it is an attribute.
pub(crate) fn marks(attrs: &[Attribute]) -> String {
    let words = ["non_exhaustive", "must_use", "deprecated"];
    words.into_iter().filter(|word| source::has(attrs, word)).map(|word| format!("#[{word}] ")).collect()
}

fn strip(fields: &mut Fields) {
    fields.iter_mut().for_each(|field| field.attrs.clear());
}

/// Whether programs see all fields.
fn is_open(fields: &Fields) -> bool {
    fields.iter().all(|field| names::is_public(&field.vis) && source::is_seen(&field.attrs))
}

fn fields(fields: &Fields) -> Vec<(String, String)> {
    let seen = fields.iter().enumerate().filter(|(_, field)| names::is_public(&field.vis));
    let seen = seen.filter(|(_, field)| source::is_seen(&field.attrs));
    let line = |(at, field): (usize, &syn::Field)| {
        let name = field.ident.as_ref().map_or(at.to_string(), ToString::to_string);
        let ty = &field.ty;
        let text = one_line(parse_quote!(type F = #ty;));
        (format!("::{name}"), format!("pub field: {}", text.trim_start_matches("type F = ")))
    };
    seen.map(line).collect()
}

fn of_trait(item: &TraitItem) -> Option<(String, String)> {
    match item {
        TraitItem::Fn(one) => {
            let text = match source::is_seen(&one.attrs) {
                true => marks(&one.attrs) + &function(&Visibility::Inherited, &one.sig),
                false => "hidden, so that only this crate implements the trait".to_owned(),
            };
            let default = if one.default.is_some() { " { .. }" } else { "" };
            Some((format!("::{}", one.sig.ident), text + default))
        }
        TraitItem::Type(one) => {
            let mut bare = one.clone();
            bare.attrs.clear();
            let text = one_line(parse_quote!(trait T { #bare }));
            let text = text.trim_start_matches("trait T {").trim_end_matches('}').trim();
            Some((format!("::{}", one.ident), text.trim_end_matches(';').to_owned()))
        }
        TraitItem::Const(one) => Some((format!("::{}", one.ident), "const".to_owned())),
        _ => None,
    }
}

/// The methods and constants of a type that its `impl` makes public, each with what it adds to the path.
pub(crate) fn inherent(block: &ItemImpl) -> Vec<(String, Option<&'static str>, String)> {
    let head = match is_bound(&block.generics) {
        true => format!(" in {}", head(block)),
        false => String::new(),
    };
    let line = |item: &ImplItem| {
        let (attrs, name, text) = match item {
            ImplItem::Fn(one) if names::is_public(&one.vis) => {
                (&one.attrs, &one.sig.ident, function(&one.vis, &one.sig))
            }
            ImplItem::Const(one) if names::is_public(&one.vis) => {
                let ty = &one.ty;
                let text = one_line(parse_quote!(type C = #ty;)).replace("type C = ", "pub const: ");
                (&one.attrs, &one.ident, text)
            }
            _ => return None,
        };
        let text = format!("{}{text}{head}", marks(attrs));
        source::is_seen(attrs).then(|| (format!("::{name}"), source::needed(attrs), text))
    };
    block.items.iter().filter_map(line).collect()
}

/// `impl Trait for Type`, with the types that belong to it.
pub(crate) fn of_trait_impl(block: &ItemImpl) -> String {
    let types = block.items.iter().filter_map(|item| match item {
        ImplItem::Type(one) => {
            let (name, ty) = (&one.ident, &one.ty);
            Some(one_line(parse_quote!(type #name = #ty;)))
        }
        _ => None,
    });
    match types.collect::<Vec<_>>().join("; ") {
        none if none.is_empty() => head(block),
        types => format!("{} {{ {types} }}", head(block)),
    }
}

/// What `#[derive(Trait)]` writes.
pub(crate) fn derived(what: &Path, name: &Ident, generics: &Generics) -> String {
    let (_, of_type, _) = generics.split_for_impl();
    let mut bound = generics.clone();
    bound.type_params_mut().for_each(|one| one.bounds.push(parse_quote!(#what)));
    let (params, _, clause) = bound.split_for_impl();
    head(&parse_quote!(impl #params #what for #name #of_type #clause {}))
}

/// The item as rustfmt would write it if lines had no end.
pub(crate) fn one_line(item: Item) -> String {
    let text = prettyplease::unparse(&File {
        shebang: None,
        attrs: Vec::new(),
        items: vec![item],
        frontmatter: None,
    });
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let pairs =
        [("( ", "("), (", )", ")"), (" )", ")"), ("< ", "<"), (", >", ">"), (", {", " {"), (" {}", "")];
    let text = pairs.into_iter().fold(text, |text, (from, to)| text.replace(from, to));
    text.trim_end_matches([',', ';']).replace(" .", ".")
}

pub(crate) fn function(visibility: &Visibility, signature: &Signature) -> String {
    let mut signature = signature.clone();
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                receiver.attrs.clear();
                if matches!(receiver.kind, ReceiverKind::Value) {
                    receiver.mutability = None;
                }
            }
            FnArg::Typed(typed) => {
                typed.attrs.clear();
                if let Pat::Ident(name) = &mut *typed.pat {
                    name.mutability = None;
                }
            }
        }
    }
    one_line(parse_quote!(#visibility #signature {}))
}

/// `impl<T: Bound> Type<T>`, without what it holds.
pub(crate) fn head(block: &ItemImpl) -> String {
    let mut empty = ItemImpl { attrs: Vec::new(), items: Vec::new(), ..block.clone() };
    // `fmt::Debug` and `Debug` are one trait.
    if let Some((path, _)) = &mut empty.trait_ {
        let last = path.segments.pop();
        *path = Path { leading_colon: None, segments: last.into_iter().collect() };
    }
    one_line(Item::Impl(empty))
}

/// Whether the parameters are bound to anything, so that what an `impl` holds is not there for all.
pub(crate) fn is_bound(generics: &Generics) -> bool {
    let of_types = generics.type_params().any(|one| !one.bounds.is_empty());
    of_types || generics.where_clause.is_some()
}
